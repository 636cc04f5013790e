"""`meshwright accelerator`: designs of accelerators, evaluated and searched for."""

import typer

from meshwright.features.codesign.accelerator.commands.approximate_command import (
    approximate_command,
)
from meshwright.features.codesign.accelerator.commands.eval_command import eval_command
from meshwright.features.codesign.accelerator.commands.learn_command import (
    learn_command,
)
from meshwright.features.codesign.accelerator.commands.log_command import log_command
from meshwright.features.codesign.accelerator.commands.map_command import map_command
from meshwright.features.codesign.accelerator.commands.search_command import (
    search_command,
)

accelerator_command = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Evaluate designs of accelerators, and search for one.",
)
accelerator_command.command("eval")(eval_command)
accelerator_command.command("search")(search_command)
accelerator_command.command("map")(map_command)
accelerator_command.command("log")(log_command)
accelerator_command.command("learn")(learn_command)
accelerator_command.command("approximate")(approximate_command)
