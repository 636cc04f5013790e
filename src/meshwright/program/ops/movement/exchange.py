"""Exchange of parts: joins along a dim that is split over devices (`joined_slices.py`).

A device's part of the result is joined from intervals of a few devices' parts of the
operands. What a device lacks, it receives by permutes of just these elements:

    operand  |  0 1 2 3  |  4 5 6 7  |       roll by 1: device 0 receives 7
    result   |  7 0 1 2  |  3 4 5 6  |

Intervals that have other senders and other receivers share a permute. If parts begin at
other places on each device, as those of 64 and of 56 elements do, each device fetches as
many elements of its neighbours as the one that lacks most (`wide_halo.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from meshwright.program.ir import Value
from meshwright.program.ops.movement.joined_slices import (
    Join,
    filled,
    is_zero,
    join_whole,
    slice_of,
)
from meshwright.program.ops.movement.part_runs import (
    IntervalOrigin,
    Run,
    is_among,
    runs_of,
)
from meshwright.program.ops.movement.wide_halo import join_by_halo, num_halo
from meshwright.program.rules.builder import Builder


def join_parts(
    builder: Builder,
    operands: Sequence[Value],
    joins: Sequence[Join],
    axes: tuple[str, ...],
    is_cut: Sequence[bool],
) -> tuple[Value, ...]:
    """This device's parts of joined arrays, whose dim is split along `axes`.

    is_cut: for each operand, whether its dim is split as well, or complete.
    """
    num = builder.mesh.size(axes)
    runs = [runs_of(join, num, is_cut) for join in joins]
    by_runs = [run for run in runs if run is not None]
    if len(by_runs) == len(joins):
        exchange = _Exchange(builder, operands, joins[0].dim, axes)
        for i, found in enumerate(by_runs):
            exchange.add(i, found)
        halo = num_halo(joins[0], num) if len(joins) == 1 and all(is_cut) else None
        if halo is None or exchange.num_moved() <= halo:
            return tuple(
                exchange.joined(i, join, found)
                for i, (join, found) in enumerate(zip(joins, by_runs, strict=True))
            )
    return tuple(_join_other(builder, operands, join, axes, is_cut) for join in joins)


def _join_other(
    builder: Builder,
    operands: Sequence[Value],
    join: Join,
    axes: tuple[str, ...],
    is_cut: Sequence[bool],
) -> Value:
    """This device's part of a join whose parts begin at other places on each device."""
    num = builder.mesh.size(axes)
    needed = num_halo(join, num) if len(operands) == 1 and is_cut[0] else None
    gathered = sum(
        n - n // num for n, cut in zip(join.extents, is_cut, strict=True) if cut
    )
    if needed is not None and needed < gathered:
        return join_by_halo(builder, operands[0], join, axes)
    whole = [
        builder.all_gather(x, join.dim, axes) if cut else x
        for x, cut in zip(operands, is_cut, strict=True)
    ]
    return builder.all_slice(join_whole(builder, whole, join), join.dim, axes)


# -- moving it ------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Slab:
    """An interval of an operand that devices read from one origin.

    start, stop: its bounds in the part of the result. senders: as in `Run`.
    """

    origin: IntervalOrigin
    start: int
    stop: int
    senders: dict[int, int]
    value: Value | None = None

    @property
    def is_local(self) -> bool:
        """Whether every device has what it reads."""
        return self.origin.is_whole or all(a == b for a, b in self.senders.items())

    def may_grow(self, start: int, senders: dict[int, int]) -> bool:
        """Whether the next interval may join this one: who reads both has one sender."""
        both = self.senders.keys() & senders.keys()
        is_local = self.is_local and all(a == b for a, b in senders.items())
        is_next = self.stop == start
        alike = bool(both) and all(self.senders[i] == senders[i] for i in both)
        return is_next and (is_local or self.origin.is_whole or alike)


@dataclass(slots=True)
class _Permute:
    """One permute: for each interval that it moves, the receiver of each sender."""

    length: int
    pairs: dict[_Slab, dict[int, int]]

    def fits(self, length: int, pairs: dict[int, int]) -> bool:
        """Whether other devices send and receive another interval of this length."""
        senders = {sender for each in self.pairs.values() for sender in each}
        receivers = {to for each in self.pairs.values() for to in each.values()}
        return self.length == length and not (
            senders & pairs.keys() or receivers & set(pairs.values())
        )


@dataclass(slots=True)
class _Exchange:
    """The intervals that devices receive for some results, in as few permutes as fit.

    operands: this device's parts. dim: the joined dim, which is split along `axes`.
    slabs: the intervals that each result reads from each origin, in order.
    """

    builder: Builder
    operands: Sequence[Value]
    dim: int
    axes: tuple[str, ...]
    slabs: dict[tuple[int, IntervalOrigin], list[_Slab]] = field(default_factory=dict)
    permutes: list[_Permute] = field(default_factory=list)

    def add(self, result: int, runs: Sequence[Run]) -> None:
        """Add what all runs of a result read."""
        made: list[_Slab] = []
        for run in runs:
            for origin, senders in run.senders.items():
                slabs = self.slabs.setdefault((result, origin), [])
                if slabs and slabs[-1].may_grow(run.start, senders):
                    slabs[-1].stop = run.stop
                    slabs[-1].senders |= senders
                else:
                    slabs.append(_Slab(origin, run.start, run.stop, dict(senders)))
                    made.append(slabs[-1])
        for slab in made:
            if not slab.is_local:
                self._add_permutes(slab)

    def _add_permutes(self, slab: _Slab) -> None:
        left = dict(slab.senders)
        while left:
            pairs: dict[int, int] = {}  # each device sends once in a permute
            for receiver, sender in left.items():
                pairs.setdefault(sender, receiver)
            for receiver in pairs.values():
                del left[receiver]
            length = slab.stop - slab.start
            for permute in self.permutes:
                if slab not in permute.pairs and permute.fits(length, pairs):
                    permute.pairs[slab] = pairs
                    break
            else:
                self.permutes.append(_Permute(length, {slab: pairs}))

    def num_moved(self) -> int:
        """The number of elements along the dim that all permutes together move."""
        return sum(permute.length for permute in self.permutes)

    def joined(self, result: int, join: Join, runs: Sequence[Run]) -> Value:
        """This device's part of a result."""
        parts = [self._run(result, join, run) for run in runs]
        return (
            parts[0] if len(parts) == 1 else self.builder.concatenate(parts, self.dim)
        )

    def _run(self, result: int, join: Join, run: Run) -> Value:
        """One run's elements on this device: read from an origin, or the fill value."""
        num = self.builder.mesh.size(self.axes)
        shape = list(self.operands[0].shape)
        shape[self.dim] = run.stop - run.start
        origins = sorted(run.senders, key=lambda origin: -len(run.senders[origin]))
        is_read = sum(map(len, run.senders.values())) == num
        if len(origins) == 1 and is_zero(join.fill):
            is_read = is_read or self._is_exact(result, origins[0], run)
        if is_read:
            found = self._read(result, origins.pop(0), run)
        else:
            dtype = self.operands[0].dtype
            found = filled(self.builder, tuple(shape), join.fill, dtype)
        for origin in origins:
            moved = self._read(result, origin, run)
            readers = is_among(self.builder, set(run.senders[origin]), self.axes)
            found = self.builder.select(readers, found, moved)
        return found

    def _slab(self, result: int, origin: IntervalOrigin, run: Run) -> _Slab:
        slabs = self.slabs[result, origin]
        return next(slab for slab in slabs if slab.start <= run.start < slab.stop)

    def _is_exact(self, result: int, origin: IntervalOrigin, run: Run) -> bool:
        """Whether devices that do not read the run receive zeros instead."""
        slab = self._slab(result, origin, run)
        alone = [permute for permute in self.permutes if [*permute.pairs] == [slab]]
        return len(alone) == 1 and slab.senders.keys() == run.senders[origin].keys()

    def _read(self, result: int, origin: IntervalOrigin, run: Run) -> Value:
        """One run's elements, as received from an origin."""
        slab = self._slab(result, origin, run)
        if slab.value is None and slab.is_local:
            slab.value = self._own(slab)
        for permute in self.permutes:
            if slab.value is None and slab in permute.pairs:
                self._move(permute)
        assert slab.value is not None
        first, length = run.start - slab.start, run.stop - run.start
        return slice_of(self.builder, slab.value, self.dim, first, length)

    def _move(self, permute: _Permute) -> None:
        """Write a permute, and all others of its intervals."""
        builder = self.builder
        sent: Value | None = None
        pairs: list[tuple[int, int]] = []
        for slab, each in permute.pairs.items():
            own = self._own(slab)
            pairs += each.items()
            if sent is not None:
                own = builder.select(is_among(builder, set(each), self.axes), sent, own)
            sent = own
        assert sent is not None
        self.permutes.remove(permute)
        moved = builder.permute(sent, self.axes, tuple(sorted(pairs)))
        for slab, each in permute.pairs.items():
            rest = [other for other in self.permutes if slab in other.pairs]
            for other in rest:
                self._move(other)
            if slab.value is None:
                slab.value = moved
                continue
            receives = is_among(builder, set(each.values()), self.axes)
            slab.value = builder.select(receives, slab.value, moved)

    def _own(self, slab: _Slab) -> Value:
        """What this device has at the place of an interval."""
        start, length = slab.start + slab.origin.distance, slab.stop - slab.start
        own = self.operands[slab.origin.operand]
        return slice_of(self.builder, own, self.dim, start, length)
