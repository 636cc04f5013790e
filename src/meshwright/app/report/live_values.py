"""Which values are alive while each unit runs, those alike told together."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from meshwright.app.output.collapse import index_free
from meshwright.app.record.plan_record import PlanRecord, estimate_of
from meshwright.predict.compilers.xla.fusion import Fusion, FusionKind
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Op, Value, show_type

if TYPE_CHECKING:
    from meshwright.predict.estimate import Estimate


class Alike(NamedTuple):
    """Values of one name, type and source line; name: an input's path, or an op."""

    name: str
    type: str
    source: str


@dataclass(frozen=True, slots=True)
class Group:
    """So many values alike, and what they take."""

    alike: Alike
    count: int
    bytes: int


def groups_alive(plan: PlanRecord, most: int) -> list[tuple[Group, ...]]:
    """The largest groups by point of the memory's curve, which has one before all units.

    Together all groups take what the curve says, but for the copies that are made of
    donated inputs and for what a loop's body holds beyond its largest values.
    """
    found = estimate_of(plan)
    changes = _changes(plan, found)
    now: dict[Alike, list[int]] = defaultdict(lambda: [0, 0])
    told: list[tuple[Group, ...]] = []
    for index in range(-1, len(found.fusions)):
        for alike, count, size in changes[index]:
            now[alike][0] += count
            now[alike][1] += size
            if not now[alike][0]:
                del now[alike]
        inside = _inside(found, index)
        every = [Group(a, n, size) for a, (n, size) in now.items()]
        told.append(tuple(heapq.nlargest(most, every + inside, lambda g: g.bytes)))
    return told


def _changes(
    plan: PlanRecord, found: Estimate
) -> Mapping[int, list[tuple[Alike, int, int]]]:
    """What begins and ends with each unit: a group, how many values, their bytes."""
    decided = plan.decided
    assert decided is not None, "a plan with an estimate knows its program"
    program, size = decided.lowered.program, found.layout.size
    changes: dict[int, list[tuple[Alike, int, int]]] = defaultdict(list)
    for path, value in zip(decided.captured.paths, program.inputs, strict=True):
        name = Alike(index_free(path), show_type(value.shape, value.dtype), "")
        changes[-1].append((name, 1, size(value)))
    for value in program.constants:
        name = Alike("a constant", show_type(value.shape, value.dtype), "")
        changes[-1].append((name, 1, size(value)))
    outputs = [v for v in program.outputs if isinstance(v, Value)]
    aside = _in_place(plan, found, outputs)
    for value, op, start, end in _lives(found.fusions, {*outputs}, aside):
        name = _alike(op, value)
        end -= value in found.memory.overwritten
        changes[start].append((name, 1, size(value)))
        changes[end + 1].append((name, -1, -size(value)))
    return changes


def _in_place(
    plan: PlanRecord, found: Estimate, outputs: Sequence[Value]
) -> set[Value]:
    """Outputs in the memory of the state whose next form they are, if it is given up.

    It is if the inputs and all outputs together are more than is there at the end.
    """
    decided = plan.decided
    assert decided is not None, "a plan with an estimate knows its program"
    program, layout = decided.lowered.program, found.layout
    next_forms = {program.outputs[o] for o in decided.captured.ties}
    taken = {value for value in outputs if value in next_forms}
    held = sum(map(layout.size, {*program.inputs, *program.constants}))
    is_kept = held + sum(map(layout.size, taken)) <= found.memory.curve[-1]
    return set() if is_kept else taken


def _lives(
    units: Sequence[Fusion], outputs: set[Value], aside: Collection[Value] = ()
) -> Iterator[tuple[Value, Op, int, int]]:
    """Each value that a fusion writes, the fusion's root, and its live range."""
    ranges = live_ranges((unit.reads, unit.writes) for unit in units)
    for value, start in ranges.definitions.items():
        if value not in aside:
            end = len(units) if value in outputs else ranges.end(value)
            yield value, units[start].root, start, end


def _inside(found: Estimate, index: int) -> list[Group]:
    """The largest values that the body of a loop makes, while the loop runs."""
    if index < 0 or found.fusions[index].kind is not FusionKind.REGION:
        return []
    groups: dict[Alike, int] = defaultdict(int)
    for body in found.fusions[index].bodies:
        for value, op, _, _ in _lives(body, set()):
            alike = _alike(op, value)
            groups[alike] = max(groups[alike], found.layout.size(value))
    return [Group(alike, 1, size) for alike, size in groups.items()]


def _alike(op: Op, value: Value) -> Alike:
    return Alike(op.kind, show_type(value.shape, value.dtype), str(op.source))
