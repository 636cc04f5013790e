from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random

import meshwright as mw
from meshwright.machine import Mesh
from meshwright.predict.roofline.work import program_work
from meshwright.program.ir import Value
from meshwright.program.ops import Builder, OpCut, rule_of
from tests.program.ops.catalogue import Example
from tests.program.ops.catalogue.random import RAW, SAMPLERS
from tests.program.ops.letters import f32, last_op, letters, rule_for
from tests.program.ops.test_numbers import assert_same_numbers

WIDE = ("threefry4x32", "philox4x32") if jax.__version_info__ >= (0, 10, 2) else ()
"""Random generators with blocks of four words, which newer releases of JAX have."""


def keys(shape=(), impl="threefry2x32"):
    return random.split(random.key(0, impl=impl), shape)


def _bits(batch, shape, impl="threefry2x32"):
    fn = partial(random.bits, shape=shape)
    for _ in batch:
        fn = jax.vmap(fn)
    return last_op(fn, keys(batch, impl))


def program_of(fn, *args):
    return mw.partition(fn, {"a": 1}).decide(*args).captured.program


def _generator(words):
    return lax.rng_bit_generator(words, (4, 2))


@pytest.mark.parametrize(
    ("impl", "expected"),
    [
        ("threefry2x32", "ab->abcd"),
        *((impl, "ab->ab--") for impl in WIDE),
        ("rbg", "--->----"),
        ("unsafe_rbg", "--->----"),
    ],
)
def test_dims_of_bits_are_factors_if_bits_are_a_function_of_the_index(impl, expected):
    op = _bits((2, 3), (4, 5), impl)
    rule = rule_of(op)
    rule.check(op)
    assert letters(rule) == expected


def test_only_dims_of_bits_are_special():
    assert rule_of(_bits((2,), (4, 5))).special == {1, 2}
    assert rule_of(_bits((), ())).special == frozenset()


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (jax.vmap(partial(random.split, num=(4, 2))), (keys((8,)),), "a->a--"),
        (partial(random.split, num=8), (keys((8,))[0],), "->-"),
        (jax.vmap(random.fold_in), (keys((8,)), np.arange(8)), "a,a->a"),
        (jax.vmap(random.fold_in, (None, 0)), (keys((8,))[0], np.arange(8)), ",a->a"),
        (random.wrap_key_data, (np.zeros((3, 2), np.uint32),), "a-->a"),
        (random.key_data, (keys((3, 4)),), "ab->ab-"),
        (random.clone, (keys((3, 4)),), "ab->ab"),
        (jax.vmap(random.key), (np.arange(8),), "a->a"),
        (jax.vmap(random.gamma), (keys((8,)), f32(8, 4)), "a,a-->a-"),
        (random.gamma, (keys((8,))[0], f32(8, 4)), ",--->--"),
        (_generator, (np.zeros(4, np.uint32),), "-->-,--"),
    ],
)
def test_dims_of_keys_are_parallel(fn, args, expected):
    assert letters(rule_for(fn, *args)) == expected


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_only_keys_that_split_by_a_hash_are_independent(impl):
    rule = rule_for(jax.vmap(random.split), keys((8,), impl))
    assert letters(rule) == ("a->a-" if impl == "rbg" else "-->--")


def test_a_device_computes_its_window_of_the_bits():
    op = _bits((), (8, 6))
    builder = Builder(Mesh({"x": 4, "y": 2}))
    cut = OpCut((("x", "y"), ()), (8, 1))
    (bits,) = rule_of(op).expand(builder, op, (Value((), "key<fry>"),), cut)
    last = builder.ops[-1]
    assert bits.shape == last.params["local_shape"] == (1, 6)
    assert last.params["shape"] == (8, 6)
    assert builder.ops[0].params["axes"] == ("x", "y")


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_gives_the_numbers_of_one_device(name):
    assert_same_numbers(Example(name, SAMPLERS[name], (RAW,)), at_once=1)


def test_part_of_the_bits_is_part_of_the_work():
    step = mw.partition(
        lambda key, x: x * jax.random.bits(key, x.shape),
        {"a": 4},
        [mw.data_parallel("a", "x")],
    )
    x = jax.ShapeDtypeStruct((8, 6), jnp.uint32)
    decided = step.decide(jax.random.key(0), x)
    whole = program_work(decided.captured.program).flops
    assert whole > 48 * 100
    assert program_work(decided.lowered.program).flops * 4 == pytest.approx(
        whole, rel=0.02
    )


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
@pytest.mark.parametrize(("dtype", "words"), [("uint32", 48), ("uint8", 12)])
def test_bits_of_the_compilers_generator_cost_a_quarter_of_threefry(impl, dtype, words):
    def bits(key):
        return random.bits(key, (8, 6), dtype)

    program = program_of(bits, random.key(0, impl=impl))
    assert program_work(program).flops == 25 * words
    threefry = program_of(bits, random.key(0, impl="threefry2x32"))
    assert program_work(threefry).flops == 100 * 48


def test_raw_bits_of_the_generator_cost_as_much():
    program = program_of(_generator, np.zeros(4, np.uint32))
    assert program_work(program).flops == 25 * 8
