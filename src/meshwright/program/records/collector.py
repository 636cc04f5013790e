"""Python's cyclic collector, kept waiting while many small objects are made at once."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def one_collection() -> Generator[None]:
    """Let the collector look at all that a block makes once, after the block.

    It counts what is made, not what is garbage, and would look a hundred times in one
    simulation or lowering, now and then at everything that JAX holds as well: a third
    of the time. Little is lost by waiting: what they make has few cycles, so that the
    garbage goes by its counts of references, and the block is short. The collector's own
    pause comes right behind. A caller who has switched it off finds it off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
