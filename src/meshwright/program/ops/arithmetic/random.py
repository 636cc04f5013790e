"""Factor rules of random numbers: sharding does not change the random bits.

Dims of key arrays can be split in parallel, since each key yields its own bits. For
threefry keys, dims of the result of `random_bits` can be split as well: the bits are a
function of key and global index, and a device computes the bits of its own part. This
requires JAX's setting `jax_threefry_partitionable`, which is on by default.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops.arithmetic.elementwise import broadcasting_rule
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import (
    INT32_MAX,
    Factor,
    RuleFactors,
    leading_dims_rule,
)
from meshwright.program.rules.registry import OpWork, Trait, describe, rule
from meshwright.program.rules.rule import FactorRule, OpCut, opaque_rule

_COUNTING = ("fry", "fry4", "phx2", "phx4")
"""Key types whose bits are a hash of key and index, so that keys are independent."""

_INDEPENDENT = (*_COUNTING, "rbg")
"""Key types whose split and fold-in hash each key on its own.

`rbg` draws bits for a batch of keys from one generator, and `urbg` uses that generator
for splitting as well (`jax.random`).
"""

_WINDOW_TAG = "fry"
"""The key type for which a device can compute its own part of the bits."""


_GENERATORS = ("rbg", "urbg")
"""Key types whose bits come from the compiler's generator, word by word."""

_OPS_A_NUMBER = {
    "fry": 100, "fry4": 200, "phx2": 70, "phx4": 70, **dict.fromkeys(_GENERATORS, 25),
}  # fmt: skip
"""Operations for one random number (Salmon et al., SC 2011), by key type.

A threefry round on two words is an add, a rotation (three operations) and an exclusive or;
a number takes 20 rounds, each on one or two pairs of words. Ten rounds of Philox take 0.7
of threefry's cycles by the TPU compiler's estimate. Outside TPUs the compiler's generator
is Philox on four words, all of which are used; on TPUs memory limits it.
"""


def _work(op: Op) -> OpWork:
    numbers, kind = math.prod(op.results[0].shape), _WINDOW_TAG
    if op.kind == "random_bits":
        kind = _tag(op.operands[0])
        if kind in _GENERATORS:
            numbers = numbers * op.params["bit_width"] // 32
    return OpWork(numbers * _OPS_A_NUMBER.get(kind, _OPS_A_NUMBER[_WINDOW_TAG]))


def _generator_work(op: Op) -> OpWork:
    bits = op.results[1]
    words = math.prod(bits.shape) * np.dtype(bits.dtype).itemsize // 4
    return OpWork(words * _OPS_A_NUMBER["rbg"])


_OWN_KERNEL = (Trait.EXPENSIVE, Trait.STANDALONE)

describe("random_bits", "threefry2x32", traits=_OWN_KERNEL, work=_work)
describe("random_bits_window", traits=(Trait.EXPENSIVE,), work=_work)
describe("rng_bit_generator", traits=_OWN_KERNEL, work=_generator_work)
describe("rng_uniform", traits=(Trait.DRAWS_FROM_STATE,))


def _tag(value: Atom) -> str:
    """The name of a key type: `fry` in the dtype `key<fry>`."""
    return value.dtype.removeprefix("key<").removesuffix(">")


rule("threefry2x32", "random_clone", "random_seed")(broadcasting_rule)


@rule("random_fold_in")
def random_fold_in(op: Op) -> FactorRule:
    """The factor rule of `fold_in`, elementwise if keys are independent.

    If they are not, no dim can be split.
    """
    independent = _tag(op.operands[0]) in _INDEPENDENT
    return broadcasting_rule(op) if independent else leading_dims_rule(op, 0)


@rule("random_split", "random_gamma")
def random_split(op: Op) -> FactorRule:
    """The factor rule of splitting keys, whose dims can be sharded.

    They cannot if keys are not independent of each other.
    """
    keys = op.operands[0]
    return leading_dims_rule(op, len(keys.shape) if _tag(keys) in _INDEPENDENT else 0)


@rule("random_wrap", "random_unwrap")
def random_wrap(op: Op) -> FactorRule:
    """The factor rule of conversions between typed keys and arrays of their words.

    Dims of keys can be sharded; the dim that lists the words of one key cannot.
    """
    return leading_dims_rule(
        op, min(len(op.operands[0].shape), len(op.results[0].shape))
    )


@rule("rng_bit_generator")
def rng_bit_generator(op: Op) -> FactorRule:
    """The factor rule of `rng_bit_generator`, which cannot be partitioned.

    The compiler chooses the order of its bits.
    """
    return opaque_rule(op, "the order of its bits is up to the compiler")


@rule("random_bits")
def random_bits(op: Op) -> FactorRule:
    """The factor rule of `random_bits`: dims of keys can be sharded.

    For threefry keys, the dims that list the bits of one key can be sharded too.
    """
    keys, result = op.operands[0], op.results[0]
    batch = len(keys.shape)
    if _tag(keys) != _WINDOW_TAG:
        return leading_dims_rule(op, batch if _tag(keys) in _COUNTING else 0)
    factors = RuleFactors()
    first = tuple(factors.each(keys.shape))
    made = [factors.one(n) if n <= INT32_MAX else () for n in result.shape[batch:]]
    special = frozenset(f for dim in made for f in dim)
    return factors.rule(
        [first],
        [(*first, *made)],
        special=special,
        expand=partial(_window, made) if special else None,
    )


def _window(
    made: Sequence[Factor],
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """This device's part of the random bits, computed from their global indices."""
    keys = operands[0]
    starts: list[Atom] = []
    local: list[int] = []
    for factors, extent in zip(made, op.params["shape"], strict=True):
        axes = cut.axes[factors[0]] if factors else ()
        size = extent // cut.parts[factors[0]] if axes else extent
        start = builder.literal(0, "int32")
        if axes:
            start = builder.binary("mul", builder.axis_index(axes), size)
        starts.append(start)
        local.append(size)
    bits = builder.emit(
        "random_bits_window",
        (keys, *starts),
        (*keys.shape, *local),
        op.results[0].dtype,
        bit_width=op.params["bit_width"],
        shape=op.params["shape"],
        local_shape=tuple(local),
    )
    return (bits,)
