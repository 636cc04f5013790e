"""The command line: one file per command. No other package reads options or prints.

In: the arguments of `meshwright COMMAND`. Out: text or JSON on standard output,
progress and errors on standard error, and the exit status: 0 for success, 1 if the answer
is no (a check found differences, nothing better was found), 2 for an error. Begin reading
at `main.py`, then `plan.py`.
"""

from meshwright.cli.main import main

__all__ = ["main"]
