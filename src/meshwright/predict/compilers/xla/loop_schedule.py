"""The order of one turn of a loop, where a compiler's is not that of the program.

XLA's scheduler for TPUs goes from the end of a body to its beginning, and takes what is
only handed out before what the next turn waits for: gradients of weights come last, and
keep until then what they are made of. (On a v5e some come earlier, while gathers run
beside; that is left out.)
"""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.predict.compilers.xla.dataflow import stored_outputs
from meshwright.predict.compilers.xla.fusion import Fusion, FusionKind
from meshwright.program.analysis.accumulators import loop_carries
from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops import Trait, has_trait


def in_turn(loop: Op, number: int, units: Sequence[Fusion]) -> Sequence[Fusion]:
    """The units of one body of a region, in the order in which a turn runs them."""
    if loop.kind != "scan":
        return units
    ends = stored_outputs(loop.bodies[number])
    carried = {
        ends[i] for _, _, w in loop_carries(loop) for n, i in w.outputs if n == number
    }
    ordered = _handed_out_last(units, carried) if carried else units
    return _joined_in_order(ordered)


def _handed_out_last(units: Sequence[Fusion], carried: set[Atom]) -> list[Fusion]:
    """Products that nothing carried hangs on come last, with what hangs on them."""
    needed, is_late = set(carried), [True] * len(units)
    for index in reversed(range(len(units))):
        if not needed.isdisjoint(units[index].writes):
            is_late[index] = False
            needed.update(units[index].reads)
    late: set[Value] = set()
    for index, unit in enumerate(units):
        if is_late[index]:
            is_late[index] = unit.kind is FusionKind.PRODUCT or not late.isdisjoint(
                unit.reads
            )
        if is_late[index]:
            late.update(unit.writes)
    order = sorted(range(len(units)), key=is_late.__getitem__)
    return [units[i] for i in order]


def _joined_in_order(units: Sequence[Fusion]) -> list[Fusion]:
    """Products that are joined, and read by nothing else, come as they lie in the whole.

    Each writes its part of it, the second where the first has been.
    """
    made_at: dict[Value, int] = {}
    times_read: dict[Value, int] = {}
    for index, unit in enumerate(units):
        if unit.kind is FusionKind.PRODUCT and len(unit.writes) == 1:
            made_at[unit.writes[0]] = index
        for value in unit.reads:
            times_read[value] = times_read.get(value, 0) + 1
    place = [(index, 0) for index in range(len(units))]
    for unit in units:
        if not has_trait(unit.root.kind, Trait.JOINS):
            continue
        behind = 0
        for part, value in enumerate(unit.reads):
            if value in made_at and times_read[value] == 1:
                behind = max(behind, made_at[value])
                place[made_at[value]] = behind, part
    return [units[i] for i in sorted(range(len(units)), key=place.__getitem__)]
