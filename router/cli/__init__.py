"""The command line."""

from router.cli.commands import main

__all__ = ["main"]
