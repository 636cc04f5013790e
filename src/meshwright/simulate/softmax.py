"""Softmaxes that a compiler takes in the pass of the product whose scores they are of.

XLA for TPUs takes the largest of a row, the exponentials of what is left and their sum in
one pass, and stores the exponentials in the place of the scores. It does so to some scores
of float32 too, but then as many bytes are stored either way. Here are those where it
counts: scores of a bfloat16 product, widened and scaled or masked. What is only widened
each reader takes from the product; so are scores that come transposed from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshwright.ir import Op, Value
from meshwright.simulate.flow import Flow
from meshwright.simulate.unit import Kind, moves_last

_BETWEEN = frozenset({"broadcast_in_dim", "max", "stop_gradient"})
"""Ops between the largest of a row and what subtracts it."""

_MOST = 8192
"""Elements of a row: 4,096 are taken in one pass, the 32,000 of a vocabulary are not."""


def join_softmaxes(flow: Flow) -> None:
    """Have exponentials stored, and the largest of a row taken by what makes them."""
    for powers, largest in list(_exponentials(flow)):
        flow.stored.add(powers)
        flow.kinds[largest] = Kind.LOOP


def _exponentials(flow: Flow) -> Iterator[tuple[Value, Op]]:
    """The exponentials of each such softmax, and the op that takes the largest of a row."""
    for op, kind in flow.kinds.items():
        if kind is not Kind.REDUCTION or op.kind != "reduce_max":
            continue
        scores = flow.operand(op, 0)
        if scores is None or not _is_of_rows(op, scores, flow):
            continue
        left = _only_reader(op.results[0], flow)
        while left is not None and left.kind in _BETWEEN:
            left = _only_reader(left.results[0], flow)
        if left is None or left.kind != "sub" or flow.operands[left][0] is not scores:
            continue
        power = _only_reader(left.results[0], flow)
        if power is not None and power.kind == "exp":
            yield power.results[0], op


def _only_reader(value: Value, flow: Flow) -> Op | None:
    found = flow.readers.get(value, ())
    return found[0] if len(found) == 1 else None


def _is_of_rows(op: Op, scores: Value, flow: Flow) -> bool:
    """Whether an op takes the largest of each row of scores that are not too many."""
    axes, last = op.params.get("axes"), len(scores.shape) - 1
    return (
        axes == (last,) and scores.shape[-1] <= _MOST and _is_of_16_bits(scores, flow)
    )


def _is_of_16_bits(scores: Value, flow: Flow) -> bool:
    """Whether float32 scores are made of one bfloat16 product, and are not just that."""
    last = flow.maker.get(scores)
    if scores.dtype != "float32" or last is None or last.kind == "convert_element_type":
        return False
    size = math.prod(scores.shape)
    waiting, found = [scores], set[Value]()
    while waiting:
        value = waiting.pop()
        op = flow.maker.get(value)
        if op is None or math.prod(value.shape) < size:
            continue
        if flow.kinds[op] is not Kind.LOOP:
            found.add(value)
        elif moves_last(op):
            return False
        else:
            waiting += flow.operands[op]
    kinds = {flow.kinds[flow.maker[value]] for value in found}
    return [value.dtype for value in found] == ["bfloat16"] and kinds == {Kind.PRODUCT}
