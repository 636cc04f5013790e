"""The order of fusions in one iteration of a loop.

XLA's scheduler for TPUs goes from the end of a body to its beginning. It takes outputs
that the next iteration does not need before those that it does. So gradients of weights
are computed last, and their operands stay live until then. (On v5e some come earlier,
at the same time as gathers; this is not modelled.)
"""

from collections import Counter
from collections.abc import Sequence

from meshwright.predict.compilers.model.dataflow import stored_outputs
from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.program.analysis.accumulators import loop_carries
from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops import Trait, has_trait


def iteration_order(
    loop: Op, number: int, fusions: Sequence[Fusion]
) -> Sequence[Fusion]:
    """The fusions of a loop's body in the order in which an iteration runs them.

    number: index of the body among the bodies of the op.
    """
    if loop.kind != "scan":
        return fusions
    ends = stored_outputs(loop.bodies[number])
    carried = {
        ends[i] for _, _, w in loop_carries(loop) for n, i in w.outputs if n == number
    }
    ordered = _uncarried_last(fusions, carried) if carried else fusions
    return _joined_in_order(ordered)


def _uncarried_last(fusions: Sequence[Fusion], carried: set[Atom]) -> list[Fusion]:
    """The fusions, with products on which no loop-carried value depends moved to the end.

    Fusions that depend on such products move with them.
    """
    needed, is_late = set(carried), [True] * len(fusions)
    for index in reversed(range(len(fusions))):
        if not needed.isdisjoint(fusions[index].writes):
            is_late[index] = False
            needed.update(fusions[index].reads)
    late: set[Value] = set()
    for index, fusion in enumerate(fusions):
        if is_late[index]:
            is_product = fusion.kind is FusionKind.PRODUCT
            is_late[index] = is_product or not late.isdisjoint(fusion.reads)
        if is_late[index]:
            late.update(fusion.writes)
    order = sorted(range(len(fusions)), key=is_late.__getitem__)
    return [fusions[i] for i in order]


def _joined_in_order(fusions: Sequence[Fusion]) -> list[Fusion]:
    """The fusions, with products that a concatenation joins in the concatenation's order.

    Each product that has no other reader writes its part of the result; all move to the
    position of the last of them.
    """
    num_reads = Counter(value for fusion in fusions for value in fusion.reads)
    made_at = {
        fusion.writes[0]: index
        for index, fusion in enumerate(fusions)
        if fusion.kind is FusionKind.PRODUCT and len(fusion.writes) == 1
    }
    position = [(index, 0) for index in range(len(fusions))]
    for fusion in fusions:
        if not has_trait(fusion.root.kind, Trait.JOINS):
            continue
        last = 0
        for part, value in enumerate(fusion.reads):
            if value in made_at and num_reads[value] == 1:
                last = max(last, made_at[value])
                position[made_at[value]] = last, part
    return [fusions[i] for i in sorted(range(len(fusions)), key=position.__getitem__)]
