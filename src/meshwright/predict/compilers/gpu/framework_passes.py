"""Frameworks that run a program op by op on a GPU, without a compiler.

Each module of a net, such as a convolution, a batch norm or an activation, is a call of a
library, which reads its operands from memory and writes its result there. Modules are known
by the scopes of ops (`Source.scope`) and the user's source line. Within one module XLA's
fusion stands for the library's kernel; across modules nothing is fused. That is PyTorch,
which has a kernel for each activation. TensorFlow has two for swish, a sigmoid and a
product, and one for a norm or a sum with the ReLU behind it (`tf.nn.swish`, and the op
`_FusedBatchNormEx`).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

from meshwright.predict.compilers.gpu.gpu_passes import GPU_FUSION
from meshwright.predict.compilers.gpu.priority_fusion import decide
from meshwright.predict.compilers.model.compilation import (
    Compilation,
    Compiler,
    Pass,
    Stage,
)
from meshwright.predict.compilers.model.dataflow import Flow
from meshwright.predict.compilers.model.policies import (
    FUSED,
    STORED,
    BufferPolicy,
    Decision,
    FusedOp,
    FusionPolicy,
)
from meshwright.predict.compilers.xla.instruction_fusion import fuse_instructions
from meshwright.predict.compilers.xla.multi_output_fusion import kernels_of
from meshwright.predict.compilers.xla.shared_passes import (
    CALL_INLINER,
    LAYOUT_ASSIGNMENT,
)
from meshwright.program.ir import Literal, Op, Value
from meshwright.program.ops import Trait, has_trait


def is_apart_in_pytorch(producer: Op, consumer: Op) -> bool:
    """Whether PyTorch runs two ops as kernels of their own: those of two modules."""
    return _module(producer) != _module(consumer)


def is_apart_in_tensorflow(producer: Op, consumer: Op) -> bool:
    """Whether TensorFlow runs two ops as kernels of their own.

    A sigmoid is one always; a ReLU is none behind an elementwise op, such as a norm's last.
    """
    if producer.kind == "logistic":
        return True
    if _is_relu(consumer) and has_trait(producer.kind, Trait.ELEMENTWISE):
        return False
    return is_apart_in_pytorch(producer, consumer)


def _is_relu(op: Op) -> bool:
    return op.kind == "max" and any(
        isinstance(a, Literal) and a.value == 0 for a in op.operands
    )


def _fusion(is_apart: Callable[[Op, Op], bool]) -> FusionPolicy:
    """The fusion of a framework: a result that another kernel reads is stored."""

    def decided(producer: FusedOp) -> Sequence[Decision]:
        consumers = producer.flow.consumers
        return [
            STORED
            if decision is FUSED
            and any(is_apart(producer.op, each) for each in consumers[value])
            else decision
            for value, decision in zip(
                producer.op.results, decide(producer), strict=True
            )
        ]

    def chains(flow: Flow) -> Mapping[Value, Op]:
        return {
            value: producer
            for value, producer in flow.chain_links().items()
            if not is_apart(producer, flow.consumers[value][0])
        }

    return replace(GPU_FUSION, decide=decided, single_consumer_chains=chains)


def _module(op: Op) -> Hashable:
    return getattr(op.source, "scope", ()), str(op.source)


def keep_kernels_apart(compilation: Compilation) -> Compilation:
    """The compilation with a kernel for each fusion."""
    program, layouts = compilation.program, compilation.layouts
    fusions = compilation.fusions
    kernels = kernels_of(program, layouts, fusions, is_merged=False)
    return replace(compilation, kernels=kernels)


_PASSES = (
    CALL_INLINER,
    LAYOUT_ASSIGNMENT,
    Pass("module-fusion", Stage.FUSION, fuse_instructions),
    Pass("kernels", Stage.FUSION, keep_kernels_apart),
)

FRAMEWORKS: Mapping[str, Compiler] = {
    name: Compiler(
        name, "", frozenset(), _PASSES, _fusion(is_apart), BufferPolicy(),
    )
    for name, is_apart in {
        "pytorch": is_apart_in_pytorch,
        "tensorflow": is_apart_in_tensorflow,
    }.items()
}  # fmt: skip
"""Each framework, as a compiler that fuses no more than its kernels do."""
