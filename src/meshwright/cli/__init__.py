"""The command line: the only reader of arguments and environment, the only printer."""

from meshwright.cli.main import main

__all__ = ["main"]
