"""Fusion decisions of XLA's CPU compiler: recomputed results, and library calls.

Products, convolutions and large reductions are library calls (YNNPACK, Eigen): they
read their operands from memory, in one order of dims, and write their results. All
other ops are fused into loops. Consumers recompute an op if it reads no more bytes than
its result has, or if no consumer needs the result in memory (XLA's `InstructionFusion`,
`CpuInstructionFusion` and `LibraryRewriter`; jaxlib 0.12).
"""

import math
from collections.abc import Collection, Sequence

from meshwright.predict.compilers.cpu.library_rewriter import reads_through
from meshwright.predict.compilers.model.dataflow import Flow, stacked_ends
from meshwright.predict.compilers.model.fusion import FusionKind, kind_of
from meshwright.predict.compilers.model.policies import Decision, FusedOp, FusionPolicy
from meshwright.predict.compilers.xla.instruction_fusion import elementwise_aliases
from meshwright.program.ir import Atom, Op, Value, itemsize_bytes
from meshwright.program.ops import Trait, has_trait

_EXPENSIVE = frozenset(
    {
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cosh",
        "digamma", "div", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "gather",
        "lgamma", "log", "log1p", "logistic", "pow", "rem", "rsqrt", "sinh", "sqrt",
        "tan", "tanh",
    }
)  # fmt: skip
"""Kinds of ops that are computed only once, even if several ops read the result."""

_LIBRARY_REDUCTIONS = frozenset({"reduce_max", "reduce_min", "reduce_sum"})

_LIBRARY_OPS = frozenset(
    {
        "abs", "add", "add_any", "broadcast_in_dim", "ceil", "convert_element_type",
        "cos", "div", "erf", "exp", "expm1", "floor", "integer_pow", "iota", "log",
        "log1p", "logistic", "max", "min", "mul", "neg", "pad", "pow", "rsqrt", "sign",
        "sin", "sqrt", "square", "sub", "tan", "tanh", "transpose",
    }
)  # fmt: skip
"""Kinds of ops on floats that a library's reduction can compute in the same call."""

_MIN_LIBRARY_ELEMENTS = 4096
"""Smallest number of operand elements with which a library computes a reduction."""

_MIN_ROW_BYTES, _MIN_JOINED_BYTES = 64, 2048
"""Least bytes of a row, and in total, of a concatenation that is a loop of its own."""

_MAX_JOINED_OPERANDS = 8


def decide(producer: FusedOp) -> list[Decision]:
    """For each result of an op, whether it is stored, recomputed by consumers, or both.

    producer: the op, together with the producers that are already fused into it.
    """
    op, producers, flow, _ = producer
    found: list[Decision] = []
    for value in op.results:
        consumers = flow.consumers.get(value, ())
        fusing = _fusing_consumers(op, consumers, producers.ops, flow)
        is_stored = value in flow.stored or len(fusing) < len(consumers)
        found.append(Decision(is_stored, bool(fusing), frozenset(fusing)))
    return found


def stack_outputs(op: Op) -> set[Value]:
    """Outputs of a loop's bodies that are written directly into the stacked result.

    They are outputs that the loop stacks over its iterations, that a fusible op
    computes, and that no other op of the body reads.
    """
    return {
        end
        for body, end in stacked_ends(op)
        if not any(end in each.operands for each in body.ops)
        and all(is_loop(each) for each in body.ops if end in each.results)
    }


CPU_FUSION = FusionPolicy(
    decide=decide,
    single_consumer_chains=lambda flow: {},
    aliased_operands=elementwise_aliases,
    carried_operands=lambda op, flow: {},  # results of loops have buffers of their own
    stack_outputs=stack_outputs,
    slice_readers=frozenset({FusionKind.LOOP}),
)


def is_loop(op: Op) -> bool:
    """Whether an op can be fused with consumers or operands into one loop.

    A loop fusion computes its result element by element (XLA: kLoop).
    """
    if has_trait(op.kind, Trait.SCATTERS) or op.kind == "concatenate":
        return op.kind == "concatenate" and not _joins_rows(op)
    is_indexed = op.kind in {"gather", "dynamic_update_slice"}
    return is_indexed or kind_of(op) is FusionKind.LOOP


def _reads_no_more(op: Op, flow: Flow) -> bool:
    """Whether an op is cheap to recompute: it reads no more elements than it makes.

    An op with at most one large operand also qualifies. An operand is large if it has
    at least as many dims longer than 1 as the result; broadcasts of smaller values are
    not.
    """
    operands, producers = flow.operands[op], flow.producers
    (result, *_) = op.results
    read = sum(math.prod(v.shape) for v in dict.fromkeys(operands))
    if read <= math.prod(result.shape):
        return True
    large = (
        v
        for v in operands
        if v not in producers or not has_trait(producers[v].kind, Trait.REPEATS)
    )
    return sum(_rank(v) >= _rank(result) for v in large) <= 1


def _rank(value: Value) -> int:
    """The number of dims of a value that have more than one element."""
    return sum(n > 1 for n in value.shape)


def _fusing_consumers(
    op: Op, consumers: Sequence[Op], producers: Collection[Op], flow: Flow
) -> tuple[Op, ...]:
    """The consumers of an op's result that recompute the op in their own fusions.

    producers: ops that are already fused into the op.
    """
    if not is_loop(op) or op.kind == "dynamic_update_slice":
        return ()
    if op.kind in _EXPENSIVE and len(consumers) > 1:
        return ()
    is_library = len(consumers) == 1 and _is_for_library(op, producers, flow)
    found = tuple(c for c in consumers if _fuses(c, op, is_library))
    is_whole = len(found) == len(consumers)
    return found if is_whole or _reads_no_more(op, flow) else ()


def _is_for_library(op: Op, producers: Collection[Op], flow: Flow) -> bool:
    """Whether one library call can compute an op together with its large producers.

    A producer is large if it has at least as many elements as the op. The library call
    is impossible if an op outside the fusion reads the result of a large producer.
    """
    size, fused = math.prod(op.results[0].shape), {op, *producers}
    large = [
        r for each in producers for r in each.results if math.prod(r.shape) >= size
    ]
    if not all(fused.issuperset(flow.consumers.get(r, ())) for r in large):
        return False
    return all(
        each.kind in _LIBRARY_OPS and _is_float(each.results[0])
        for each in (op, *producers)
        if math.prod(each.results[0].shape) >= size
    )


def _fuses(consumer: Op, op: Op, is_library: bool) -> bool:
    """Whether a consumer recomputes an op that it reads.

    is_library: whether a library call could compute the op within a reduction.
    """
    if kind_of(consumer) is FusionKind.REDUCTION:
        return is_library or not _is_library_reduction(consumer)
    if consumer.kind == "broadcast_in_dim" and op.kind in _EXPENSIVE:
        return False
    if consumer.kind == "dynamic_update_slice":
        return consumer.operands[0] is not op.results[0]
    if kind_of(consumer) is FusionKind.PRODUCT:
        return reads_through(consumer, op)
    return is_loop(consumer)


def _is_library_reduction(op: Op) -> bool:
    operand = op.operands[0]
    return (
        op.kind in _LIBRARY_REDUCTIONS
        and _is_float(operand)
        and math.prod(operand.shape) >= _MIN_LIBRARY_ELEMENTS
    )


def _is_float(atom: Atom) -> bool:
    return atom.dtype in {"bfloat16", "float32", "float64"}


def _joins_rows(op: Op) -> bool:
    """Whether a concatenation is not fused: it joins long rows or many operands.

    Such a concatenation is a loop of its own.
    """
    (result,) = op.results
    minor, size = len(result.shape) - 1, itemsize_bytes(result.dtype)
    return len(op.operands) > _MAX_JOINED_OPERANDS or (
        minor > 0
        and op.params.get("dimension") == minor
        and result.shape[minor] * size >= _MIN_ROW_BYTES
        and math.prod(result.shape) * size >= _MIN_JOINED_BYTES
    )
