"""Random arguments are of the kind that the program's own inputs are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from meshwright.app.check.sample import argument_bytes, sample_arguments

S = jax.ShapeDtypeStruct


def sampled(fn, *args):
    return sample_arguments(fn, args, seed=0)


def test_random_tokens_are_valid_indices_of_the_table():
    _, tokens = sampled(lambda t, i: t[i], S((5, 3), "float32"), S((400,), "int32"))
    assert set(tokens.tolist()) == set(range(5))
    fn = lambda t, i: jnp.take(t, i.reshape(20, 20) + 0, axis=1)  # noqa: E731
    _, tokens = sampled(fn, S((2, 3), "float32"), S((400,), "int32"))
    assert set(tokens.tolist()) == set(range(3))


def test_random_starts_leave_room_for_the_slice():
    fn = lambda x, i: lax.dynamic_slice(x, (i, i), (2, 7))  # noqa: E731
    drawn = {
        int(sample_arguments(fn, (S((9, 9), "float32"), S((), "int32")), s)[1])
        for s in range(30)
    }
    assert drawn == {0, 1, 2}


def test_random_classes_are_below_the_number_of_classes():
    fn = lambda labels: jax.nn.one_hot(labels, 3)  # noqa: E731
    assert set(sampled(fn, S((100,), "int32"))[0].tolist()) == {0, 1, 2}


def test_an_index_inside_of_a_loop_is_found():
    def fn(table, tokens):
        def body(carry, i):
            return carry + table[i], None

        return lax.scan(body, jnp.zeros(3), tokens)[0]

    _, tokens = sampled(fn, S((4, 3), "float32"), S((200,), "int32"))
    assert set(tokens.tolist()) == set(range(4))


def test_operands_of_roots_are_positive_and_others_are_not():
    def fn(second, first, x):
        return first / (jnp.sqrt(0.9 * second + 0.1) + 1e-8), lax.rsqrt((x * x).mean())

    second, first, x = sampled(fn, *[S((50,), "float32")] * 3)
    assert second.min() >= 0
    assert first.min() < 0
    assert x.min() < 0


def test_each_dtype_has_its_own_numbers():
    shapes = [S((64,), d) for d in ("bfloat16", "complex64", "bool", "uint8", "int8")]
    half, numbers, flags, bytes_, small = sampled(lambda *a: a, *shapes)
    assert half.dtype == jnp.bfloat16
    assert numbers.imag.any()
    assert set(flags.tolist()) == {True, False}
    assert bytes_.max() > 200
    assert 0 <= small.min() <= small.max() < 8


def test_keys_are_keys():
    key = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3))
    (keys,) = sampled(lambda k: k, key)
    assert keys.dtype == jax.random.key(0).dtype
    assert keys.shape == (3,)
    assert len({tuple(k) for k in jax.random.key_data(keys).tolist()}) == 3


def test_arrays_stay_as_they_are_and_a_seed_gives_the_same_numbers():
    x = np.ones(3)
    one = sampled(lambda x, y: y, x, S((4,), "float32"))
    two = sampled(lambda x, y: y, x, S((4,), "float32"))
    assert one[0] is x
    np.testing.assert_array_equal(one[1], two[1])


@pytest.mark.parametrize(
    ("args", "num"),
    [((S((2, 3), "float32"), {"a": np.zeros(2, np.int8)}), 26), ((), 0)],
)
def test_bytes_of_arguments(args, num):
    assert argument_bytes(args) == num
