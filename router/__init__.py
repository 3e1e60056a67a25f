"""The Sandbox Router. Importing any of it settles first which form of the code runs."""

from router import code_form

code_form.install()
