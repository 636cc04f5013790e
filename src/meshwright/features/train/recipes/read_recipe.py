"""Read recipes from TOML strictly.

An error names the line in the file and proposes the nearest known entry.
"""

import re
import tomllib
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from meshwright.errors import RecipeError, did_you_mean
from meshwright.features.train.recipes.recipe import EntryError, Recipe

_KINDS = {
    str: "a text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def load_recipe(path: str | Path) -> Recipe:
    """The recipe in a TOML file; `RecipeError` if the file is missing or wrong."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise RecipeError(f"cannot read a recipe from {file}: {error}") from None
    return parse_recipe(text, str(file))


def parse_recipe(text: str, name: str) -> Recipe:
    """The recipe in a TOML text.

    name: the file's name, for errors.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{name}: {error}") from None
    return _Reader(text, name).record(Recipe, tables, "")


class _Reader:
    """Turns parsed TOML tables into dataclasses, with line numbers in errors.

    path: in the methods, the dotted path of a table or entry, such as "run.steps".
    """

    def __init__(self, text: str, name: str) -> None:
        self.lines = entry_lines(text)
        self.name = name

    def fail(self, path: str, what: str) -> NoReturn:
        """Raise `RecipeError` with the line of the entry at `path`."""
        line = self.lines.get(path)
        raise RecipeError(f"{self.name}{'' if line is None else f':{line}'}: {what}")

    def record[T](self, kind: type[T], table: object, path: str) -> T:
        """The dataclass `kind`, filled from a TOML table."""
        if not isinstance(table, Mapping):
            self.fail(path, f"{path} is {table!r:.60}; wanted a table [{path}]")
        known = [each.name for each in fields(kind)]  # pyright: ignore[reportArgumentType]
        for key in table:
            if key not in known:
                what = f"[{path}] has no entry {key!r}" if path else f"no table [{key}]"
                here = ", ".join(known)
                near = did_you_mean(key, known) or f"; there are {here}"
                self.fail(_joined(path, key), f"{what}{near}")
        missing = [
            each.name
            for each in fields(kind)  # pyright: ignore[reportArgumentType]
            if each.default is MISSING
            and each.default_factory is MISSING
            and each.name not in table
        ]
        if missing:
            lacks = f"[{path}] lacks" if path else "it lacks the tables"
            self.fail(path, f"{lacks} {', '.join(missing)}")
        hints = get_type_hints(kind)
        values = {
            key: self.value(hints[key], entry, _joined(path, key))
            for key, entry in table.items()
        }
        try:
            return kind(**values)
        except RecipeError as error:
            self.fail(_entry_of(error, path, self.lines), str(error))

    def value(self, kind: Any, entry: object, path: str) -> Any:
        """The value of an entry, checked against the annotated type of its field."""
        if isinstance(kind, type) and is_dataclass(kind):
            return self.record(kind, entry, path)
        if isinstance(kind, types.UnionType):
            chosen = get_args(kind)
            return self.value(chosen[isinstance(entry, list)], entry, path)
        if get_origin(kind) is tuple:
            listed = [entry] if isinstance(entry, str) else entry
            if not isinstance(listed, list):
                self.fail(path, f"{path} is {entry!r:.60}; wanted a list of texts")
            return tuple(self.value(str, each, path) for each in listed)
        if isinstance(kind, type) and kind in _KINDS:
            return self.plain(kind, entry, path)
        return self.mapping(kind, entry, path)

    def plain(self, kind: type, entry: Any, path: str) -> Any:
        """The value of an entry whose type is str, int, float or bool."""
        allowed = int | float if kind is float else kind
        if not isinstance(entry, allowed) or (
            isinstance(entry, bool) and kind is not bool
        ):
            self.fail(path, f"{path} is {entry!r:.60}; wanted {_KINDS[kind]}")
        return kind(entry)

    def mapping(self, kind: Any, entry: object, path: str) -> Any:
        """The value of an entry that is a table with arbitrary keys."""
        if not isinstance(entry, Mapping):
            self.fail(path, f"{path} is {entry!r:.60}; wanted a table")
        _, inner = get_args(kind)
        if inner is Any:
            return dict(entry)
        return {
            key: self.plain(inner, each, _joined(path, key))
            for key, each in entry.items()
        }


def _entry_of(error: RecipeError, path: str, lines: Mapping[str, int]) -> str:
    """Dotted path of the entry that an error is about; the table's path if unknown."""
    named = error.entry if isinstance(error, EntryError) else ""
    return named if named in lines else path


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


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
            lines.setdefault(_joined(table, _unquoted(found[1])), number)
    return lines


def _unquoted(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))
