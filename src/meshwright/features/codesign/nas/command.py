"""`meshwright nas`: search for models that are accurate, and fast on a given machine."""

import typer

from meshwright.features.codesign.nas.cost.latency_command import latency_command
from meshwright.features.codesign.nas.families.scale_command import scale_command
from meshwright.features.codesign.nas.rewriting.rewrite_command import rewrite_command
from meshwright.features.codesign.nas.searching.search_command import search_command

nas_command = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Search for models that are accurate, and fast on a given machine.",
)
nas_command.command("search")(search_command)
nas_command.command("latency")(latency_command)
nas_command.command("scale")(scale_command)
nas_command.command("rewrite")(rewrite_command)
