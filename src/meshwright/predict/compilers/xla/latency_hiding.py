"""Collectives that a compiler's scheduler starts ahead of where they stand."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from meshwright.predict.compilers.xla.fusion import Fusion, FusionKind
from meshwright.program.ir import Value

_HELD = 4
"""Results that may wait for their first reader: each takes memory while it does."""

_LIGHT = frozenset({FusionKind.LOOP, FusionKind.COLLECTIVE})
"""Kinds that a weight passes through on its way: casts, and what moves it."""


class Ahead:
    """Which units may run before their turn, and which have.

    A collective may that runs beside computation and needs nothing but what is there
    from the start, or what casts and other such collectives make of that.
    """

    def __init__(
        self,
        units: Sequence[Fusion],
        inputs: Iterable[Value],
        is_async: Collection[str],
    ) -> None:
        self._waiting: deque[tuple[Fusion, ...]] = deque()
        self._done: set[Fusion] = set()
        self._held: set[Value] = set()
        chains: dict[Value, tuple[Fusion, ...]] = dict.fromkeys(inputs, ())
        for unit in units:
            moves = unit.kind is FusionKind.COLLECTIVE
            if unit.kind not in _LIGHT or (moves and unit.root.kind not in is_async):
                continue
            if not all(map(chains.__contains__, unit.reads)):
                continue
            chain = (*(u for v in unit.reads for u in chains[v]), unit)
            chains |= dict.fromkeys(unit.writes, () if moves else chain)
            if moves:
                self._waiting.append(chain)

    def next(self) -> tuple[Fusion, ...]:
        """The next collective with what it needs, from now on as good as run."""
        while self._waiting and len(self._held) < _HELD:
            chain = self._waiting.popleft()
            early = tuple(u for u in dict.fromkeys(chain) if u not in self._done)
            if chain[-1] in self._done:
                continue
            self._done.update(early)
            self._held.update(chain[-1].writes)
            return early
        return ()

    def take(self, unit: Fusion) -> bool:
        """Whether a unit, whose turn has come, has still to run."""
        if self._held:
            self._held.difference_update(unit.reads)
        if unit in self._done:
            return False
        self._done.add(unit)
        return True
