"""Frameworks that run a program op by op on a GPU, without a compiler.

PyTorch: each module of a net, such as a convolution, a batch norm or an activation, is a
call of a library, which reads its operands from memory and writes its result there. Modules
are known by the scopes of ops (`Source.scope`) and the user's source line, so an op on the
line of its activation counts to it. Within one module XLA's fusion stands for the library's
kernel; across modules nothing is fused.

TensorFlow: each elementwise op is a kernel, so swish has two, a sigmoid and a product.
Norms and softmaxes are modules as above; a norm with the ReLU behind it, also with a sum
between them, is one kernel (`_FusedBatchNormEx`).
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

type Apart = Callable[[Op, Op, Flow], bool]
"""Whether an op and another that reads its result are kernels of their own."""

_NORMALISES = frozenset({"exp", "log1p", "rsqrt"})
"""Kinds of ops by which a module is known as a norm, a softmax or a softplus."""


def is_apart_in_pytorch(producer: Op, consumer: Op, flow: Flow) -> bool:
    """Whether PyTorch has two kernels: for ops of two modules."""
    del flow
    return _module(producer) != _module(consumer)


def is_apart_in_tensorflow(producer: Op, consumer: Op, flow: Flow) -> bool:
    """Whether TensorFlow has two kernels: for elementwise ops of no common library call."""
    is_apart = is_apart_in_pytorch(producer, consumer, flow)
    if not (_is_elementwise(producer) and _is_elementwise(consumer)):
        return is_apart
    if not is_apart and (producer.kind, consumer.kind) == ("max", "min"):
        return False  # relu6
    if _is_norm(producer, flow):
        return is_apart and not (
            _is_relu(consumer, flow) or _is_sum_before_relu(consumer, flow)
        )
    return not (
        _is_sum_before_relu(producer, flow)
        and any(
            each in flow.producers and _is_norm(flow.producers[each], flow)
            for each in flow.operands[producer]
        )
    )


def _is_elementwise(op: Op) -> bool:
    return has_trait(op.kind, Trait.ELEMENTWISE)


def _readers(op: Op, flow: Flow) -> list[Op]:
    return [each for value in op.results for each in flow.consumers.get(value, ())]


def _is_relu(op: Op, flow: Flow) -> bool:
    is_max = op.kind == "max" and any(
        isinstance(a, Literal) and a.value == 0 for a in op.operands
    )
    return is_max and all(each.kind != "min" for each in _readers(op, flow))


def _is_sum_before_relu(op: Op, flow: Flow) -> bool:
    readers = _readers(op, flow)
    return op.kind == "add" and len(readers) == 1 and _is_relu(readers[0], flow)


def _is_norm(op: Op, flow: Flow) -> bool:
    """Whether an op is one of a module that normalises."""
    found, waiting = {op}, [op]
    while waiting:
        each = waiting.pop()
        if each.kind in _NORMALISES:
            return True
        made = [flow.producers[v] for v in flow.operands[each] if v in flow.producers]
        near = {o for o in (*made, *_readers(each, flow)) if _module(o) == _module(op)}
        waiting += near - found
        found |= near
    return False


def _fusion(is_apart: Apart) -> FusionPolicy:
    """The fusion of a framework: a result that another kernel reads is stored."""

    def decided(producer: FusedOp) -> Sequence[Decision]:
        op, _, flow, _ = producer
        return [
            STORED
            if decision is FUSED
            and any(is_apart(op, each, flow) for each in flow.consumers[value])
            else decision
            for value, decision in zip(op.results, decide(producer), strict=True)
        ]

    def chains(flow: Flow) -> Mapping[Value, Op]:
        return {
            value: producer
            for value, producer in flow.chain_links().items()
            if not is_apart(producer, flow.consumers[value][0], flow)
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
