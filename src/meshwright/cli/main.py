"""The entry point of the command line, and all commands in groups, as the help shows."""

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from meshwright import __version__
from meshwright.errors import MeshwrightError, MeshwrightWarning, did_you_mean
from meshwright.registry import COMMANDS


class _LazyGroup(TyperGroup):
    """A group of commands that imports a command's module, and thus JAX, only to run it.

    So `meshwright --help` needs no import of JAX.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        if cmd_name not in COMMANDS:
            return None
        command = COMMANDS[cmd_name]
        return TyperCommand(cmd_name, help=command.line, rich_help_panel=command.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            near = did_you_mean(args[0], COMMANDS)
            ctx.fail(f"no command {args[0]!r}{near}; there are {', '.join(COMMANDS)}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(name or ""), rest


def load_command(name: str) -> Any:
    """Import the module of a command, and return the command, or its subcommands."""
    module = import_module(f"meshwright.{COMMANDS[name].home}")
    function = getattr(module, f"{name}_command")
    if isinstance(function, typer.Typer):
        return typer.main.get_command(function)
    single = typer.Typer(add_completion=False)
    single.command(name)(function)
    return typer.main.get_command(single)


app = typer.Typer(
    cls=_LazyGroup,
    name="meshwright",
    help="Partitions a JAX program written for one device over a mesh of many.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"meshwright {__version__}")
        raise typer.Exit


@app.callback()
def group(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Partitions a JAX program written for one device over a mesh of many."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; an error is one message on stderr and status 2."""
    warnings.formatwarning = format_warning
    _open_closed_streams()
    status: int | str | None = 2
    try:
        app(arguments, prog_name="meshwright")
    except SystemExit as ended:
        status = ended.code
        if isinstance(ended.__context__, BrokenPipeError):  # click's own end, status 1
            status = _CLOSED
    except BrokenPipeError:
        _close_stdout()
        status = _CLOSED
    except MeshwrightError as error:
        print(f"error: {error}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001  raised by the user's function, or by JAX
        where = _user_line(error)
        print(f"error: {where}{type(error).__name__}: {error}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as `head -1` does
        _close_stdout()
        status = _CLOSED
    sys.exit(status)


_CLOSED = 141
"""Exit status if nobody reads the output: that of a program ended by SIGPIPE."""


def _open_closed_streams() -> None:
    """Open /dev/null in place of stdout or stderr if the caller has closed it (`>&-`)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  until exit
            setattr(sys, name, stream)


def _close_stdout() -> None:
    """Point stdout at /dev/null, so that Python reports no broken pipe when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_python_format = warnings.formatwarning


def format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """The text of a warning: one line for Meshwright's own, Python's usual form for others.

    A user of the command line wrote no Python, so that a source line would not help.
    """
    if issubclass(category, MeshwrightWarning):
        return f"warning: {message}\n"
    return _python_format(message, category, filename, lineno, line)


def _user_line(error: BaseException) -> str:
    """The source line of the user's own code that raised an error, as `file:line: `.

    It is the innermost frame outside of installed packages; "" if there is none.
    """
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).parents[1])
    for frame in reversed(frames):
        installed = (package, sys.base_prefix, sys.prefix, "<")
        is_package = "site-packages" in Path(frame.filename).parts  # pip install --user
        if not is_package and not frame.filename.startswith(installed):
            return f"{frame.filename}:{frame.lineno}: "
    return ""
