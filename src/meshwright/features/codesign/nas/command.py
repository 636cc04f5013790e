"""`meshwright nas`: search for models that are accurate, and fast on a given machine."""

import typer

nas_command = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Search for models that are accurate, and fast on a given machine.",
)
