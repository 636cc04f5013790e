"""What XLA's CPU compiler computes on the fly, and what it calls a library for.

Products, convolutions and large reductions are library calls (YNNPACK, Eigen): they read
their operands from memory, in one order of dims, and write what they make. All else is
fused into loops, where an op is computed again by its readers if that reads no more, or
if none is left that needs it stored (XLA's `InstructionFusion`, `CpuInstructionFusion`
and `LibraryRewriter`; jaxlib 0.12).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from meshwright.predict.compilers.cpu.library_operands import reads_through
from meshwright.predict.compilers.xla.fusion import FusionKind, kind_of
from meshwright.program.ir import Atom, Op, Value, itemsize_bytes
from meshwright.program.ops import Trait, has_trait, ops_with

_EXPENSIVE = frozenset(
    {
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cosh",
        "digamma", "div", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "gather",
        "lgamma", "log", "log1p", "logistic", "pow", "rem", "rsqrt", "sinh", "sqrt",
        "tan", "tanh",
    }
)  # fmt: skip
"""Ops that are computed once, however many read them."""

_OUT_OF_STEP = frozenset(
    {*ops_with(Trait.MOVES), *ops_with(Trait.SCATTERS), "copy_p", "iota"}
    - {"stack", "tile", "unstack"}  # not seen compiled
)
"""Ops that are fused into loops, but not element by element."""

_LIBRARY_REDUCTIONS = frozenset({"reduce_max", "reduce_min", "reduce_sum"})

_LIBRARY_OPS = frozenset(
    {
        "abs", "add", "add_any", "broadcast_in_dim", "ceil", "convert_element_type",
        "cos", "div", "erf", "exp", "expm1", "floor", "integer_pow", "iota", "log",
        "log1p", "logistic", "max", "min", "mul", "neg", "pad", "pow", "rsqrt", "sign",
        "sin", "sqrt", "square", "sub", "tan", "tanh", "transpose",
    }
)  # fmt: skip
"""What a library's reduction computes itself, for floats."""

_LARGE = 4096
"""Elements from which a reduction is the library's."""

_ROW, _WHOLE = 64, 2048
"""Bytes along the minor dim, and in all, from which what joins there is a loop alone."""


def is_loop(op: Op) -> bool:
    """Whether an op is fused into loops, by its readers or with what it reads."""
    if has_trait(op.kind, Trait.SCATTERS) or op.kind == "concatenate":
        return op.kind == "concatenate" and not _joins_rows(op)
    return kind_of(op) is FusionKind.LOOP or op.kind in {
        "gather",
        "dynamic_update_slice",
    }


def is_elementwise(op: Op) -> bool:
    """Whether each element of the result needs those at its place alone."""
    return op.kind not in _OUT_OF_STEP and kind_of(op) is FusionKind.LOOP


def in_step(
    values: Collection[Value], chain: Sequence[tuple[Op, Sequence[Value]]]
) -> tuple[Value, ...]:
    """Those values in whose place can be written what a chain of ops makes of them.

    chain: ops with the values that they read, in order; the last one writes.
    """
    last = chain[-1][0]
    if not last.results:  # an effect
        return ()
    shape, size = last.results[0].shape, itemsize_bytes(last.results[0].dtype)
    alike = [v for v in values if v.shape == shape and itemsize_bytes(v.dtype) == size]
    if not alike or not is_elementwise(last):
        return ()
    spoilt: set[Value] = set()  # some element of it is needed at another's place
    for op, operands in reversed(chain):
        is_far = op.results[0].shape != shape or not is_elementwise(op)
        if is_far or not spoilt.isdisjoint(op.results):
            spoilt.update(operands)
    return tuple([v for v in alike if v not in spoilt])


def is_unary(op: Op, operands: Sequence[Value], repeated: Collection[Value]) -> bool:
    """Whether an op reads one large operand, or no more than it makes.

    repeated: operands that only repeat what is smaller.
    """
    (result, *_) = op.results
    read = sum(math.prod(v.shape) for v in dict.fromkeys(operands))
    if read <= math.prod(result.shape):
        return True
    large = (v for v in operands if v not in repeated)
    return sum(_rank(v) >= _rank(result) for v in large) <= 1


def _rank(value: Value) -> int:
    """Dims that are more than one long."""
    return sum(n > 1 for n in value.shape)


def takers(
    op: Op, used_by: Sequence[Op], within: Collection[Op] | None, is_unary: bool
) -> tuple[Op, ...]:
    """Those of the readers of what an op makes that compute it themselves.

    within: what the op computes on the fly, None if others read some of that too.
    is_unary: whether to compute the result reads no more than it.
    """
    if not is_loop(op) or op.kind == "dynamic_update_slice":
        return ()
    if op.kind in _EXPENSIVE and len(used_by) > 1:
        return ()
    alone = within is not None and len(used_by) == 1 and _is_for_library(op, within)
    found = tuple(r for r in used_by if _takes_in(r, op, alone))
    return found if is_unary or len(found) == len(used_by) else ()


def _is_for_library(op: Op, within: Collection[Op]) -> bool:
    """Whether a library computes all that is as large as the result."""
    size = math.prod(op.results[0].shape)
    return all(
        each.kind in _LIBRARY_OPS and _is_float(each.results[0])
        for each in (op, *within)
        if math.prod(each.results[0].shape) >= size
    )


def _takes_in(reader: Op, op: Op, alone: bool) -> bool:
    if kind_of(reader) is FusionKind.REDUCTION:
        return alone or not _is_library_reduction(reader)
    if reader.kind == "broadcast_in_dim" and op.kind in _EXPENSIVE:
        return False
    if reader.kind == "dynamic_update_slice":
        return reader.operands[0] is not op.results[0]
    if kind_of(reader) is FusionKind.PRODUCT:
        return op.kind == "transpose" and reads_through(reader, op)
    return is_loop(reader)


def _is_library_reduction(op: Op) -> bool:
    operand = op.operands[0]
    return (
        op.kind in _LIBRARY_REDUCTIONS
        and _is_float(operand)
        and math.prod(operand.shape) >= _LARGE
    )


def _is_float(atom: Atom) -> bool:
    return atom.dtype in {"bfloat16", "float32", "float64"}


def _joins_rows(op: Op) -> bool:
    """Whether a concatenation joins long rows: that is a loop of its own."""
    (result,) = op.results
    minor, size = len(result.shape) - 1, itemsize_bytes(result.dtype)
    return len(op.operands) > 8 or (
        minor > 0
        and op.params.get("dimension") == minor
        and result.shape[minor] * size >= _ROW
        and math.prod(result.shape) * size >= _WHOLE
    )
