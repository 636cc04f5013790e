"""Softmax fusion: softmaxes that are computed in the kernel that computes their scores.

XLA for TPUs computes the maximum of a row, the exponentials of the differences and
their sum in one kernel, and stores the exponentials. If rows are short, this is the
kernel of the product that computes the scores; otherwise the scores are stored first.
This pass finds scores of a bfloat16 product that are converted to float32 and scaled or
masked. Scores that are only converted are read from the product by each consumer; so
are transposed scores if several products read the exponentials. The compiler also fuses
some float32 softmaxes; the bytes that it stores are the same either way.
"""

import math
from dataclasses import dataclass, replace
from typing import cast

from meshwright.predict.compilers.model.dataflow import Flow
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.program.ir import Atom, Literal, Op, Value

_BEFORE_SUBTRACTION = frozenset({"broadcast_in_dim", "max", "transpose"})
"""Ops between the maximum of a row and its subtraction."""

_PLAIN_DIMS = 4
"""Scores with at most this many dims (sequences, heads, queries, keys) are written in
any order."""

_MAX_STEPS = 3
"""Largest number of ops before two scores within which they may come from one value."""

_MAX_ROW = 8192
"""Longest row whose softmax is fused, in elements: rows of 4,096 are, the 32,000 of a
vocabulary are not."""


@dataclass(frozen=True, slots=True)
class SoftmaxFusion:
    """Fusion of softmaxes with the products that compute their scores.

    longest_row: longest row, in elements, whose softmax a product computes in its own
        kernel; with longer rows the scores are stored, too. 0 if no softmax is fused.
    """

    longest_row: int

    def __call__(self, flow: Flow) -> Flow:
        """Mark exponentials of fused softmaxes as stored, and row maxima as elementwise."""
        stored, maxima = set[Value](), dict[Op, FusionKind]()
        for op in flow.kinds if self.longest_row else ():
            scores = flow.operand(op, 0) if op.kind == "reduce_max" else None
            row = 0 if scores is None else _row(op)
            if scores is None or not 0 < row <= _MAX_ROW:
                continue
            exponentials = _exponentials_of(op, scores, flow)
            if exponentials is None or not _is_of_16_bits(scores, exponentials, flow):
                continue
            maxima[op] = FusionKind.LOOP
            stored.add(exponentials)
            if row > self.longest_row:
                stored.add(scores)
        if not maxima:
            return flow
        kinds = {**flow.kinds, **maxima}
        return replace(flow, stored=stored.union(flow.stored), kinds=kinds)


def _row(op: Op) -> int:
    """The number of elements that an op reduces to one; 0 if it reduces several dims."""
    axes = cast("tuple[int, ...]", op.params["axes"])
    return op.operands[0].shape[axes[0]] if len(axes) == 1 else 0


def _exponentials_of(maximum: Op, scores: Value, flow: Flow) -> Value | None:
    """The exponentials of scores minus the maximum of each row, if there are any."""
    left = _only_reader(maximum, flow)
    while left is not None and left.kind in _BEFORE_SUBTRACTION:
        left = _only_reader(left, flow)
    if left is None or left.kind != "sub":
        return None
    if not _is_same(flow.operands[left][0], scores, flow):
        return None
    power = _only_reader(left, flow)
    return power.results[0] if power is not None and power.kind == "exp" else None


def _is_same(one: Atom, other: Atom, flow: Flow, steps: int = _MAX_STEPS) -> bool:
    """Whether two values have equal elements, up to transposes.

    They are one value, or elementwise ops computed them in the same way, in at most `steps`
    ops, from one value.
    """
    one, other = _untransposed(one, flow), _untransposed(other, flow)
    if isinstance(one, Literal) or isinstance(other, Literal):
        return str(one) == str(other)
    first, second = flow.producers.get(one), flow.producers.get(other)
    if one is other or first is None or second is None or not steps:
        return one is other
    pairs = zip(first.operands, second.operands, strict=False)
    return (
        first.kind == second.kind
        and flow.kinds[first] is FusionKind.LOOP
        and all(_is_same(a, b, flow, steps - 1) for a, b in pairs)
    )


def _untransposed(atom: Atom, flow: Flow) -> Atom:
    """The value before one or several transposes; the value itself without any."""
    maker = flow.producers.get(atom) if isinstance(atom, Value) else None
    if maker is None or maker.kind != "transpose":
        return atom
    return _untransposed(flow.operands[maker][0], flow)


def _only_reader(op: Op, flow: Flow) -> Op | None:
    found = flow.consumers.get(op.results[0], ())
    return found[0] if len(found) == 1 else None


def _is_of_16_bits(scores: Value, exponentials: Value, flow: Flow) -> bool:
    """Whether float32 scores are computed from one product of bfloat16 operands.

    At least one op other than a cast lies in between.
    """
    last = flow.producers.get(scores)
    if scores.dtype != "float32" or last is None or last.kind == "convert_element_type":
        return False
    size = math.prod(scores.shape)
    waiting, seen, made_by = [scores], {scores}, list[Op]()
    while waiting:
        op = flow.producers[waiting.pop()]
        if flow.kinds[op] is not FusionKind.LOOP:
            made_by.append(op)
            continue
        if op.kind == "transpose" and not _is_written_so(op, exponentials, flow):
            return False
        made = [v for v in flow.operands[op] if v in flow.producers and v not in seen]
        large = [v for v in made if math.prod(v.shape) >= size]
        waiting += large
        seen.update(large)
    return [flow.kinds[op] for op in made_by] == [FusionKind.PRODUCT] and all(
        operand.dtype == "bfloat16" for op in made_by for operand in op.operands
    )


def _is_written_so(transpose: Op, exponentials: Value, flow: Flow) -> bool:
    """Whether the product can write transposed scores in the order that the softmax reads.

    It can if the last dim stays last, or if a single product reads the exponentials
    and scores have five dims: sequences, key heads, query heads of each, queries and
    keys, as in the forward pass of grouped-query attention.
    """
    permutation = cast("tuple[int, ...]", transpose.params["permutation"])
    if permutation[-1] == len(permutation) - 1:
        return True
    num_dims = sum(n > 1 for n in transpose.results[0].shape)
    return num_dims > _PLAIN_DIMS and _num_products(exponentials, flow) == 1


def _num_products(value: Value, flow: Flow) -> int:
    """The number of products that read a value, directly or through elementwise ops."""
    waiting, seen, found = [value], {value}, set[Op]()
    while waiting:
        for op in flow.consumers.get(waiting.pop(), ()):
            if flow.kinds[op] is FusionKind.PRODUCT:
                found.add(op)
            elif flow.kinds[op] is FusionKind.LOOP:
                new = [v for v in op.results if v not in seen]
                waiting += new
                seen.update(new)
    return len(found)
