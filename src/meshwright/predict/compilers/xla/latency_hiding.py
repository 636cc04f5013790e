"""Latency hiding: the scheduler starts collectives ahead of their place in the program.

XLA: `LatencyHidingScheduler`.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.program.ir import Value

_MAX_WAITING_RESULTS = 4
"""Largest number of results that wait for their first reader, since each takes memory."""

_PREPARATORY = frozenset({FusionKind.LOOP, FusionKind.COLLECTIVE})
"""Kinds of fusions between an input and a collective: casts of weights, and collectives."""


class EarlyStarts:
    """The collectives of a program that may start early, and those that were started.

    A collective may start early if it is asynchronous and needs only inputs of the program,
    or results of casts and of other such collectives.
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
        """The next collective that may start early, after the fusions that it needs.

        All of these count as started afterwards.
        """
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
        """Mark a fusion as started; False if it was started early before."""
        if self._unread:
            self._unread.difference_update(fusion.reads)
        if fusion in self._started:
            return False
        self._started.add(fusion)
        return True
