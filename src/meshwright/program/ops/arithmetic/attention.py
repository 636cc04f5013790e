"""Fused attention of cuDNN: batch and heads can be split, and no score is in memory.

`jax.nn.dot_product_attention(implementation="cudnn")` calls these primitives. The kernel
computes the scores block by block, and keeps the sums of a row's exponentials as a
logarithm, from which the backward pass computes the scores again (Dao, "FlashAttention-2",
2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

from meshwright.program.ir import Op, Value
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import Factor, RuleFactors, local_shape, no_dims
from meshwright.program.rules.registry import OpWork, Trait, rule
from meshwright.program.rules.rule import Dims, FactorRule, OpCut, opaque_rule

FORWARD = "dot_product_attention_fwd_wrapper"
BACKWARD = "dot_product_attention_bwd_wrapper"

BLOCK = 128
"""Queries, and keys, of one block of scores. A block that the mask hides is skipped; the
others are computed whole. FlashAttention-2 and cuDNN take 64 to 256 (Dao, 2023)."""

_QUERY, _KEY, _VALUE, _BIAS = range(4)
_LENGTHS, _OFFSETS, _PAGES = (4, 5), (6, 7), (8, 9)
_NUM_OPERANDS = 10
_BNTH = 1


@dataclass(frozen=True)
class Attention:
    """The extents of one call of cuDNN's attention, read from an op of either kind."""

    op: Op

    @property
    def is_backward(self) -> bool:
        """Whether the op computes gradients."""
        return self.op.kind == BACKWARD

    @cached_property
    def order(self) -> tuple[int, int]:
        """The positions of the dims of heads and of the sequence."""
        return (1, 2) if self.op.params["layout"] == _BNTH else (2, 1)

    @property
    def heads(self) -> tuple[int, int]:
        """The numbers of query heads and of key heads."""
        head, _ = self.order
        query, key = self.op.operands[_QUERY], self.op.operands[_KEY]
        return query.shape[head], key.shape[head]

    @property
    def has_bias(self) -> bool:
        """Whether a bias is added to the scores."""
        return self.op.params["variadic_args"][0]

    @property
    def why_whole(self) -> str:
        """The reason why the call cannot be split; "" if it can."""
        params, operands = self.op.params, self.op.operands
        if params["dropout_rate"] > 0:
            return "its dropout depends on the position within the device's part"
        if params.get("score_mod") is not None:
            return "it calls a function on scores, by their position"
        if any(len(operands[i].shape) == 4 for i in _PAGES):
            return "its keys and values are in pages"
        if len(operands[_OFFSETS[0]].shape) == 2:
            return "its segments are packed across the batch"
        return ""

    @property
    def scores(self) -> int:
        """The number of scores that the kernel computes, in all heads and sequences."""
        query, key = self.op.operands[_QUERY].shape, self.op.operands[_KEY].shape
        _, sequence = self.order
        params: Any = self.op.params
        is_causal = "CAUSAL" in params["mask_type"].name
        window = params["sliding_window_length"] or 0
        pairs = _visible(query[sequence], key[sequence], is_causal, window)
        return query[0] * self.heads[0] * pairs


@lru_cache(maxsize=256)
def _visible(queries: int, keys: int, is_causal: bool, window: int) -> int:
    """The pairs of a query and a key in the blocks of scores that the mask leaves.

    window: number of keys up to a query's own position that it sees; 0 if all.
    """
    if not is_causal and not window:
        return queries * keys
    pairs = 0
    for first in range(0, queries, BLOCK):
        last = min(first + BLOCK, queries)
        end = min(-(-last // BLOCK) * BLOCK, keys)
        start = max(first - window + 1, 0) // BLOCK * BLOCK if window else 0
        pairs += (last - first) * max(end - start, 0)
    return pairs


def _work(op: Op) -> OpWork:
    """The work of a call: two operations per element of each product of a score.

    Forward there are two products (scores, and their sum over values), backward five:
    the scores again, and one for each gradient of scores, queries, keys and values.
    Masked blocks are left out. Sequence lengths are values, and count as full.
    """
    call = Attention(op)
    of_query, of_value = op.operands[_QUERY].shape[3], op.operands[_VALUE].shape[3]
    products = 3 * of_query + 2 * of_value if call.is_backward else of_query + of_value
    return OpWork(2 * call.scores * products, call.scores)


@rule(FORWARD, BACKWARD, traits=(Trait.STANDALONE, Trait.EXPENSIVE), work=_work)
def attention(op: Op) -> FactorRule:
    """The factor rule `bt(kg)h,bskh,bskh->bt(kg)h` of fused attention.

    Letters that can be split are the batch b, the key heads k and the query heads g of
    each. Sequences and the dim of a head stay whole.
    """
    call = Attention(op)
    if call.why_whole:
        return opaque_rule(op, call.why_whole)
    factors = RuleFactors()
    heads, key_heads = call.heads
    batch = factors.one(op.operands[_QUERY].shape[0])
    shared = factors.one(key_heads)
    group = factors.one(heads // key_heads) if heads > key_heads else ()
    queries = _dims(call, batch, shared + group)
    keys = _dims(call, batch, shared)
    bias = _bias_dims(op, batch, shared + group)
    operands = [queries, keys, keys, bias]
    for operand in op.operands[4:_NUM_OPERANDS]:
        has_batch = len(operand.shape) == 1 and operand.shape[0] > 0
        operands.append((batch,) if has_batch else no_dims(operand))
    statistics: Dims = (batch, shared + group, ())
    if not call.is_backward:
        results = [queries, statistics][: len(op.results)]
        return factors.rule(operands, results)
    operands += [statistics, queries, queries]
    results = [queries, keys, keys, bias][: len(op.results)]
    summed = frozenset(
        f for dims in results for f in _missing((batch, shared, group), dims)
    )
    return factors.rule(
        operands, results, special=summed, expand=partial(_sum_gradients, results)
    )


def _dims(call: Attention, batch: Factor, heads: Factor) -> Dims:
    """The factors of queries or keys, whose sequence and last dim stay whole."""
    return (batch, heads, (), ()) if call.order == (1, 2) else (batch, (), heads, ())


def _bias_dims(op: Op, batch: Factor, heads: Factor) -> Dims:
    """The factors of the bias, whose batch and heads may be 1, which is broadcast."""
    bias, call = op.operands[_BIAS], Attention(op)
    if not call.has_bias:
        return no_dims(bias)
    sequences, num_heads, *_ = bias.shape
    whole = op.operands[_QUERY].shape[0]
    return (
        batch if sequences == whole else (),
        heads if num_heads == call.heads[0] else (),
        (),
        (),
    )


def _missing(factors: Sequence[Factor], dims: Dims) -> list[int]:
    """Factors over which a gradient is a sum, since its dims lack them."""
    present = {f for fs in dims for f in fs}
    return [f for fs in factors for f in fs if f not in present]


def _sum_gradients(
    results: Sequence[Dims],
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """The local gradients, each summed over the devices that have addends of it."""
    shapes = [
        local_shape(value.shape, dims, cut)
        for value, dims in zip(op.results, results, strict=True)
    ]
    local = builder.apply(op, operands, shapes)
    every = [(f,) for f in range(len(cut.axes))]
    summed: list[Value] = []
    for value, dims in zip(local, results, strict=True):
        axes = tuple(a for f in _missing(every, dims) for a in cut.axes[f])
        summed.append(builder.all_reduce(value, axes) if axes else value)
    return tuple(summed)
