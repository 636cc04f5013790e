"""Plain data, as JSON and TOML give it, read into checked records, and written again.

A record is a dataclass whose type annotations say what is allowed. `Reader` reads records,
`Frame` is a JSON text of one record, `JsonLines` a file of JSON entries.
"""

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum, EnumType
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import Any, TypeAliasType, get_args, get_origin, get_type_hints

from meshwright.errors import MeshwrightError, did_you_mean

_MISHAPS = (ValueError, KeyError, TypeError, AttributeError)
"""Exceptions of functions that are given any plain data."""

type Prepare = Callable[[Any, str], Any]
"""A function of an entry and its path, which returns plain data or the final value."""

type Refuse = Callable[[str, str | Exception], Exception]
"""A function of an entry's path and its fault, which returns the exception to raise."""

_WORDS: Mapping[Any, str] = {
    str: "a text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
}


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads plain data as values of annotated types.

    refuse: makes the exception for a faulty entry, from a text that names the entry, or
        from the exception of a record that was built.
    prepare: by annotated type, a function that is called on each entry of this type
        before it is checked. What it returns is not checked if it is no plain data.
    table: the name of a dict in messages.
    """

    refuse: Refuse
    prepare: Mapping[Any, Prepare] = field(default_factory=dict[Any, Prepare])
    table: str = "an object"

    def read(self, hint: Any, entry: Any, path: str = "") -> Any:
        """The value of an entry whose annotated type is `hint`.

        path: dotted name of the entry, such as "run.steps"; "" for the whole.
        """
        if type(entry) is hint and hint not in self.prepare:
            return entry  # most entries are numbers and texts
        if isinstance(hint, TypeAliasType):
            hint = hint.__value__
        if hint in self.prepare:
            try:
                entry = self.prepare[hint](entry, path)
            except _MISHAPS as fault:
                raise self.refuse(path, fault) from None
            if not isinstance(entry, dict | list | str | int | float | None):
                return entry
        if isinstance(hint, UnionType):
            kinds = get_args(hint)
            fitting = (kind for kind in kinds if _fits(kind, entry))
            return self.read(next(fitting, kinds[0]), entry, path)
        if not _fits(hint, entry):
            what = f"{path or 'it'} is {entry!r:.60}; wanted {self._wanted(hint)}"
            raise self.refuse(path, what)
        if is_dataclass(hint):
            return self._record(hint, entry, path)
        return self._inner(hint, entry, path)

    def _record(self, kind: Any, table: Any, path: str) -> Any:
        values = self.entries(hints_of(kind), _needed(kind), table, path)
        try:
            return kind(**values)
        except (MeshwrightError, *_MISHAPS) as fault:
            raise self.refuse(path, fault) from None

    def entries(
        self, hints: Mapping[str, Any], needed: Collection[str], table: Any, path: str
    ) -> dict[str, Any]:
        """The values of a dict's entries; fails for unknown and for missing names."""
        self.check_names(table, hints, path)
        missing = [name for name in needed if name not in table]
        if missing:
            here = f"[{path}]" if path else "it"
            raise self.refuse(path, f"{here} lacks {', '.join(missing)}")
        return {n: self.read(hints[n], e, joined(path, n)) for n, e in table.items()}

    def check_names(
        self, table: Mapping[str, Any], known: Collection[str], path: str
    ) -> None:
        """Fail if a key of a dict is none of the `known` names."""
        for name in table:
            if name not in known:
                place, allowed = joined(path, name), ", ".join(known)
                near = did_you_mean(name, known) or f"; wanted one of {allowed}"
                raise self.refuse(place, f"unknown entry {place}{near}")

    def _inner(self, hint: Any, entry: Any, path: str) -> Any:
        """A list or dict with all its elements read; other entries unchanged."""
        if isinstance(hint, EnumType):
            return hint(entry)
        parts = get_args(hint)
        if isinstance(entry, dict) and parts:
            items = entry.items()
            return {n: self.read(parts[1], e, joined(path, n)) for n, e in items}
        if isinstance(entry, list) and parts:
            kinds = parts if _is_of_fixed_length(parts) else parts[:1] * len(entry)
            pairs = enumerate(zip(kinds, entry, strict=True))
            values = (self.read(kind, e, f"{path}[{i}]") for i, (kind, e) in pairs)
            return get_origin(hint)(values)
        return entry

    def _wanted(self, hint: Any) -> str:
        """What an entry of an annotated type has to be, for messages."""
        if isinstance(hint, EnumType):
            return ", ".join(_members(hint))
        kind, parts = _plain_kind(hint), get_args(hint)
        if kind is not list or not parts:
            return _WORDS.get(kind, self.table)
        if _is_of_fixed_length(parts):
            return f"a list of {len(parts)}"
        return f"a list, each item {self._wanted(parts[0])}"


@cache
def _plain_kind(hint: Any) -> Any:
    """The class of plain data from which a value of an annotated type is read."""
    origin = get_origin(hint) or hint
    if origin in (tuple, frozenset):
        return list
    return dict if origin is Mapping or is_dataclass(origin) else origin


def _fits(hint: Any, entry: Any) -> bool:
    """Whether an entry is plain data of the form that the annotated type has."""
    if isinstance(hint, EnumType):
        return entry in _members(hint)
    kind, parts = _plain_kind(hint), get_args(hint)
    if kind is list and _is_of_fixed_length(parts):
        return isinstance(entry, list) and len(entry) == len(parts)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(entry, bool):
        return kind in (bool, Any)
    return kind is Any or isinstance(entry, (int, float) if kind is float else kind)


def _is_of_fixed_length(parts: tuple[Any, ...]) -> bool:
    return len(parts) > 1 and parts[-1] is not Ellipsis


def joined(path: str, name: object) -> str:
    """The dotted path of the entry `name` of the table at `path`."""
    return f"{path}.{name}" if path else str(name)


@cache
def hints_of(kind: Any) -> Mapping[str, Any]:
    """The annotated types of a record's entries, by name."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in _entries_of(kind)}


def _entries_of(kind: Any) -> list[Field[Any]]:
    """The fields of a record that are plain data, such as no functions: the compared."""
    return [each for each in fields(kind) if each.init and each.compare]


@cache
def _needed(kind: Any) -> list[str]:
    entries = _entries_of(kind)
    return [e.name for e in entries if e.default is e.default_factory is MISSING]


def _members(kind: Any) -> list[str]:
    return [member.value for member in kind]


def read_text(path: Path, error: type[MeshwrightError], what: str) -> str:
    """The text of a UTF-8 file; `what` is its content for errors, such as "a plan"."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as fault:  # no text in UTF-8, or no possible name
        why = getattr(fault, "strerror", None) or fault
        raise error(f"cannot read {what} from {path}: {why}") from None


def plain(value: Any, positional: tuple[type, ...] = ()) -> Any:
    """A value as plain data, from which a `Reader` reads an equal value; sets are sorted.

    positional: records that become lists of their fields' values.
    """
    if isinstance(value, tuple | list | frozenset):
        inner: list[Any] = [plain(each, positional) for each in value]  # pyright: ignore[reportUnknownVariableType]
        return sorted(inner) if isinstance(value, frozenset) else inner
    if is_dataclass(value):
        names = hints_of(type(value))
        entries = {name: plain(getattr(value, name), positional) for name in names}
        return list(entries.values()) if type(value) in positional else entries
    if isinstance(value, Mapping):
        items: Any = value.items()  # pyright: ignore[reportUnknownMemberType]
        return {name: plain(inner, positional) for name, inner in items}
    return value.value if isinstance(value, Enum) else value


@dataclass(frozen=True, slots=True)
class Frame:
    """A kind of JSON text: a header, and one record.

    error, what, advice: class, beginning and end of the message for what is no JSON.
    header: the first entries, such as format and version; a text with others is refused.
    derived: entries for human readers. prepare, positional: as in `Reader` and `plain`.
    """

    error: type[MeshwrightError]
    what: str
    header: Mapping[str, Any] = field(default_factory=dict[str, Any])
    derived: tuple[str, ...] = ()
    prepare: Mapping[Any, Prepare] = field(default_factory=dict[Any, Prepare])
    positional: tuple[type, ...] = ()
    indent: int | None = None
    advice: str = "the text that to_json gives"

    @property
    def reader(self) -> Reader:
        """Reads parts of a text; errors of records that say it themselves stay."""
        lists = {kind: partial(_from_list, hints_of(kind)) for kind in self.positional}
        return Reader(self._refuse, {**lists, **self.prepare})

    def _refuse(self, path: str, fault: str | Exception) -> Exception:
        if isinstance(fault, MeshwrightError):
            return fault
        place = f"{path}: " if path and isinstance(fault, Exception) else ""
        return self.error(f"{self.what}: {place}{fault}")

    def write(self, record: Any, **derived: Any) -> str:
        """JSON text of a record, which `read` reads."""
        whole = {**self.header, **plain(record, self.positional), **derived}
        return json.dumps(whole, indent=self.indent)

    def read(self, kind: Any, text: str | bytes) -> Any:
        """The record of class `kind`, or values by name for a dict of their types."""
        try:
            whole = json.loads(text)
        except (ValueError, TypeError, RecursionError) as fault:
            what = f"it is no JSON ({fault!r}); wanted {self.advice}"
            raise self._refuse("", what) from None
        table: dict[str, Any] = self.reader.read(dict, whole)
        for name, value in self.header.items():
            if (given := table.pop(name, None)) != value:
                what = f"{name} is {given!r:.60}; wanted {value!r}"
                raise self._refuse("", f"{what}: make it again with this version")
        table = {n: e for n, e in table.items() if n not in self.derived}
        if isinstance(kind, Mapping):
            return self.reader.entries(kind, kind, table, "")
        return self.reader.read(kind, table)


def _from_list(names: Collection[str], entry: Any, path: str) -> Any:
    del path
    return dict(zip(names, entry, strict=True))


@dataclass(frozen=True, slots=True)
class JsonLines:
    """A file of one JSON entry per line, from which an interrupted run goes on.

    error, what, advice: the class and the words of messages.
    """

    path: Path
    error: type[MeshwrightError]
    what: str
    advice: str

    def read[T](self, read_entry: Callable[[Any], T]) -> list[T]:
        """The entries that `read_entry` makes; an incomplete last line is removed."""
        text = read_text(self.path, self.error, f"lines, one {self.what} in each,")
        *lines, rest = text.split("\n")
        entries: list[T] = []
        for number, line in enumerate(lines, 1):
            try:
                entries.append(read_entry(json.loads(line)))
            except (MeshwrightError, *_MISHAPS) as fault:
                what = f"line {number} of {self.path} is no {self.what} ({fault})"
                raise self.error(f"{what}; {self.advice}") from None
        if rest:  # cut off in place: a rewritten file could itself be interrupted
            os.truncate(self.path, self.path.stat().st_size - len(rest.encode()))
        return entries

    def add(self, entry: Any) -> None:
        """Write one more entry, which is complete when this returns."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
