"""A faster frozen dataclass, and a pause of the garbage collector.

Programs and their simulations consist of tens of thousands of small immutable records.
Both tools reduce the time that Python needs to create them.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from functools import wraps
from typing import Any


def fast_frozen[T](record: type[T]) -> type[T]:
    """A frozen, slotted dataclass with a faster `__init__`; a class decorator.

    Python sets each field of a frozen dataclass by `object.__setattr__`, which takes ten
    times as long as a plain assignment, and programs and their simulations are records by
    the ten thousand. The new `__init__` makes the instance an instance of a mutable class
    with the same slots, assigns its fields, and then changes its class back.
    Fields must have no default factories and be positional; `__post_init__` would not run.
    """
    kind: Any = record
    assert not hasattr(kind, "__post_init__"), "fast_frozen would not call it"
    for field in fields(kind):
        is_plain = field.default_factory is MISSING and field.init and not field.kw_only
        assert is_plain, f"{field.name} is not set from a positional argument"
    names = tuple(field.name for field in fields(kind))
    scope: dict[str, Any] = {
        "set_class": object.__dict__["__class__"].__set__,
        "mutable": type(record.__name__, (), {"__slots__": names}),
        "record": record,
    }
    assignments = "; ".join(f"self.{name} = {name}" for name in names)
    source = (
        f"def __init__(self, {', '.join(names)}):\n"
        f"    set_class(self, mutable); {assignments}; set_class(self, record)"
    )
    exec(source, scope)
    init: Any = wraps(kind.__init__)(scope["__init__"])
    init.__defaults__ = kind.__init__.__defaults__
    kind.__init__ = init
    return record


@contextmanager
def paused_collector() -> Generator[None]:
    """Pause the cyclic collector for a block; it runs again after the block.

    The collector is triggered by the number of new objects, not by garbage. It would run
    about a hundred times in one simulation or lowering and take a third of the time, since
    a full collection also walks all objects that JAX holds. The block's own garbage has
    few cycles and is freed by reference counts. If the caller has disabled the collector,
    it stays disabled.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
