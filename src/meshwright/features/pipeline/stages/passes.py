"""Assigns each op of one microbatch to a pipeline stage's forward or backward pass.

Forward ops belong to stages by their position. Reverse-mode differentiation transposes
ops in reverse order, so that backward ops come in the reverse order of stages. The
boundaries between their stages are found from the forward values that backward ops
read, since a stage's own backward pass reads its forward values. So both passes of a
stage run on the same devices (Alpa: Zheng et al., OSDI 2022, section 5.1).
"""

from collections.abc import Mapping, Sequence

from meshwright.features.pipeline.stages.cuts import Cuts
from meshwright.features.pipeline.stages.microbatches import Microbatches
from meshwright.program.ir import Atom, Op, Value

type Touched = Mapping[Atom, tuple[int, int]]
"""By value, the first and the last stage whose forward pass computes or reads it."""


def find_places(step: Microbatches, cuts: Cuts) -> dict[Op, int]:
    """The pass of each op of one microbatch, as a position in the chain of passes.

    The chain has the forward passes by stage, then the backward passes in reverse
    (`StagePart.place`). No op has an earlier position than an op whose result it reads.
    """
    touched = _touched(step.body[: cuts.backward], cuts)
    place = {op: cuts.stage_at(i) for i, op in enumerate(step.body[: cuts.backward])}
    backward = step.body[cuts.backward :]
    ends = _backward_ends(backward, cuts.num_stages, touched)
    last = 2 * cuts.num_stages - 1
    for i, op in enumerate(backward):
        place[op] = last - sum(end > i for end in ends)
    _move_up(step, backward, place, touched, cuts.num_stages)
    return place


def _touched(forward: Sequence[Op], cuts: Cuts) -> Touched:
    touched: dict[Atom, tuple[int, int]] = {}
    for position, op in enumerate(forward):
        stage = cuts.stage_at(position)
        for value in (*op.operands, *op.results):
            low, high = touched.get(value, (stage, stage))
            touched[value] = min(low, stage), max(high, stage)
    return touched


def _backward_ends(
    backward: Sequence[Op], num_stages: int, touched: Touched
) -> list[int]:
    """The positions in the backward ops where the passes of stages 1, 2, ... end.

    An op is misplaced if it reads forward values that only earlier, or only later stages
    have touched. Each end is the last position with fewest misplaced ops.
    """
    bounds = [_bounds(op, touched, num_stages) for op in backward]
    ends: list[int] = []
    for stage in range(1, num_stages):
        wrong = sum(low >= stage for low, _ in bounds)
        best, end = wrong, 0
        for i, (low, high) in enumerate(bounds):
            wrong += (high < stage) - (low >= stage)
            if wrong <= best:
                best, end = wrong, i + 1
        ends.append(end)
    for stage in range(num_stages - 3, -1, -1):  # an earlier stage ends later
        ends[stage] = max(ends[stage], ends[stage + 1])
    return ends


def _bounds(op: Op, touched: Touched, num_stages: int) -> tuple[int, int]:
    """The lowest and highest stage that may own an op, by the values it reads.

    All stages if the op reads no forward values, or contradictory ones.
    """
    reads = [touched[atom] for atom in op.operands if atom in touched]
    low = max((first for first, _ in reads), default=0)
    high = min((last for _, last in reads), default=num_stages - 1)
    return (low, high) if low <= high else (0, num_stages - 1)


def _move_up(
    step: Microbatches,
    backward: Sequence[Op],
    place: dict[Op, int],
    touched: Touched,
    num_stages: int,
) -> None:
    """Move ops that only lead to sums over microbatches to the pass of their operands.

    Conversions of gradients come last in the program, for all stages; here they run
    where the gradient is computed.
    """
    ending = _only_ending(step, backward)
    producer = {value: op for op in step.body for value in op.results}
    last = 2 * num_stages - 1
    for op in backward:
        if op not in ending:
            continue
        earliest = [
            place[made]
            for atom in op.operands
            if isinstance(atom, Value) and (made := producer.get(atom)) is not None
            if place[made] >= num_stages
        ]
        if earliest:
            earliest += [last - touched[a][1] for a in op.operands if a in touched]
            place[op] = min(place[op], max(earliest))


def _only_ending(step: Microbatches, backward: Sequence[Op]) -> set[Op]:
    """Backward ops without effects whose results reach only sums over microbatches."""
    other: set[Atom] = set(step.outputs)
    found: set[Op] = set()
    for op in reversed(backward):
        if op.has_effect or not other.isdisjoint(op.results):
            other.update(op.operands)
        else:
            found.add(op)
    return found
