"""Fusion, buffers and order of XLA's CPU compiler."""

import jax
import jax.numpy as jnp

from meshwright.predict.compilers.cpu.cpu_passes import CPU
from meshwright.predict.compilers.cpu.library_rewriter import rewrite_for_libraries
from meshwright.predict.compilers.model.compilation import Origins
from meshwright.predict.memory.packing import packed_bytes, packed_with_results
from meshwright.program.analysis.live_ranges import BufferInterval
from meshwright.program.capture import capture
from tests.predict.compilers.compiled import fused_memory, fusions_of

X = jax.ShapeDtypeStruct((64, 128), jnp.float32)
W = jax.ShapeDtypeStruct((128, 128), jnp.float32)
X_BYTES = 64 * 128 * 4


def units(fn, *args):
    program = rewrite_for_libraries(capture(fn, args).program, Origins())
    return fusions_of(program, compiler=CPU)


def kinds(fn, *args):
    return [fusion.root.kind for fusion in units(fn, *args)]


def test_a_product_reads_its_operands_from_memory_and_writes_its_own_result():
    assert kinds(lambda x, w: jnp.sin(jnp.tanh(x) @ w), X, W) == [
        "tanh", "dot_general", "sin"
    ]  # fmt: skip


def test_an_expensive_op_is_computed_once_and_a_cheap_one_by_every_consumer():
    def fn(x, w):
        y, z = jnp.tanh(x), x + 1
        return y * 2, y * 3, z * 2, z * 3

    assert kinds(fn, X, W) == ["tanh", "mul", "mul", "mul", "mul"]


def test_batches_of_matrices_are_read_by_rows_or_columns_without_a_copy():
    y = jax.ShapeDtypeStruct((8, 64, 32), jnp.float32)
    assert kinds(lambda y: jnp.einsum("bij,bkj->bik", y, y), y) == ["dot_general"]


def test_operands_with_heads_between_rows_are_copied_before_a_product():
    y = jax.ShapeDtypeStruct((8, 64, 4, 32), jnp.float32)
    found = kinds(lambda y: jnp.einsum("bshd,bthd->bhst", y, y), y)
    assert found == ["copy_p", "copy_p", "dot_general"]


def test_a_product_writes_its_transpose_directly():
    assert kinds(lambda x, w: (x @ w).T, X, W) == ["dot_general"]


def test_zeros_scattered_into_and_added_become_a_scatter_into_the_addend():
    index = jax.ShapeDtypeStruct((4,), jnp.int32)

    def fn(x, w, i):
        return jnp.zeros((64, 128)).at[i].add(1.0) + x @ w

    found = units(fn, X, W, index)
    assert [u.root.kind for u in found if u.writes[0].shape == X.shape] == [
        "dot_general", "scatter-add"
    ]  # fmt: skip
    assert found[-1].overwrites == found[-1].reads[:1]


def test_an_elementwise_result_takes_its_operands_buffer_on_cpus():
    program = rewrite_for_libraries(
        capture(lambda x, w: jnp.tanh(x @ w), (X, W)).program, Origins()
    )
    memory = fused_memory(program, compiler=CPU)
    assert memory.peak_bytes == 128 * 128 * 4 + 2 * X_BYTES


def test_fusions_of_arguments_alone_run_first():
    def fn(x, w):
        y = jnp.sort(x @ w, axis=0)
        return jnp.sort(y, axis=0), jnp.sort(w, axis=0)

    assert [u.writes[0].shape for u in units(fn, X, W)] == [
        X.shape, W.shape, X.shape, X.shape
    ]  # fmt: skip


def test_buffers_of_outputs_are_used_by_others_before():
    result, early, late = (
        BufferInterval(8, 3, 4),
        BufferInterval(8, 0, 2),
        BufferInterval(4, 3, 4),
    )
    assert packed_with_results([early, late], [result]) == 12
    assert packed_with_results([BufferInterval(16, 0, 2)], [result]) == 24
    assert packed_bytes([BufferInterval(16, 0, 2), result]) == 16


def test_an_op_with_only_an_effect_has_no_buffer():
    def fn(x, w):
        jax.debug.print("{}", (x @ w).sum() * 2)
        return x * 2

    assert [u.writes for u in units(fn, X, W) if u.root.has_effect] == [()]
