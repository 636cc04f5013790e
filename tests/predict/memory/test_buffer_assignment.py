"""What is alive while a device program runs."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from jax import lax

from meshwright.predict.compilers.rules import CPU, GPU, TPU
from meshwright.predict.compilers.tpu.bfloat16_propagation import narrow_values
from meshwright.predict.compilers.xla.instruction_fusion import fuse
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.predict.memory.buffer_assignment import memory_of
from meshwright.program.capture import capture
from meshwright.program.ir import num_bytes
from tests.predict.compilers.test_fusion import OPS, build

X = jax.ShapeDtypeStruct((64, 128), jnp.float32)
XS = jax.ShapeDtypeStruct((4, 64, 128), jnp.float32)
W = jax.ShapeDtypeStruct((128, 128), jnp.float32)
X_BYTES, W_BYTES = 64 * 128 * 4, 128 * 128 * 4


def program_of(fn, *args):
    return capture(fn, args).program


@given(OPS)
def test_memory_lies_between_the_inputs_and_every_value_written(ops):
    program = build(ops)
    memory = memory_of(program)
    everything = sum(num_bytes(r) for op in program.ops for r in op.results)
    inputs = sum(map(num_bytes, program.inputs))
    assert inputs <= memory.peak_bytes <= inputs + everything
    assert sum(map(num_bytes, memory.alive)) == max(memory.curve)


def test_a_product_and_what_two_make_of_it_stand_side_by_side():
    def fn(x, w):
        y = x @ w
        return jnp.tanh(y), jnp.sin(y)

    memory = memory_of(program_of(fn, X, W))
    assert memory.peak_bytes == W_BYTES + 4 * X_BYTES


def test_what_one_makes_of_a_product_is_its_own_end():
    memory = memory_of(program_of(lambda x, w: jnp.tanh(x @ w), X, W))
    assert memory.peak_bytes == W_BYTES + 2 * X_BYTES


def test_what_is_handed_out_under_another_name_stays_to_the_end():
    def fn(x):
        return jnp.sin(x).reshape(128, 64), lax.sort(lax.sort(x), dimension=0)

    assert memory_of(program_of(fn, X)).curve[-1] == 4 * X_BYTES


def test_what_a_loop_carries_has_one_place():
    def fn(x, d, w):
        def body(c, d):
            return c + jnp.tanh(d @ w), None

        return lax.scan(body, lax.sort(x), d)[0]

    peak = memory_of(program_of(fn, X, XS, W)).peak_bytes
    assert peak == W_BYTES + 6 * X_BYTES


def test_what_a_product_reads_is_not_overwritten_as_it_ends():
    def fn(x, w):
        def body(c, _):
            return c + jnp.tanh(c @ w), None

        return lax.scan(body, lax.sort(x), length=4)[0]

    assert memory_of(program_of(fn, X, W)).peak_bytes == W_BYTES + 3 * X_BYTES


def test_what_a_loop_carries_has_memory_if_nobody_reads_its_end():
    def fn(x, w, d):
        def body(c, d):
            c = c + jnp.tanh(d @ w)
            return c, c.sum()

        return lax.scan(body, x, d)[1]

    def from_zeros(w, d):
        return fn(jnp.zeros((64, 128)), w, d)

    sums = 4 * 4
    peak = memory_of(program_of(fn, X, W, XS)).peak_bytes
    assert 6 * X_BYTES + W_BYTES <= peak <= 6 * X_BYTES + W_BYTES + 2 * sums
    peak = memory_of(program_of(from_zeros, W, XS)).peak_bytes
    assert 5 * X_BYTES + W_BYTES <= peak <= 5 * X_BYTES + W_BYTES + 2 * sums


def test_what_a_loop_hands_on_unchanged_has_no_memory_of_its_own():
    def fn(x):
        return lax.scan(lambda c, _: (c, c.sum()), x, length=4)[1]

    assert memory_of(program_of(fn, X)).peak_bytes < 1.1 * X_BYTES


def test_what_a_loop_stacks_and_carries_is_written_to_the_stack():
    def fn(x, w):
        def body(c, _):
            c = jnp.tanh(c @ w)
            return c, c

        return lax.scan(body, x, length=4)[1]

    peak = memory_of(program_of(fn, X, W)).peak_bytes
    assert peak == W_BYTES + (1 + 4 + 1) * X_BYTES


def test_what_a_loop_carries_and_stacks_stands_beside_the_stack_and_its_next_value():
    def fn(x, w):
        return lax.scan(lambda c, _: (jnp.tanh(c @ w), c), x, length=4)[1]

    peak = memory_of(program_of(fn, X, W)).peak_bytes
    assert peak == W_BYTES + (1 + 4 + 2) * X_BYTES


def test_what_a_loop_reads_in_every_turn_is_not_what_it_carries():
    def fn(x):
        x = lax.sort(x)
        return lax.scan(lambda c, _: (jnp.tanh(c) + x, None), x, length=4)[0]

    assert memory_of(program_of(fn, X)).peak_bytes == 3 * X_BYTES


def test_what_starts_two_carries_is_copied_once():
    def fn(x):
        x = lax.sort(x)
        return lax.scan(lambda c, _: ((c[0] + 1, c[1] * 2), None), (x, x), length=4)[0]

    assert memory_of(program_of(fn, X)).peak_bytes == 3 * X_BYTES


def test_what_is_alive_adds_up_to_the_peak_in_loops_too():
    def fn(x, w):
        def body(c, _):
            return lax.sort(c @ w), jnp.sin(c).sum()

        return lax.scan(body, lax.sort(x), length=4)

    layout = Layout()
    memory = memory_of(program_of(fn, X, W), layout=layout)
    assert sum(map(layout.size, memory.alive)) == max(memory.curve)


def test_what_a_loop_carries_is_copied_if_it_is_read_after_its_next_value_is_made():
    def fn(x, w):
        def body(c, _):
            return lax.sort(c @ w), jnp.sin(c).sum()

        return lax.scan(body, lax.sort(x), length=4)

    assert memory_of(program_of(fn, X, W)).peak_bytes > W_BYTES + 3 * X_BYTES


def test_a_scatter_stands_beside_what_it_starts_from():
    index = jax.ShapeDtypeStruct((4,), jnp.int32)

    def fn(i):
        return jnp.zeros((64, 128)).at[i].add(1.0)

    peak = memory_of(program_of(fn, index)).peak_bytes
    assert 2 * X_BYTES <= peak < 2.2 * X_BYTES


def test_what_a_loop_stacks_is_written_where_it_stays():
    def fn(x):
        return lax.scan(lambda c, _: (c, jnp.sort(c, axis=0)), x, length=8)[1]

    assert memory_of(program_of(fn, X)).peak_bytes < 12 * X_BYTES


def test_a_loop_reads_weights_that_are_rounded_once_before_it():
    weights = jax.ShapeDtypeStruct((8, 128, 128), jnp.float32)

    def fn(x, weights):
        return lax.scan(lambda c, w: (c @ w, None), x, weights)[0]

    program = program_of(fn, X, weights)
    layout = Layout((1, 1), narrow_values(program))
    cast, loop = fuse(program, layout)
    (rounded,) = cast.writes
    assert (rounded.dtype, rounded.shape) == ("bfloat16", (8, 128, 128))
    assert rounded in loop.reads
    assert program.inputs[1] not in loop.reads


def test_images_lie_with_their_batch_and_features_innermost():
    def fn(x, w):
        return lax.conv(x, w, (1, 1), "SAME")

    image = jax.ShapeDtypeStruct((16, 24, 40, 40), jnp.float32)
    kernel = jax.ShapeDtypeStruct((24, 24, 3, 3), jnp.float32)
    program = program_of(fn, image, kernel)
    layout = Layout((8, 128))
    layout.note_shapes(program)
    (made,) = program.outputs
    assert layout.size(made) == 16 * 128 * 40 * 40 * 4
    assert layout.size(program.inputs[0]) < layout.size(made)


def test_a_step_in_place_of_its_argument_needs_no_more_memory():
    program = program_of(lambda x: x + 1, X)
    assert memory_of(program).peak_bytes == 2 * X_BYTES
    assert memory_of(program, {0: 0}).peak_bytes == X_BYTES


def test_an_argument_that_is_not_overwritten_in_step_is_copied_first():
    """The result is written into its memory while others may still read it."""

    def fn(x, w):
        return jnp.sort(x * 2, axis=0), x @ w

    kept, given_up = (
        memory_of(program_of(fn, X, W), aliases).peak_bytes for aliases in ({}, {0: 0})
    )
    assert given_up == kept


def test_an_argument_that_a_loop_carries_on_is_its_place_if_it_was_given_up():
    """As caches are, into which a decoder writes for as long as a condition holds."""

    def fn(cache, x):
        def write(state):
            cache, step = state
            return lax.dynamic_update_slice(cache, x[:8], (step, 0)), step + 8

        return lax.while_loop(lambda state: state[1] < 64, write, (cache, 0))[0]

    cache = jax.ShapeDtypeStruct((4096, X.shape[1]), X.dtype)
    kept, given_up = (
        memory_of(program_of(fn, cache, X), aliases).peak_bytes
        for aliases in ({}, {0: 0})
    )
    size = 4 * 4096 * 128
    assert size <= given_up < 1.1 * size
    assert kept >= given_up + size


def test_a_loop_needs_its_body_beside_what_is_alive():
    def fn(x, w):
        return lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, length=8)[0]

    memory = memory_of(program_of(fn, X, W))
    assert W_BYTES + 2 * X_BYTES <= memory.peak_bytes <= W_BYTES + 4 * X_BYTES


def test_a_slice_of_what_a_loop_scans_is_part_of_it():
    weights = jax.ShapeDtypeStruct((8, 128, 128), jnp.float32)

    def fn(x, weights):
        return lax.scan(lambda c, w: (c @ w, None), x, weights)[0]

    memory = memory_of(program_of(fn, X, weights))
    assert memory.peak_bytes <= 8 * W_BYTES + 4 * X_BYTES


@pytest.mark.parametrize("rules", [TPU, GPU, CPU], ids=["tpu", "gpu", "cpu"])
def test_what_is_handed_out_as_it_came_is_copied_unless_it_was_given_up(rules):
    program = program_of(lambda x, y: (x.reshape(-1), y + 1.0), X, X)
    (x, y), aliases = program.inputs, {0: 0}
    all_three = num_bytes(x) + 2 * num_bytes(y)
    given = memory_of(program, aliases, rules=rules).peak_bytes
    assert memory_of(program, rules=rules).peak_bytes == given + num_bytes(x)
    assert all_three <= given < all_three + num_bytes(x)
