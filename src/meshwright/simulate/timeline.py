"""A device program in time: one stream of computation, one of communication.

Units run in their order on the computing stream, those that write several values in
one pass as one, and what scratch memory can hold never passes through main memory. A
collective starts when what it reads
is there and the links are free, and runs beside computation until somebody needs what
it makes, where the machine's compiler can do that; else it stands in line with the
rest. All devices do the same, so that one stands for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.cost.collective import COLLECTIVE_S
from meshwright.cost.operation import Bound, Traffic, fills_matrix_unit, unit_time
from meshwright.ir import Program, Value
from meshwright.machine.placement import Placement
from meshwright.simulate.ahead import Ahead
from meshwright.simulate.fusion import fuse
from meshwright.simulate.layout import Layout
from meshwright.simulate.multi_output import merge_outputs
from meshwright.simulate.on_chip import on_chip_values
from meshwright.simulate.unit import Kind, Unit

COMPUTE, LINKS = "compute", "links"

_PICKS = frozenset({"dynamic_slice", "gather"})


@dataclass(frozen=True, slots=True)
class Span:
    """One unit on one stream.

    repeats: executions that the span stands for; those of a loop's body lie in it.
    num_bytes: what moves, to and from main memory or over the links. bound: what limits
    a computing unit. inner: the body of a loop, once.
    """

    unit: Unit
    stream: str
    start_s: float
    end_s: float
    num_bytes: float = 0.0
    bound: Bound | None = None
    repeats: int = 1
    inner: Timeline | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The spans of a step, in order of their start."""

    spans: tuple[Span, ...]
    end_s: float

    def busy_s(self, stream: str) -> float:
        """Seconds in which a stream works, loops multiplied."""
        return sum(
            span.repeats * span.inner.busy_s(stream)
            if span.inner is not None
            else (span.end_s - span.start_s) * (span.stream == stream)
            for span in self.spans
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """What a program runs on.

    layout: how values lie in memory.
    is_async: kinds of collectives that run beside computation.
    """

    placement: Placement
    layout: Layout
    is_async: frozenset[str]


def timeline_of(
    program: Program, setting: Setting, units: Sequence[Unit] | None = None
) -> Timeline:
    """The timeline of one run; bodies of loops are simulated once and multiplied."""
    units = fuse(program, setting.layout) if units is None else units
    merged = merge_outputs(units)
    room = setting.placement.machine.chip.on_chip_bytes
    kept = on_chip_values(merged, program.outputs, setting.layout, room)
    clock = _Clock(setting, kept)
    ahead = Ahead(merged, program.inputs, setting.is_async)
    for unit in merged:
        while clock.free[LINKS] <= clock.free[COMPUTE] and (early := ahead.next()):
            for each in early:
                clock.run(each)
        if ahead.take(unit):
            clock.run(unit)
    return Timeline(tuple(clock.spans), max(clock.free.values(), default=0.0))


class _Clock:
    """When each stream is free, and when each value is there."""

    def __init__(self, setting: Setting, on_chip: Collection[Value]) -> None:
        self.setting = setting
        self.on_chip = on_chip
        self.spans: list[Span] = []
        self.free = {COMPUTE: 0.0, LINKS: 0.0}
        self.there: dict[Value, float] = {}

    def run(self, unit: Unit) -> None:
        """Let one unit run as early as it may."""
        ready = max((self.there.get(v, 0.0) for v in unit.reads), default=0.0)
        stream = LINKS if unit.kind is Kind.COLLECTIVE else COMPUTE
        start = max(ready, self.free[stream])
        waits = unit.kind is Kind.COLLECTIVE and (
            unit.root.kind not in self.setting.is_async
        )
        if waits or unit.kind is Kind.REGION:
            start = max(start, *self.free.values())
        span = self._span(unit, stream, start)
        self.spans.append(span)
        self.free[stream] = span.end_s
        if waits or unit.kind is Kind.REGION:
            self.free = dict.fromkeys(self.free, span.end_s)
        for value in unit.writes:
            self.there[value] = span.end_s

    def _span(self, unit: Unit, stream: str, start: float) -> Span:
        if unit.kind is Kind.COLLECTIVE:
            num_bytes = whole_bytes(unit, self.setting.layout)
            seconds = self._collective_s(unit, num_bytes)
            return Span(unit, stream, start, start + seconds, num_bytes)
        if unit.kind is Kind.REGION:
            inner, repeats = self._body(unit)
            end = start + repeats * inner.end_s
            return Span(unit, stream, start, end, repeats=repeats, inner=inner)
        chip = self.setting.placement.machine.chip
        traffic = self._traffic(unit)
        time = unit_time(unit.root, unit.work, traffic, chip)
        end = start + time.seconds
        return Span(unit, stream, start, end, traffic.num_bytes, time.bound)

    def _traffic(self, unit: Unit) -> Traffic:
        layout, root = self.setting.layout, unit.root
        touched = [*unit.reads, *unit.writes]
        if root.kind in _PICKS and root.operands[0] in touched:
            # As much is read of the table as is taken from it.
            touched.remove(root.operands[0])
            touched += root.results
        elif root.kind == "dynamic_update_slice" and unit.in_place is not None:
            touched = [v for v in touched if v not in (unit.in_place, *root.results)]
            touched += [v for v in root.operands[1:2] if isinstance(v, Value)] * 2
        fed = root.operands[:2] if fills_matrix_unit(root) else ()
        return Traffic(
            sum(layout.num_bytes(v) for v in touched if v not in self.on_chip),
            sum(
                math.prod(v.shape) // (2 if v in self.on_chip else 1)
                for v in touched
                if v not in fed
            ),
        )

    def _body(self, unit: Unit) -> tuple[Timeline, int]:
        """The longest body of a region, and how often it runs."""
        op = unit.root
        bodies = [
            timeline_of(body, self.setting, units)
            for body, units in zip(op.bodies, unit.bodies, strict=True)
        ]
        longest = max(bodies, key=lambda body: body.end_s)
        length = op.params.get("length", 1) if op.kind == "scan" else 1
        assert isinstance(length, int), f"a scan of length {length!r}"
        return longest, length

    def _collective_s(self, unit: Unit, num_bytes: float) -> float:
        op = unit.root
        params: Mapping[str, Any] = op.params
        segments = self.setting.placement.of(tuple(params["axes"]))
        seconds: Callable[..., float] = COLLECTIVE_S[op.kind]
        return seconds(num_bytes, segments)


def whole_bytes(unit: Unit, layout: Layout) -> int:
    """Bytes of a collective's whole value on one device: the larger of its two sides."""
    sides = (unit.reads, unit.writes)
    return max((sum(map(layout.num_bytes, side)) for side in sides if side), default=0)
