"""Plain data, as JSON and TOML give it, read into checked records, and written again.

Plain data are dicts, lists, texts, numbers, booleans and `None`. A record is a frozen
dataclass; the type annotations of its fields say what is allowed. `Reader` reads records,
`Frame` is a JSON text of one record, `JsonLines` a file of JSON entries.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeAliasType, get_args, get_origin, get_type_hints

from meshwright.errors import MeshwrightError, did_you_mean

_MISHAPS = (ValueError, KeyError, TypeError, AttributeError)
"""Exceptions of functions that are given any plain data."""

type Hints = Mapping[str, tuple[Any, bool]]
"""By name of an entry, the annotated type of its value, and whether it may be absent."""

type Prepare = Callable[[Any, str], Any]
"""A function of an entry and its path, which returns plain data or the final value."""

type Refuse = Callable[[str, str | Exception], Exception]
"""A function of an entry's path and its fault, which returns the exception to raise.

The fault is a text that names the entry, or the exception of a record that was built.
"""

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

    refuse: makes the exception for a faulty entry.
    prepare: by annotated type, a function that is called on each entry of this type
        before it is checked. What it returns is not checked if it is no plain data.
    positional: records that are written as lists of their fields' values.
    table: the name of a dict in messages.
    """

    refuse: Refuse
    prepare: Mapping[Any, Prepare] = field(default_factory=dict[Any, Prepare])
    positional: tuple[type, ...] = ()
    table: str = "an object"

    def read(self, hint: Any, entry: Any, path: str = "") -> Any:
        """The value of an entry whose annotated type is `hint`.

        Lists become tuples, and dicts become records. path: dotted name of the entry,
        such as "run.steps"; "" for the whole.
        """
        if isinstance(hint, TypeAliasType):
            hint = hint.__value__
        if hint in self.prepare:
            try:
                entry = self.prepare[hint](entry, path)
            except _MISHAPS as fault:
                raise self.refuse(path, fault) from None
            if not isinstance(entry, dict | list | str | int | float | None):
                return entry
        if hint in self.positional and isinstance(entry, list):
            entry = dict(zip(hints_of(hint), entry, strict=False))
        if isinstance(hint, UnionType):
            kinds = get_args(hint)
            fitting = (kind for kind in kinds if _fits(kind, entry))
            return self.read(next(fitting, kinds[0]), entry, path)
        if not _fits(hint, entry):
            raise self.refuse(
                path,
                f"{path or 'it'} is {entry!r:.60}; wanted {self._wanted(hint)}",
            )
        if is_dataclass(hint):
            values = self.entries(hints_of(hint), entry, path)
            try:
                return hint(**values)
            except (MeshwrightError, *_MISHAPS) as fault:
                raise self.refuse(path, fault) from None
        if isinstance(hint, type) and issubclass(hint, Enum):
            return self._member(hint, entry, path)
        return self._inner(hint, entry, path)

    def entries(self, hints: Hints, table: Mapping[str, Any], path: str) -> Any:
        """The values of a dict's entries; fails for unknown and for missing names."""
        self.check_names(table, hints, path)
        missing = [
            n for n, (_, may_lack) in hints.items() if not (may_lack or n in table)
        ]
        if missing:
            here = f"[{path}]" if path else "it"
            raise self.refuse(path, f"{here} lacks {', '.join(missing)}")
        return {n: self.read(hints[n][0], e, joined(path, n)) for n, e in table.items()}

    def check_names(
        self, table: Mapping[str, Any], known: Collection[str], path: str
    ) -> None:
        """Fail if a key of a dict is none of the `known` names."""
        for name in table:
            if name not in known:
                near = (
                    did_you_mean(name, known) or f"; wanted one of {', '.join(known)}"
                )
                where = joined(path, name)
                raise self.refuse(where, f"unknown entry {where}{near}")

    def _inner(self, hint: Any, entry: Any, path: str) -> Any:
        """A list or dict with all its elements read; other entries unchanged."""
        parts = get_args(hint)
        if isinstance(entry, dict) and parts:
            return {
                n: self.read(parts[1], e, joined(path, n)) for n, e in entry.items()
            }
        if not isinstance(entry, list) or not parts:
            return entry
        if len(parts) == 1 or parts[-1] is Ellipsis:
            parts = parts[:1] * len(entry)
        if len(parts) != len(entry):
            what = f"{path} is {entry!r:.60}; wanted a list of {len(parts)}"
            raise self.refuse(path, what)
        numbered = enumerate(zip(parts, entry, strict=True))
        values = (self.read(part, e, f"{path}[{i}]") for i, (part, e) in numbered)
        return get_origin(hint)(values)

    def _member(self, kind: type[Enum], entry: str, path: str) -> Enum:
        members = {member.value: member for member in kind}
        if entry not in members:
            known = ", ".join(members)
            raise self.refuse(path, f"{path} is {entry!r:.60}; wanted {known}")
        return members[entry]

    def _wanted(self, hint: Any) -> str:
        """What an entry of an annotated type has to be, for messages."""
        kind, parts = _plain_kind(hint), get_args(hint)
        items = (
            f", each item {self._wanted(parts[0])}" if kind is list and parts else ""
        )
        return _WORDS.get(kind, self.table) + items


def _plain_kind(hint: Any) -> Any:
    """The class of plain data from which a value of an annotated type is read."""
    origin = get_origin(hint) or hint
    if origin in (tuple, frozenset):
        return list
    if origin is Mapping or is_dataclass(origin):
        return dict
    return str if isinstance(origin, type) and issubclass(origin, Enum) else origin


def _fits(hint: Any, entry: object) -> bool:
    """Whether an entry has the class from which the annotated type is read."""
    kind = _plain_kind(hint)
    if kind is Any:
        return True
    allowed = (int, float) if kind is float else kind
    return isinstance(entry, allowed) and (kind is bool or not isinstance(entry, bool))


def joined(path: str, name: object) -> str:
    """The dotted path of the entry `name` of the table at `path`."""
    return f"{path}.{name}" if path else str(name)


@cache
def hints_of(kind: Any) -> Hints:
    """The entries of a record: its fields, without those that are not compared.

    These are functions, programs and other things that plain data cannot have.
    """
    hints = get_type_hints(kind)
    return {
        each.name: (
            hints[each.name],
            each.default is not MISSING or each.default_factory is not MISSING,
        )
        for each in fields(kind)
        if each.init and each.compare
    }


def plain(value: Any, positional: tuple[type, ...] = ()) -> Any:
    """A value as plain data, from which a `Reader` reads an equal value.

    Fields of records that are not compared are left out, sets are sorted, and infinity
    is `None`, since JSON has no such number.
    positional: records that become lists of their fields' values.
    """
    if is_dataclass(value):
        names = hints_of(type(value))
        entries = {name: plain(getattr(value, name), positional) for name in names}
        return list(entries.values()) if type(value) in positional else entries
    if isinstance(value, Mapping):
        items: Any = value.items()  # pyright: ignore[reportUnknownMemberType]
        return {name: plain(inner, positional) for name, inner in items}
    if isinstance(value, tuple | list | frozenset):
        inner: list[Any] = [plain(each, positional) for each in value]  # pyright: ignore[reportUnknownVariableType]
        return sorted(inner) if isinstance(value, frozenset) else inner
    if isinstance(value, Enum):
        return value.value
    return None if value == float("inf") else value


@dataclass(frozen=True, slots=True)
class Frame:
    """A kind of JSON text: a header, and one record.

    error, what: class and beginning of the message for other texts.
    header: the first entries, such as format and version; a text with others is refused.
    derived: names of entries for human readers, which are not read.
    prepare, positional: as in `Reader`.
    """

    error: type[MeshwrightError]
    what: str
    header: Mapping[str, Any] = field(default_factory=dict[str, Any])
    derived: tuple[str, ...] = ()
    prepare: Mapping[Any, Prepare] = field(default_factory=dict[Any, Prepare])
    positional: tuple[type, ...] = ()
    indent: int | None = None

    @property
    def reader(self) -> Reader:
        """Reads parts of a text; errors of records that say it themselves stay."""
        return Reader(self._refuse, self.prepare, self.positional)

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
        """The record of class `kind` in a JSON text that `write` wrote.

        If `kind` is a dict of annotated types by name, a dict of the values.
        """
        try:
            table: Any = json.loads(text)
        except (ValueError, TypeError, RecursionError) as fault:
            what = f"it is no JSON ({fault!r}); wanted the text that to_json gives"
            raise self._refuse("", what) from None
        if not isinstance(table, dict):
            raise self._refuse("", f"it is {table!r:.60}; wanted an object")
        for name, value in self.header.items():
            if (given := table.pop(name, None)) != value:
                raise self._refuse(
                    "",
                    f"{name} is {given!r:.60}; wanted {value!r}: make it again with this "
                    "version",
                )
        table = {n: e for n, e in table.items() if n not in self.derived}
        if isinstance(kind, Mapping):
            hints = {name: (hint, False) for name, hint in kind.items()}
            return self.reader.entries(hints, table, "")
        return self.reader.read(kind, table)


@dataclass(frozen=True, slots=True)
class JsonLines:
    """A file of one JSON entry per line, to which entries are added.

    An interrupted run that is started again goes on from its entries.
    error, what, advice: class and words of the message for a line that is no entry.
    """

    path: Path
    error: type[MeshwrightError]
    what: str
    advice: str

    def read[T](self, read_entry: Callable[[Any], T]) -> list[T]:
        """The entries of all complete lines, as `read_entry` makes them.

        An incomplete last line, which an interruption leaves, is removed from the file.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            raise self.error(f"cannot read {self.path}: {fault}") from None
        *lines, rest = text.split("\n")
        entries: list[T] = []
        for number, line in enumerate(lines, 1):
            try:
                entries.append(read_entry(json.loads(line)))
            except (MeshwrightError, *_MISHAPS) as fault:
                raise self.error(
                    f"line {number} of {self.path} is no {self.what} ({fault}); "
                    f"{self.advice}"
                ) from None
        if rest:
            self.path.write_text(text.removesuffix(rest), encoding="utf-8")
        return entries

    def add(self, entry: Any) -> None:
        """Write one more entry, which is complete when this returns."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
