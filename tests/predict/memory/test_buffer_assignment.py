"""Live bytes of device programs: which values share a buffer and which do not."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from jax import lax

from meshwright.predict.compilers.cpu.cpu_passes import CPU
from meshwright.predict.compilers.gpu.gpu_passes import GPU
from meshwright.predict.compilers.model.tiled_layouts import Layouts, shape_layouts
from meshwright.predict.compilers.tpu.bfloat16_propagation import bfloat16_values
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.predict.memory.buffer_assignment import memory_of
from meshwright.program.capture import capture
from meshwright.program.ir import num_bytes
from tests.predict.compilers.compiled import fused, fused_memory, fusions_of
from tests.predict.compilers.test_instruction_fusion import OPS, build

X = jax.ShapeDtypeStruct((64, 128), jnp.float32)
XS = jax.ShapeDtypeStruct((4, 64, 128), jnp.float32)
W = jax.ShapeDtypeStruct((128, 128), jnp.float32)
X_BYTES, W_BYTES = 64 * 128 * 4, 128 * 128 * 4


def program_of(fn, *args):
    return capture(fn, args).program


@given(OPS)
def test_the_peak_lies_between_the_inputs_and_the_sum_of_all_values(ops):
    program = build(ops)
    memory = fused_memory(program)
    everything = sum(num_bytes(r) for op in program.ops for r in op.results)
    inputs = sum(map(num_bytes, program.inputs))
    assert inputs <= memory.peak_bytes <= inputs + everything
    assert sum(map(num_bytes, memory.alive)) == max(memory.curve)


def test_a_product_with_two_elementwise_readers_does_not_share_memory_with_them():
    def fn(x, w):
        y = x @ w
        return jnp.tanh(y), jnp.sin(y)

    memory = fused_memory(program_of(fn, X, W))
    assert memory.peak_bytes == W_BYTES + 4 * X_BYTES


def test_a_product_is_fused_with_its_only_elementwise_reader():
    memory = fused_memory(program_of(lambda x, w: jnp.tanh(x @ w), X, W))
    assert memory.peak_bytes == W_BYTES + 2 * X_BYTES


def test_a_value_returned_through_a_reshape_stays_to_the_end():
    def fn(x):
        return jnp.sin(x).reshape(128, 64), lax.sort(lax.sort(x), dimension=0)

    assert fused_memory(program_of(fn, X)).curve[-1] == 4 * X_BYTES


def test_a_loop_carry_has_one_buffer():
    def fn(x, d, w):
        def body(c, d):
            return c + jnp.tanh(d @ w), None

        return lax.scan(body, lax.sort(x), d)[0]

    peak = fused_memory(program_of(fn, X, XS, W)).peak_bytes
    assert peak == W_BYTES + 6 * X_BYTES


def test_a_product_does_not_overwrite_its_operands():
    def fn(x, w):
        def body(c, _):
            return c + jnp.tanh(c @ w), None

        return lax.scan(body, lax.sort(x), length=4)[0]

    assert fused_memory(program_of(fn, X, W)).peak_bytes == W_BYTES + 3 * X_BYTES


def test_a_loop_carry_has_memory_even_if_its_final_value_is_unused():
    def fn(x, w, d):
        def body(c, d):
            c = c + jnp.tanh(d @ w)
            return c, c.sum()

        return lax.scan(body, x, d)[1]

    def from_zeros(w, d):
        return fn(jnp.zeros((64, 128)), w, d)

    sums = 4 * 4
    peak = fused_memory(program_of(fn, X, W, XS)).peak_bytes
    assert 6 * X_BYTES + W_BYTES <= peak <= 6 * X_BYTES + W_BYTES + 2 * sums
    peak = fused_memory(program_of(from_zeros, W, XS)).peak_bytes
    assert 5 * X_BYTES + W_BYTES <= peak <= 5 * X_BYTES + W_BYTES + 2 * sums


def test_a_carry_that_a_loop_never_changes_has_no_memory_of_its_own():
    def fn(x):
        return lax.scan(lambda c, _: (c, c.sum()), x, length=4)[1]

    assert fused_memory(program_of(fn, X)).peak_bytes < 1.1 * X_BYTES


def test_a_value_that_a_loop_stacks_and_carries_is_written_to_the_stack():
    def fn(x, w):
        def body(c, _):
            c = jnp.tanh(c @ w)
            return c, c

        return lax.scan(body, x, length=4)[1]

    peak = fused_memory(program_of(fn, X, W)).peak_bytes
    assert peak == W_BYTES + (1 + 4 + 1) * X_BYTES


def test_a_carry_that_is_stacked_is_live_with_the_stack_and_with_its_next_value():
    def fn(x, w):
        return lax.scan(lambda c, _: (jnp.tanh(c @ w), c), x, length=4)[1]

    peak = fused_memory(program_of(fn, X, W)).peak_bytes
    assert peak == W_BYTES + (1 + 4 + 2) * X_BYTES


def test_a_loop_constant_does_not_share_the_buffer_of_a_carry():
    def fn(x):
        x = lax.sort(x)
        return lax.scan(lambda c, _: (jnp.tanh(c) + x, None), x, length=4)[0]

    assert fused_memory(program_of(fn, X)).peak_bytes == 3 * X_BYTES


def test_a_value_that_initialises_two_carries_is_copied_once():
    def fn(x):
        x = lax.sort(x)
        return lax.scan(lambda c, _: ((c[0] + 1, c[1] * 2), None), (x, x), length=4)[0]

    assert fused_memory(program_of(fn, X)).peak_bytes == 3 * X_BYTES


def test_live_values_add_up_to_the_peak_in_loops_too():
    def fn(x, w):
        def body(c, _):
            return lax.sort(c @ w), jnp.sin(c).sum()

        return lax.scan(body, lax.sort(x), length=4)

    found = fused(program_of(fn, X, W))
    memory = memory_of(found)
    assert sum(map(found.layouts.size, memory.alive)) == max(memory.curve)


def test_a_carry_is_copied_if_it_is_read_after_its_next_value_is_computed():
    def fn(x, w):
        def body(c, _):
            return lax.sort(c @ w), jnp.sin(c).sum()

        return lax.scan(body, lax.sort(x), length=4)

    assert fused_memory(program_of(fn, X, W)).peak_bytes > W_BYTES + 3 * X_BYTES


def test_a_scatter_does_not_update_its_operand_in_place():
    index = jax.ShapeDtypeStruct((4,), jnp.int32)

    def fn(i):
        return jnp.zeros((64, 128)).at[i].add(1.0)

    peak = fused_memory(program_of(fn, index)).peak_bytes
    assert 2 * X_BYTES <= peak < 2.2 * X_BYTES


def test_a_stacked_result_is_written_to_its_final_buffer():
    def fn(x):
        return lax.scan(lambda c, _: (c, jnp.sort(c, axis=0)), x, length=8)[1]

    assert fused_memory(program_of(fn, X)).peak_bytes < 12 * X_BYTES


def test_weights_are_rounded_once_before_the_loop_that_reads_them():
    weights = jax.ShapeDtypeStruct((8, 128, 128), jnp.float32)

    def fn(x, weights):
        return lax.scan(lambda c, w: (c @ w, None), x, weights)[0]

    program = program_of(fn, X, weights)
    cast, loop = fusions_of(program, bfloat16=bfloat16_values(program))
    (rounded,) = cast.writes
    assert (rounded.dtype, rounded.shape) == ("bfloat16", (8, 128, 128))
    assert rounded in loop.reads
    assert program.inputs[1] not in loop.reads


def test_images_have_batch_and_features_as_minor_dims():
    def fn(x, w):
        return lax.conv(x, w, (1, 1), "SAME")

    image = jax.ShapeDtypeStruct((16, 24, 40, 40), jnp.float32)
    kernel = jax.ShapeDtypeStruct((24, 24, 3, 3), jnp.float32)
    program = program_of(fn, image, kernel)
    layouts = Layouts((8, 128)).changed(shapes=shape_layouts(program))
    (made,) = program.outputs
    assert layouts.size(made) == 16 * 128 * 40 * 40 * 4
    assert layouts.size(program.inputs[0]) < layouts.size(made)


def test_an_update_in_the_memory_of_its_donated_argument_needs_no_more():
    program = program_of(lambda x: x + 1, X)
    assert fused_memory(program).peak_bytes == 2 * X_BYTES
    assert fused_memory(program, {0: 0}).peak_bytes == X_BYTES


def test_a_donated_argument_that_cannot_be_updated_in_place_is_copied_first():
    """The result is written to its memory while other ops may still read it."""

    def fn(x, w):
        return jnp.sort(x * 2, axis=0), x @ w

    kept, donated = (
        fused_memory(program_of(fn, X, W), aliases).peak_bytes
        for aliases in ({}, {0: 0})
    )
    assert donated == kept


def test_a_donated_argument_that_a_loop_carries_is_the_buffer_of_the_carry():
    """Decoders write to caches of keys and values in while loops."""

    def fn(cache, x):
        def write(state):
            cache, step = state
            return lax.dynamic_update_slice(cache, x[:8], (step, 0)), step + 8

        return lax.while_loop(lambda state: state[1] < 64, write, (cache, 0))[0]

    cache = jax.ShapeDtypeStruct((4096, X.shape[1]), X.dtype)
    kept, donated = (
        fused_memory(program_of(fn, cache, X), aliases).peak_bytes
        for aliases in ({}, {0: 0})
    )
    size = 4 * 4096 * 128
    assert size <= donated < 1.1 * size
    assert kept >= donated + size


def test_a_loop_adds_the_peak_of_its_body_to_what_is_live_outside():
    def fn(x, w):
        return lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, length=8)[0]

    memory = fused_memory(program_of(fn, X, W))
    assert W_BYTES + 2 * X_BYTES <= memory.peak_bytes <= W_BYTES + 4 * X_BYTES


def test_a_slice_of_a_scanned_array_takes_no_memory_of_its_own():
    weights = jax.ShapeDtypeStruct((8, 128, 128), jnp.float32)

    def fn(x, weights):
        return lax.scan(lambda c, w: (c @ w, None), x, weights)[0]

    memory = fused_memory(program_of(fn, X, weights))
    assert memory.peak_bytes <= 8 * W_BYTES + 4 * X_BYTES


@pytest.mark.parametrize("compiler", [TPU, GPU, CPU], ids=["tpu", "gpu", "cpu"])
def test_an_argument_returned_unchanged_is_copied_unless_it_was_donated(compiler):
    program = program_of(lambda x, y: (x.reshape(-1), y + 1.0), X, X)
    (x, y), aliases = program.inputs, {0: 0}
    all_three = num_bytes(x) + 2 * num_bytes(y)
    given = fused_memory(program, aliases, compiler=compiler).peak_bytes
    assert fused_memory(program, compiler=compiler).peak_bytes == given + num_bytes(x)
    assert all_three <= given < all_three + num_bytes(x)
