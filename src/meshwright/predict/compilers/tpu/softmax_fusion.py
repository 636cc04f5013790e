"""Softmaxes that a compiler takes in the pass of the product whose scores they are of.

XLA for TPUs takes the largest of a row, the exponentials of what is left and their sum in
one pass, and stores the exponentials. Where rows are short enough that pass is the
product's own; else the scores are stored before it. It does so to some scores of float32
too, but then as many bytes are stored either way. Here are those where it counts: scores
of a bfloat16 product, widened and scaled or masked. What is only widened each reader takes
from the product; so do several products with scores that come transposed from theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from meshwright.predict.compilers.hlo.dataflow import Flow
from meshwright.predict.compilers.hlo.fusion import FusionKind, transposes_minor_dim
from meshwright.program.ir import Atom, Literal, Op, Value

_BETWEEN = frozenset({"broadcast_in_dim", "max", "transpose"})
"""Ops between the largest of a row and what subtracts it."""

_PLAIN_DIMS = 4
"""Of scores that have no more, of sequences, heads, queries and keys, any order will do."""

_FAR = 3
"""Ops before scores, within which those that are masked twice come of the same."""

_MOST = 8192
"""Elements of a row: 4,096 are taken in one pass, the 32,000 of a vocabulary are not."""


class _Softmax(NamedTuple):
    """Scores, the op that takes the largest of a row, and the exponentials."""

    scores: Value
    largest: Op
    powers: Value
    row: int


@dataclass(frozen=True, slots=True)
class SoftmaxFusion:
    """Fusion of softmaxes with the products that make their scores.

    longest_row: elements of a row whose softmax a product computes in its own kernel;
        of longer rows the scores are stored too. 0 if no softmax is fused.
    """

    longest_row: int

    def __call__(self, flow: Flow) -> Flow:
        """The dataflow with exponentials stored, and row maxima fused as elementwise."""
        softmaxes = list(_softmaxes(flow)) if self.longest_row else []
        if not softmaxes:
            return flow
        stored = {*flow.stored, *(softmax.powers for softmax in softmaxes)}
        stored.update(s.scores for s in softmaxes if s.row > self.longest_row)
        maxima = dict.fromkeys((s.largest for s in softmaxes), FusionKind.LOOP)
        return replace(flow, stored=stored, kinds={**flow.kinds, **maxima})


def _softmaxes(flow: Flow) -> Iterator[_Softmax]:
    """Those that are taken so."""
    for op, kind in flow.kinds.items():
        if kind is not FusionKind.REDUCTION or op.kind != "reduce_max":
            continue
        scores = flow.operand(op, 0)
        row = 0 if scores is None else _row(op, scores)
        if scores is None or not 0 < row <= _MOST:
            continue
        powers = _powers(op, scores, flow)
        if powers is not None and _is_of_16_bits(scores, powers, flow):
            yield _Softmax(scores, op, powers, row)


def _row(op: Op, scores: Value) -> int:
    """Elements of a row that an op reduces; 0 where those of several dims are one."""
    axes = cast("tuple[int, ...]", op.params["axes"])
    return scores.shape[axes[0]] if len(axes) == 1 else 0


def _powers(largest: Op, scores: Value, flow: Flow) -> Value | None:
    """The exponentials of scores less the largest of each row, if that is taken of them."""
    left = _only_reader(largest.results[0], flow)
    while left is not None and left.kind in _BETWEEN:
        left = _only_reader(left.results[0], flow)
    if left is None or left.kind != "sub":
        return None
    if not _is_same(flow.operands[left][0], scores, flow):
        return None
    power = _only_reader(left.results[0], flow)
    return power.results[0] if power is not None and power.kind == "exp" else None


def _is_same(one: Atom, other: Atom, flow: Flow, far: int = _FAR) -> bool:
    """Whether atoms are one, or made alike of the same, dims in whatever order."""
    one, other = _unturned(one, flow), _unturned(other, flow)
    if isinstance(one, Literal) or isinstance(other, Literal):
        return str(one) == str(other)
    first, second = flow.producers.get(one), flow.producers.get(other)
    if one is other or first is None or second is None or not far:
        return one is other
    pairs = zip(first.operands, second.operands, strict=False)
    return (
        first.kind == second.kind
        and flow.kinds[first] is FusionKind.LOOP
        and all(_is_same(a, b, flow, far - 1) for a, b in pairs)
    )


def _unturned(atom: Atom, flow: Flow) -> Atom:
    """What an atom is the transpose of, if of anything."""
    maker = flow.producers.get(atom) if isinstance(atom, Value) else None
    if maker is None or maker.kind != "transpose":
        return atom
    return _unturned(flow.operands[maker][0], flow)


def _only_reader(value: Value, flow: Flow) -> Op | None:
    found = flow.consumers.get(value, ())
    return found[0] if len(found) == 1 else None


def _is_of_16_bits(scores: Value, powers: Value, flow: Flow) -> bool:
    """Whether float32 scores are made of one bfloat16 product, and are not just that."""
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
        if transposes_minor_dim(op) and not _is_laid_anew(op, powers, flow):
            return False
        made = [v for v in flow.operands[op] if v in flow.producers and v not in seen]
        large = [v for v in made if math.prod(v.shape) >= size]
        waiting += large
        seen.update(large)
    return [flow.kinds[op] for op in made_by] == [FusionKind.PRODUCT] and all(
        operand.dtype == "bfloat16" for op in made_by for operand in op.operands
    )


def _is_laid_anew(transpose: Op, powers: Value, flow: Flow) -> bool:
    """Whether a product rather makes the scores as its only reader wants them.

    That is so of several sequences with heads that share keys, in a pass that is not
    derived: sequences, keys, heads of each, queries and keys are five dims.
    """
    num_dims = sum(n > 1 for n in transpose.results[0].shape)
    return num_dims > _PLAIN_DIMS and _num_products(powers, flow) == 1


def _num_products(value: Value, flow: Flow) -> int:
    """Products that read what elementwise ops make of a value."""
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
