"""The command line: all commands, grouped by the subpackage that does their work."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import typer

from meshwright.cli.check import check_command
from meshwright.cli.confirm import confirm_command
from meshwright.cli.explain import explain_command
from meshwright.cli.iopddl import iopddl_command
from meshwright.cli.machines import machines_command
from meshwright.cli.plan import plan_command
from meshwright.cli.zoo import zoo_command
from meshwright.errors import MeshwrightError

app = typer.Typer(
    name="meshwright",
    help="Partitions a JAX program written for one device over a mesh of many.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_PANELS = {
    "Plans (app)": {"plan": plan_command, "explain": explain_command},
    "Running and compiling (run)": {"check": check_command, "confirm": confirm_command},
    "Machines (machine)": {"machines": machines_command},
    "Programs (program)": {"zoo": zoo_command},
    "Solvers (search)": {"iopddl": iopddl_command},
}
"""Commands by name, below the title of their panel in `meshwright --help`."""

for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; an error is one message on stderr and status 2."""
    try:
        app(arguments, prog_name="meshwright")
    except MeshwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:  # noqa: BLE001  raised by the user's function, or by JAX
        where = _user_line(error)
        print(f"error: {where}{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)


def _user_line(error: BaseException) -> str:
    """`file:line: ` of the innermost frame outside of installed code, "" if none."""
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).parents[1])
    for frame in reversed(frames):
        installed = (package, sys.base_prefix, sys.prefix, "<")
        if not frame.filename.startswith(installed):
            return f"{frame.filename}:{frame.lineno}: "
    return ""
