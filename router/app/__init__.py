"""The composition root: builds everything from the settings, runs it, drains it."""

from router.app.run import run

__all__ = ["run"]
