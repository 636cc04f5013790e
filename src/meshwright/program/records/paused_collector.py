"""A pause of Python's cyclic garbage collector while many small objects are made."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


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
