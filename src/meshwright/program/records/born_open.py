"""Frozen records that are made as fast as open ones."""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import wraps
from typing import Any


def born_open[T](record: type[T]) -> type[T]:
    """A frozen, slotted dataclass whose instances are open while they are made.

    Of a frozen class Python sets each field by a call that takes ten times as long as
    the store that does for an open one, and programs and their simulations are records
    by the ten thousand. So an instance is one of an open class with the same slots until
    its fields are set; nobody else meets it before. Its `__init__` does nothing else:
    fields have no factories and are given in order, and there is no `__post_init__`.
    """
    kind: Any = record
    assert not hasattr(kind, "__post_init__"), "would be passed over"
    for field in fields(kind):
        is_plain = field.default_factory is MISSING and field.init and not field.kw_only
        assert is_plain, f"{field.name} is not set from an argument alone"
    names = tuple(field.name for field in fields(kind))
    scope: dict[str, Any] = {
        "become": object.__dict__["__class__"].__set__,
        "opened": type(record.__name__, (), {"__slots__": names}),
        "record": record,
    }
    stores = "; ".join(f"self.{name} = {name}" for name in names)
    source = (
        f"def __init__(self, {', '.join(names)}):\n"
        f"    become(self, opened); {stores}; become(self, record)"
    )
    exec(source, scope)
    made: Any = wraps(kind.__init__)(scope["__init__"])
    made.__defaults__ = kind.__init__.__defaults__
    kind.__init__ = made
    return record
