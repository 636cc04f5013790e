"""Read recipes from TOML strictly.

An error names the line in the file and proposes the nearest known entry.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from meshwright.errors import RecipeError
from meshwright.features.train.recipes.recipe import (
    EVALUATION_LOSS,
    EntryError,
    Recipe,
)
from meshwright.plain import Reader, joined, read_text


def load_recipe(path: str | Path) -> Recipe:
    """The recipe in a TOML file; `RecipeError` if the file is missing or wrong."""
    file = Path(path)
    return parse_recipe(read_text(file, RecipeError, "a recipe"), str(file))


def parse_recipe(text: str, name: str) -> Recipe:
    """The recipe in a TOML text.

    name: the file's name, for errors.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{name}: {error}") from None
    lines = entry_lines(text)

    def refuse(path: str, fault: str | Exception) -> RecipeError:
        """The error for an entry, with its line, or the line of its table."""
        named = fault.entry if isinstance(fault, EntryError) else path
        line = lines.get(named, lines.get(path))
        return RecipeError(f"{name}{'' if line is None else f':{line}'}: {fault}")

    prepare = {tuple[str, ...]: _listed}
    recipe = Reader(refuse, prepare, table="a table").read(Recipe, tables)
    wants, run = recipe.checkpoint, recipe.run
    if (
        wants.best
        and wants.metric == EVALUATION_LOSS
        and run.evaluate_every > run.steps
    ):
        fault = (
            f"is {run.evaluate_every}, after the last step, so that checkpoint.metric "
        )
        fault += f"{EVALUATION_LOSS!r} never appears; wanted {run.steps} or less"
        raise refuse("run", EntryError("run.evaluate_every", fault))
    return recipe


def _listed(entry: Any, path: str) -> Any:
    """A single text as a list of texts."""
    del path
    return [entry] if isinstance(entry, str) else entry


_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_ENTRY = re.compile(r"\s*([\w\-\".' ]+?)\s*=")


def entry_lines(text: str) -> dict[str, int]:
    """The line number of each table and entry of a TOML text, by dotted path.

    Lines count from 1.

    >>> entry_lines("[run] # first")
    {'run': 1}
    """
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _TABLE.match(line):
            table = _unquoted(found[1])
            lines.setdefault(table, number)
        elif found := _ENTRY.match(line):
            lines.setdefault(joined(table, _unquoted(found[1])), number)
    return lines


def _unquoted(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))
