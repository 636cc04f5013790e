"""The list of passes of XLA's TPU compiler (libtpu), and what in it depends on the chip."""

from dataclasses import dataclass, replace

from meshwright.machine import Machine
from meshwright.predict.compilers.model.compilation import (
    Compiler,
    FusionRewrite,
    Pass,
    Rewrite,
    Stage,
)
from meshwright.predict.compilers.model.dataflow import Flow
from meshwright.predict.compilers.model.fusion import FusionKind, kind_of
from meshwright.predict.compilers.model.policies import BufferPolicy, FusedOp, HeapOrder
from meshwright.predict.compilers.tpu.all_reduce_combiner import (
    ReductionCombiner,
    combiner_for,
)
from meshwright.predict.compilers.tpu.bfloat16_propagation import propagate_bfloat16
from meshwright.predict.compilers.tpu.deferred_initialization import (
    UPDATE,
    defer_updates,
)
from meshwright.predict.compilers.tpu.duplication import Balance, balance_of
from meshwright.predict.compilers.tpu.loop_schedule import iteration_order
from meshwright.predict.compilers.tpu.narrow_images import store_narrow_images
from meshwright.predict.compilers.tpu.softmax_fusion import SoftmaxFusion
from meshwright.predict.compilers.tpu.space_to_batch import convert_space_to_batch
from meshwright.predict.compilers.xla.algebraic_simplifier import simplify_broadcasts
from meshwright.predict.compilers.xla.all_reduce_reassociate import reassociate
from meshwright.predict.compilers.xla.instruction_fusion import elementwise_aliases
from meshwright.predict.compilers.xla.memory_space_assignment import (
    MemorySpaceAssignment,
)
from meshwright.predict.compilers.xla.producer_fusion import XLA_FUSION, ProducerFusion
from meshwright.predict.compilers.xla.shared_passes import (
    CALL_INLINER,
    INSTRUCTION_FUSION,
    LAYOUT_ASSIGNMENT,
    MULTI_OUTPUT_FUSION,
    OUTPUT_FUSION_WITH_UPDATES,
)
from meshwright.predict.compilers.xla.while_loop_all_reduce_code_motion import (
    code_motion,
)
from meshwright.program.ir import Value

_ASYNC_COLLECTIVES = frozenset({"all_gather", "permute", "reduce_scatter"})

_ALIGNMENT_BYTES = 16384
"""All 144,994 offsets in 59 heaps are multiples of this (libtpu 0.0.50)."""

_WINDOW_BYTES_PER_ELEMENT = 6400
"""Window memory that a product needs per element of a row whose softmax it computes, in
bytes.

With windows of 16 MiB the compiler fuses rows of 2,304 and not of 3,072; with 32 MiB it
fuses rows of 4,096."""

_LONGEST_SOFTMAX_ROW = 2560
"""Longest row whose softmax a product computes, in elements, on chips whose window
memory is unknown, such as v5p and 7x."""

_NO_SLICE = ReductionCombiner(0)
"""The pass for a chip of no machine in particular, which joins nothing."""

_MIN_SCRATCH_BYTES = 2**25
"""Least scratch memory with which softmaxes are fused: v2 and v3 have half of it."""


@dataclass(frozen=True, slots=True)
class _Reclassify:
    """Ops whose class the TPU compiler changes: casts of narrow images, softmax."""

    fuse_softmax: SoftmaxFusion

    def __call__(self, flow: Flow) -> Flow:
        """The dataflow graph with these changes."""
        return self.fuse_softmax(store_narrow_images(flow))


def tpu_compiler(
    longest_softmax_row: int = _LONGEST_SOFTMAX_ROW,
    balance: Balance | None = None,
    alignment_bytes: int = 0,
    receives_on_chip: bool = False,
    combine: ReductionCombiner = _NO_SLICE,
) -> Compiler:
    """The passes and policies of the TPU compiler.

    longest_softmax_row: longest row whose softmax is fused into the product that computes
    it, in elements; 0 if no softmax is fused.
    balance: decides whether products recompute an operand; `None` to compare only bytes.
    alignment_bytes: alignment of offsets in main memory; 0 if unknown.
    receives_on_chip: whether collectives may write into scratch memory.
    combine: joins the reduce-scatters that the compiler runs together.
    """
    assign_spaces = MemorySpaceAssignment(receives_on_chip)
    passes = (
        CALL_INLINER,
        Pass("algebraic-simplifier", Stage.OPS, simplify_broadcasts),
        Pass("while-loop-all-reduce-code-motion", Stage.OPS, Rewrite(code_motion)),
        # After code motion: that looks for one collective per accumulator.
        Pass("all-reduce-reassociate", Stage.OPS, Rewrite(reassociate)),
        LAYOUT_ASSIGNMENT,
        Pass("space-to-batch-converter", Stage.LAYOUTS, convert_space_to_batch),
        Pass("bfloat16-propagation", Stage.PRECISION, propagate_bfloat16),
        INSTRUCTION_FUSION,
        OUTPUT_FUSION_WITH_UPDATES,
        Pass("deferred-initialization", Stage.FUSION, FusionRewrite(defer_updates)),
        Pass("all-reduce-combiner", Stage.FUSION, combine),
        MULTI_OUTPUT_FUSION,
        Pass("memory-space-assignment", Stage.MEMORY, assign_spaces),
    )
    fusion = replace(
        XLA_FUSION,
        decide=ProducerFusion(frozenset({UPDATE}), balance),
        aliased_operands=aliased_operands,
        reclassify=_Reclassify(SoftmaxFusion(longest_softmax_row)),
    )
    buffers = BufferPolicy(
        HeapOrder.BY_TIME,
        alignment_bytes,
        compresses_layouts=True,
        body_order=iteration_order,
    )
    return Compiler("tpu", "tpu", _ASYNC_COLLECTIVES, passes, fusion, buffers)


def aliased_operands(root: FusedOp) -> tuple[Value, ...]:
    """Operands whose buffers an all-reduce's or an elementwise result may take."""
    if root.op.kind == "all_reduce":
        return tuple(root.flow.operands[root.op])
    return elementwise_aliases(root) if kind_of(root.op) is FusionKind.LOOP else ()


TPU = tpu_compiler()
"""The TPU compiler for no chip in particular."""


def tpu_compiler_for(machine: Machine) -> Compiler:
    """The TPU compiler for the chips of a machine."""
    chip = machine.chip
    row = int(chip.window_bytes / _WINDOW_BYTES_PER_ELEMENT) or _LONGEST_SOFTMAX_ROW
    if chip.on_chip_bytes < _MIN_SCRATCH_BYTES:
        row = 0
    receives = bool(chip.receives_on_chip)
    return tpu_compiler(
        row, balance_of(chip), _ALIGNMENT_BYTES, receives, combiner_for(machine)
    )
