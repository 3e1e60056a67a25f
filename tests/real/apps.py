"""The apps that people run in sandboxes, as their packages install them: fetched once into `.cache/real`, run on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "real"
SECRET = "the-apps-own-secret"

DJANGO = """
import sys
from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpResponse, HttpResponseRedirect
from django.middleware.csrf import get_token
from django.urls import path, reverse

said = []

def form(request):
    if request.method == "POST":
        said.append(request.POST["said"])
        return HttpResponseRedirect(reverse("form"))
    token = get_token(request)
    hidden = f'<input type=hidden name=csrfmiddlewaretoken value="{token}">'
    fields = f'<form method=post action="{reverse("form")}">{hidden}<input name=said><button>say</button></form>'
    return HttpResponse(f"<!doctype html><title>form</title><h1>{' '.join(said)}</h1>{fields}")

urlpatterns = [path("form/", form, name="form")]
settings.configure(
    DEBUG=True, SECRET_KEY="x" * 50, ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    FORCE_SCRIPT_NAME=sys.argv[2] or None,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware"],
)
execute_from_command_line(["app.py", "runserver", "--noreload", "127.0.0.1:" + sys.argv[1]])
"""
STREAMLIT = """
import streamlit as st
name = st.text_input("Your name")
st.write(f"Hello {name or 'nobody'}!")
"""
WEBSOCKIFY = """<!doctype html><title>socket</title><p id=told></p><script>
const socket = new WebSocket(new URL('websockify', location.href).href.replace('http', 'ws'), ['binary'])
socket.binaryType = 'arraybuffer'
socket.onopen = () => socket.send(new Uint8Array([104, 105, 0, 255]))
socket.onmessage = got => { told.textContent = new Uint8Array(got.data).join() }
</script>"""
VITE = {
    "index.html": "<!doctype html><title>vite</title><p id=told></p><script type=module src=/main.js></script>",
    "main.js": "import './look.css'\ndocument.getElementById('told').textContent = 'before'\n",
    "look.css": "p { color: rgb(1, 2, 3) }\n",
}


class NotToBeHadError(Exception):
    """An app can't be installed here; the message says why."""


@dataclass
class Running:
    """An app that listens."""

    port: int
    folder: Path
    """Where it was started, and what it may write."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@functools.cache
def python() -> Path:
    """Returns the interpreter of an environment with the apps of requirements.txt."""
    wanted = (HERE / "requirements.txt").read_bytes()
    folder = CACHE / f"python-{_digest(wanted + sys.version.encode())}"

    def install() -> None:
        _run(sys.executable, "-m", "venv", str(folder))
        quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
        _run(str(folder / "bin/pip"), "install", *quiet, "-r", str(HERE / "requirements.txt"))

    _once(folder, install)
    return folder / "bin" / "python"


@functools.cache
def node_modules() -> Path:
    """Returns a folder `node_modules` with Vite, as its lock says."""
    if shutil.which("npm") is None:
        raise NotToBeHadError("Vite comes by npm, which is not installed")
    wanted = HERE / "vite" / "package-lock.json"
    folder = CACHE / f"vite-{_digest(wanted.read_bytes())}"

    def install() -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / "vite" / name, folder / name)
        _run("npm", "ci", "--no-audit", "--no-fund", "--prefix", str(folder))

    _once(folder, install)
    return folder / "node_modules"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _once(folder: Path, install: Callable[[], None]) -> None:
    """Installs into the folder unless that was done before, also by another process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".whole").exists():
            install()
            (folder / ".whole").touch()


def _run(*command: str) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NotToBeHadError(f"`{' '.join(command[:3])} …` failed: {done.stderr.strip()[-300:]}")


# --- each app: a prefix is the path under which a browser sees it, "" for a host of its own ----


def jupyterlab(folder: Path, prefix: str = "", *, password: bool = False) -> list[str]:
    """Returns the command of JupyterLab with SECRET as its token, or as its password."""
    from_password = f"from jupyter_server.auth import passwd; print(passwd({SECRET!r}, 'sha256'))"
    secret = f"--IdentityProvider.token={SECRET}"
    if password:
        told = subprocess.run(
            [str(python()), "-c", from_password], capture_output=True, text=True, check=True
        )
        secret = f"--PasswordIdentityProvider.hashed_password={told.stdout.strip()}"
    command = [str(python()), "-m", "jupyterlab", "--no-browser", "--allow-root", secret]
    command += [f"--notebook-dir={folder}", "--ServerApp.port_retries=0", "--port={port}"]
    # News of JupyterLab's own are fetched from its site, which is none of a test's business.
    command += [
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    return command + ([f"--ServerApp.base_url={prefix}/"] if prefix else [])


def streamlit(folder: Path, prefix: str = "") -> list[str]:
    """Returns the command of a Streamlit app that greets who types a name; it needs no prefix."""
    (folder / "app.py").write_text(STREAMLIT)
    flags = ["--server.headless=true", "--browser.gatherUsageStats=false"]
    address = ["--server.address=127.0.0.1", "--server.port={port}"]
    return [str(python()), "-m", "streamlit", "run", str(folder / "app.py"), *flags, *address]


def django(folder: Path, prefix: str = "") -> list[str]:
    """Returns the command of a Django form that repeats what was said."""
    (folder / "app.py").write_text(DJANGO)
    return [str(python()), str(folder / "app.py"), "{port}", prefix]


def vite(folder: Path, prefix: str = "") -> list[str]:
    """Returns the command of a Vite dev server."""
    for name, content in VITE.items():
        (folder / name).write_text(content)
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(node_modules())
    address = ["--host", "127.0.0.1", "--port", "{port}", "--strictPort"]
    base = ["--base", f"{prefix}/"] if prefix else []
    return ["node", str(node_modules() / "vite/bin/vite.js"), str(folder), *address, *base]


def websockify(folder: Path, tcp_port: int) -> list[str]:
    """Returns the command of websockify with a page that sends bytes to a TCP port and shows what comes back."""
    (folder / "index.html").write_text(WEBSOCKIFY)
    where = ["127.0.0.1:{port}", f"127.0.0.1:{tcp_port}"]
    return [str(python()), "-m", "websockify", "--web", str(folder), *where]


@asynccontextmanager
async def running(folder: Path, command: list[str]) -> AsyncIterator[Running]:
    """Runs an app until the block ends; `{port}` in its command is where it listens."""
    port = _free_port()
    home = {"HOME": str(folder), "JUPYTER_PREFER_ENV_PATH": "0", "PYTHONUNBUFFERED": "1"}
    with (folder / "app.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(part.replace("{port}", str(port)) for part in command),
            cwd=folder,
            env=os.environ | home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(60):
                while not await _listens(port):
                    assert process.returncode is None, (folder / "app.log").read_text()[-2000:]
                    await asyncio.sleep(0.1)
            yield Running(port, folder)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
