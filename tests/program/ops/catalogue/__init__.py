"""Small programs that reach every primitive with a rule, in every form of its params."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Example(NamedTuple):
    """A function of arrays and the (NumPy) arguments to call it with."""

    name: str
    fn: Callable
    args: tuple
