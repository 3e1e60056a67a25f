"""The compiled scanner beside its reference, whatever form this process runs."""

import importlib
import sys
from pathlib import Path

from router import code_form
from router.proxy.wire import request_head, response_head, scanning

SCANNER = "router.proxy.wire.scanner"


class Scanners:
    """Both scanners, made from the product's own tables. Raises ImportError where none was built."""

    def __init__(self, file: str | None = None) -> None:
        """`file` is another build of the extension module, as `make sanitize` makes one."""
        found = {SCANNER: file} if file else code_form.choose(code_form.PACKAGE, "auto").modules
        finder = code_form.CompiledFinder(found)
        sys.meta_path.insert(0, finder)
        try:
            self.module = importlib.import_module(SCANNER)
        finally:
            sys.meta_path.remove(finder)
        self.requests = scanning.request_scanner(request_head.ACTIONS, request_head.KNOWN)
        self.responses = scanning.response_scanner(response_head.ACTIONS)

    @property
    def file(self) -> Path:
        assert self.module.__file__ is not None
        return Path(self.module.__file__)
