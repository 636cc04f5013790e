"""The values that fill the memory while each fusion of a step runs, largest first.

`timeline.py` shows them as tooltips of the memory curve.
"""

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.app.output.collapse import index_free
from meshwright.app.record.plan_record import PlanRecord, estimate_of, program_of
from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.predict.estimate import Estimate
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Atom, Op, Value, show_type

Label = tuple[str, str, str]
"""Name, type and source line of a value, which tooltips show.

The name is an input's path, or the kind of the op that computes the value.
"""


@dataclass(frozen=True, slots=True)
class ValueGroup:
    """Live values with the same name, type and source line.

    count: number of values. bytes: sum of their bytes.
    """

    label: Label
    count: int
    bytes: int


def live_groups(plan: PlanRecord, most: int) -> list[tuple[ValueGroup, ...]]:
    """The `most` largest groups of live values at each point of the memory curve.

    Point 0 is before the first fusion; each fusion adds a point. The bytes of all groups
    add up to the curve, with two exceptions: copies of donated inputs are left out, and of
    the values in a loop body only the largest of each group counts.
    """
    estimate = estimate_of(plan)
    changes = _changes(plan, estimate)
    live: dict[Label, list[int]] = defaultdict(lambda: [0, 0])
    points: list[tuple[ValueGroup, ...]] = []
    for index in range(-1, len(estimate.fusions)):
        for change in changes[index]:
            known = live[change.label]
            known[0] += change.count
            known[1] += change.bytes
            if not known[0]:
                del live[change.label]
        groups = [ValueGroup(label, n, size) for label, (n, size) in live.items()]
        groups += _loop_values(estimate, index)
        points.append(tuple(heapq.nlargest(most, groups, lambda g: g.bytes)))
    return points


def _changes(plan: PlanRecord, estimate: Estimate) -> Mapping[int, list[ValueGroup]]:
    """Values that become live or die, by the index of the fusion at which they do.

    Index -1 is before all fusions. For values that die, count and bytes are negative.
    """
    decided, size = program_of(plan), estimate.layouts.size
    program = decided.lowered.program
    changes: dict[int, list[ValueGroup]] = defaultdict(list)
    for path, value in zip(decided.captured.paths, program.inputs, strict=True):
        changes[-1].append(ValueGroup(_label(index_free(path), value), 1, size(value)))
    for value in program.constants:
        changes[-1].append(ValueGroup(_label("a constant", value), 1, size(value)))
    outputs = [v for v in program.outputs if isinstance(v, Value)]
    ties = decided.captured.ties.items()
    aliased = {program.outputs[o] for o, i in ties if i in estimate.donated}
    for value, op, start, end in _ranges(estimate.fusions, {*outputs}, aliased):
        label = _label(op.kind, value, str(op.source))
        end -= value in estimate.memory.overwritten
        start = -1 if value in estimate.memory.reserved else start
        changes[start].append(ValueGroup(label, 1, size(value)))
        changes[end + 1].append(ValueGroup(label, -1, -size(value)))
    return changes


def _ranges(
    fusions: Sequence[Fusion], outputs: set[Value], aliased: Collection[Atom] = ()
) -> Iterator[tuple[Value, Op, int, int]]:
    """Each value that a fusion writes, with the fusion's root op and its live range.

    A live range is the indices of the first and last fusion during which the value is live.
    aliased: outputs that are stored in donated inputs; they are left out.
    """
    ranges = live_ranges((fusion.reads, fusion.writes) for fusion in fusions)
    for value, start in ranges.definitions.items():
        if value not in aliased:
            end = len(fusions) if value in outputs else ranges.end(value)
            yield value, fusions[start].root, start, end


def _loop_values(estimate: Estimate, index: int) -> list[ValueGroup]:
    """The largest value per label in the loop bodies of a fusion that is a loop.

    The list is empty if the fusion with this index is no loop.
    """
    if index < 0 or estimate.fusions[index].kind is not FusionKind.REGION:
        return []
    sizes: dict[Label, int] = defaultdict(int)
    for body in estimate.fusions[index].bodies:
        for value, op, _, _ in _ranges(body, set()):
            label = _label(op.kind, value, str(op.source))
            sizes[label] = max(sizes[label], estimate.layouts.size(value))
    return [ValueGroup(label, 1, size) for label, size in sizes.items()]


def _label(name: str, value: Value, source: str = "") -> Label:
    return name, show_type(value.shape, value.dtype), source
