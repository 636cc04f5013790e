"""Values from JSON, checked and converted by the type annotations of dataclasses."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAliasType, get_args, get_origin, get_type_hints

from meshwright.errors import PlanError


def checked(value: Any, hint: Any, where: str) -> Any:
    """A JSON value converted to an annotated type, such as a list to a tuple.

    Objects become dataclasses.
    where: the path of the value in the JSON, for the error message.
    Raises `PlanError` for a value of another type.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if isinstance(hint, TypeAliasType):
        return checked(value, hint.__value__, where)
    if origin is UnionType:
        rest = next(part for part in parts if part is not NoneType)
        return None if value is None else checked(value, rest, where)
    if is_dataclass(hint):
        return _record(_of_kind(value, dict, where), hint, where)
    if origin is tuple:
        return _sequence(_of_kind(value, list, where), parts, where)
    if origin is not None:  # a mapping
        entries = _of_kind(value, dict, where).items()
        return {name: checked(v, parts[1], f"{where}.{name}") for name, v in entries}
    return _of_kind(value, hint, where)


def _of_kind(value: Any, kind: type, where: str) -> Any:
    """The value unchanged; `PlanError` if it is not of the class `kind`."""
    allowed = (int, float) if kind is float else kind
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        names: dict[type, str] = {
            list: "a list",
            dict: "an object",
            str: "a text",
            bool: "true or false",
        }
        wanted = names.get(kind, "a number")
        raise PlanError(f"this is no plan: {where} is {value!r:.60}; wanted {wanted}")
    return value


def _sequence(items: list[Any], parts: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if parts[-1] is Ellipsis:
        parts = (parts[0],) * len(items)
    if len(parts) != len(items):
        raise PlanError(f"this is no plan: {where} has {len(items)}, not {len(parts)}")
    triples = zip(items, parts, range(len(items)), strict=True)
    return tuple(checked(item, part, f"{where}[{i}]") for item, part, i in triples)


def _record(given: Mapping[str, Any], kind: Any, where: str) -> Any:
    hints, needed = _annotations(kind)
    unknown = sorted(given.keys() - hints.keys()) + sorted(needed - given.keys())
    if unknown:
        raise PlanError(
            f"this is no plan: {where} has {', '.join(given)}; wanted {', '.join(hints)}"
        )
    return kind(**{n: checked(v, hints[n], f"{where}.{n}") for n, v in given.items()})


@cache
def _annotations(kind: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The type annotation of each field of a dataclass, and the fields without default."""
    hints = get_type_hints(kind)
    needed = (
        f.name
        for f in fields(kind)
        if f.default is MISSING and f.default_factory is MISSING
    )
    return {f.name: hints[f.name] for f in fields(kind)}, frozenset(needed)
