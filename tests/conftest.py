"""Tests run the pure form, which is what was just edited, unless SANDBOX_ROUTER_FORM says otherwise (`make test` does)."""

import os

os.environ.setdefault("SANDBOX_ROUTER_FORM", "pure")
