"""Latency hiding: collectives that the scheduler starts ahead of their position.

XLA: `LatencyHidingScheduler`.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from meshwright.predict.compilers.hlo.fusion import Fusion, FusionKind
from meshwright.program.ir import Value

_MAX_WAITING_RESULTS = 4
"""Results that may wait for their first reader: each takes memory meanwhile."""

_PREPARATORY = frozenset({FusionKind.LOOP, FusionKind.COLLECTIVE})
"""Kinds between an input and a collective: casts of weights, and other collectives."""


class EarlyStarts:
    """The collectives that may start early, and which fusions have been started.

    A collective may start early if it is asynchronous and needs nothing but inputs, or
    what casts and other such collectives make of them.
    """

    def __init__(
        self,
        fusions: Sequence[Fusion],
        inputs: Iterable[Value],
        async_collectives: Collection[str],
    ) -> None:
        self._waiting: deque[tuple[Fusion, ...]] = deque()
        self._started: set[Fusion] = set()
        self._unread: set[Value] = set()
        chains: dict[Value, tuple[Fusion, ...]] = dict.fromkeys(inputs, ())
        for fusion in fusions:
            is_collective = fusion.kind is FusionKind.COLLECTIVE
            if fusion.kind not in _PREPARATORY or (
                is_collective and fusion.root.kind not in async_collectives
            ):
                continue
            if not all(map(chains.__contains__, fusion.reads)):
                continue
            chain = (*(f for v in fusion.reads for f in chains[v]), fusion)
            chains |= dict.fromkeys(fusion.writes, () if is_collective else chain)
            if is_collective:
                self._waiting.append(chain)

    def next(self) -> tuple[Fusion, ...]:
        """The next collective and the fusions it needs, which now count as started."""
        while self._waiting and len(self._unread) < _MAX_WAITING_RESULTS:
            chain = self._waiting.popleft()
            early = tuple(f for f in dict.fromkeys(chain) if f not in self._started)
            if chain[-1] in self._started:
                continue
            self._started.update(early)
            self._unread.update(chain[-1].writes)
            return early
        return ()

    def start(self, fusion: Fusion) -> bool:
        """Whether a fusion was not started early; it counts as started afterwards."""
        if self._unread:
            self._unread.difference_update(fusion.reads)
        if fusion in self._started:
            return False
        self._started.add(fusion)
        return True
