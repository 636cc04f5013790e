"""The pipeline of XLA's CPU compiler, and how it assigns buffers."""

from collections.abc import Sequence
from operator import attrgetter

from meshwright.predict.compilers.cpu.breadth_first_scheduler import breadth_first
from meshwright.predict.compilers.cpu.instruction_fusion import CPU_FUSION
from meshwright.predict.compilers.cpu.library_rewriter import rewrite_for_libraries
from meshwright.predict.compilers.hlo.compilation import (
    Compiler,
    FusionRewrite,
    Pass,
    Rewrite,
    Stage,
)
from meshwright.predict.compilers.hlo.fusion import Fusion
from meshwright.predict.compilers.hlo.layouts import Layouts
from meshwright.predict.compilers.hlo.policies import (
    BodyBuffers,
    BufferPolicy,
    HeapOrder,
    shared_inputs,
)
from meshwright.predict.compilers.xla.call_inliner import CallInliner
from meshwright.predict.compilers.xla.pipeline import (
    INSTRUCTION_FUSION,
    LAYOUT_ASSIGNMENT,
    MULTI_OUTPUT_FUSION,
)
from meshwright.program.ir import Op, Value
from meshwright.program.ops import Trait, has_trait

PASSES = (
    # Rematerialized calls stay calls: the CPU compiler does not inline them.
    Pass("call-inliner", Stage.OPS, CallInliner(frozenset({"remat"}))),
    Pass("library-rewriter", Stage.OPS, Rewrite(rewrite_for_libraries)),
    LAYOUT_ASSIGNMENT,
    INSTRUCTION_FUSION,
    Pass("breadth-first-scheduler", Stage.FUSION, FusionRewrite(breadth_first)),
    MULTI_OUTPUT_FUSION,
)


def all_inputs_counted(
    op: Op, number: int, fusions: Sequence[Fusion], layouts: Layouts
) -> BodyBuffers:
    """Body buffers of a compiler that counts all inputs, even those in operands' buffers.

    Nothing is updated in place. What a loop stacks is written into the stack. A loop's
    constants are read in the next iteration, too, so nothing takes their buffers.
    """
    del fusions, layouts
    body = op.bodies[number]
    stacked = {i for w in op.wires if w.is_stacked for n, i in w.outputs if n == number}
    outputs = [v for i, v in enumerate(body.outputs) if i not in stacked]
    constants = loop_constants(op, number)
    return BodyBuffers(
        body.inputs, [*outputs, *constants], {}, shared_inputs(op, number)
    )


def loop_constants(op: Op, number: int) -> list[Value]:
    """The inputs of a loop's body that are the same in each iteration."""
    if not has_trait(op.kind, Trait.LOOP):
        return []
    return [
        op.bodies[body].inputs[i]
        for wire in op.wires
        if not wire.is_stacked and not wire.outputs
        for body, i in wire.inputs
        if body == number
    ]


CPU_BUFFERS = BufferPolicy(
    heap=HeapOrder.OUTPUTS_APART,
    outputs=attrgetter("outputs"),  # bitcasts of other values are not looked through
    body_buffers=all_inputs_counted,
    preallocates_stacks=True,
    aliases_any_size=True,
)

_UNCOMBINED = frozenset({"all_gather", "reduce_scatter"})
"""Kinds that compiled programs of data parallelism and ZeRO keep apart; their all-reduces
become one to three (XLA: `AllReduceCombiner`)."""

CPU = Compiler("cpu", "cpu", frozenset(), PASSES, CPU_FUSION, CPU_BUFFERS, _UNCOMBINED)
