"""The passes of XLA's CPU compiler in order, and its policy of assigning buffers."""

from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from meshwright.predict.compilers.cpu.breadth_first_scheduler import breadth_first
from meshwright.predict.compilers.cpu.instruction_fusion import CPU_FUSION
from meshwright.predict.compilers.cpu.library_rewriter import rewrite_for_libraries
from meshwright.predict.compilers.model.compilation import (
    Compiler,
    FusionRewrite,
    Pass,
    Rewrite,
    Stage,
)
from meshwright.predict.compilers.model.fusion import Fusion
from meshwright.predict.compilers.model.policies import (
    BodyBuffers,
    BufferPolicy,
    HeapOrder,
    shared_inputs,
)
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.predict.compilers.xla.call_inliner import inline_calls
from meshwright.predict.compilers.xla.shared_passes import (
    INSTRUCTION_FUSION,
    LAYOUT_ASSIGNMENT,
    MULTI_OUTPUT_FUSION,
)
from meshwright.program.ir import Op, Value
from meshwright.program.ops import Trait, has_trait

PASSES = (
    # Rematerialized calls stay calls: the CPU compiler does not inline them.
    Pass("call-inliner", Stage.OPS, partial(inline_calls, kept_calls={"remat"})),
    Pass("library-rewriter", Stage.OPS, Rewrite(rewrite_for_libraries)),
    LAYOUT_ASSIGNMENT,
    INSTRUCTION_FUSION,
    Pass("breadth-first-scheduler", Stage.FUSION, FusionRewrite(breadth_first)),
    MULTI_OUTPUT_FUSION,
)


def all_inputs_counted(
    op: Op, number: int, fusions: Sequence[Fusion], layouts: Layouts
) -> BodyBuffers:
    """Buffers of one body of a loop or branch, as the CPU compiler assigns them.

    Every input of the body counts, even one that shares an operand's buffer. Nothing is
    updated in place. An output that the loop stacks is written into the stack. A loop's
    constants are read in each iteration, so no other value may take their buffers.
    number: index of the body among the op's bodies.
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
    """The inputs of a loop's body that have the same value in each iteration.

    number: index of the body among the loop's bodies.
    """
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
"""Kinds of collectives that the CPU compiler does not combine into larger ones.

Compiled programs of data parallelism and ZeRO keep them apart, while their all-reduces
become one to three (XLA: `AllReduceCombiner`).
"""

CPU = Compiler("cpu", "cpu", frozenset(), PASSES, CPU_FUSION, CPU_BUFFERS, _UNCOMBINED)
