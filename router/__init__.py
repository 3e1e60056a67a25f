"""The Sandbox Router. Importing any of it first lets process 1 be ended, then settles which form of the code runs."""

from router import first_signals

first_signals.listen()

from router import code_form  # noqa: E402 - takes long enough for a signal to be lost

code_form.install()
