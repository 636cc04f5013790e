"""The command line: one file per command. Only here are options read and text printed.

In: the arguments of `meshwright COMMAND`. Out: text or JSON on standard output,
progress and errors on standard error, and the exit status: 0 for success, 1 for a check
that found differences, 2 for an error. Begin reading at `main.py`, then `plan.py`.
"""

from meshwright.cli.main import main

__all__ = ["main"]
