"""Runs the command line as `python -m router`."""

from router.cli import main

main(prog_name="sandbox-router")
