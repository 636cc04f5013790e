"""Duplication: operands that products recompute, by the seconds that saves on a chip."""

import jax
import jax.numpy as jnp
import pytest

from meshwright.machine import load_machine
from meshwright.machine.machine import _COMPILERS
from meshwright.predict.compilers.cpu.cpu_passes import CPU
from meshwright.predict.compilers.gpu.gpu_passes import GPU
from meshwright.predict.compilers.targets import COMPILERS, compiler_of
from meshwright.predict.compilers.tpu.bfloat16_propagation import bfloat16_values
from meshwright.predict.compilers.tpu.duplication import Balance, balance_of
from meshwright.predict.compilers.tpu.tpu_passes import tpu_compiler
from meshwright.program.capture import capture
from meshwright.program.ops import OpWork
from tests.predict.compilers.compiled import fusions_of

N = 1024
SQUARE = jax.ShapeDtypeStruct((N, N), jnp.float32)
THIN = jax.ShapeDtypeStruct((N, 8), jnp.float32)


def stored(fn, balance, *args):
    """Shapes of stored values other than outputs."""
    program = capture(fn, args).program
    compiler = tpu_compiler(balance=balance)
    fusions = fusions_of(program, compiler, bfloat16_values(program))
    made = [v for fusion in fusions for v in fusion.writes if v not in program.outputs]
    return [v.shape for v in made]


def read_twice(x, y, left, right):
    made = jnp.exp(x) * y
    return made @ left, right @ made


def product():
    return capture(lambda x, w: x @ w, (SQUARE, THIN)).program.ops[0]


def test_a_memory_bound_operand_is_recomputed():
    # Made from one float32 array, stored in 16 bits: 2 x 4 bytes against 4 + 2 + 2 x 2.
    fast = Balance(vector=1e9, matrix=1e9)
    size = N * N
    assert fast.is_recomputed([product()] * 2, OpWork(size), 4 * size, 2 * size)
    # Made from two such arrays: 2 x 8 bytes against 8 + 2 + 2 x 2.
    assert not fast.is_recomputed([product()] * 2, OpWork(size), 8 * size, 2 * size)


def heads(width):
    """Stored scores that two products with heads of this width read."""
    shapes = (2, N, N), (2, N, width), (2, N, width)
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]

    def fn(scores, left, right):
        made = jnp.exp(scores)
        return made @ left, jnp.einsum("bij,bik->bjk", made, right)

    # Recomputing takes the time of 11.3 bytes, storing 6 + 2 x 2, in 32 bits 8 + 2 x 4.
    return stored(fn, Balance(vector=3.0, matrix=1e9), *args)


def test_attention_with_narrow_heads_recomputes_what_wider_heads_store():
    assert heads(128) == [(2, N, N)]
    assert heads(64) == []


def test_an_operand_bound_by_the_vector_unit_is_stored():
    # One operation per byte: the time of 6 + 6 bytes against 6 + 2 x 2.
    slow, size = Balance(vector=1.0, matrix=1e9), N * N
    assert not slow.is_recomputed([product()] * 2, OpWork(6 * size), 4 * size, 2 * size)


def test_a_large_product_does_not_wait_for_its_operands():
    # 16 operations per element of the left operand, each as long as a byte of memory.
    slow, size = Balance(vector=1.0, matrix=1.0), N * N
    assert slow.waits(product(), 17 * size)
    assert not slow.waits(product(), 16 * size)


@pytest.mark.parametrize(("vector", "is_kept"), [(1e9, False), (1.0, True)])
def test_a_slow_vector_unit_has_an_exponential_stored(vector, is_kept):
    args = (
        SQUARE,
        jax.ShapeDtypeStruct((), jnp.float32),
        THIN,
        THIN.update(shape=(8, N)),
    )
    found = stored(read_twice, Balance(vector, 1e9), *args)
    assert found == ([(N, N)] if is_kept else [])


def test_a_balance_is_the_ratio_of_a_chips_peaks():
    chip = load_machine("tpu-v5p", 8).chip
    found = balance_of(chip)
    assert found.vector == chip.vector_flops_per_s / chip.hbm_bytes_per_s
    assert found.matrix == chip.peak_flops_per_s("bfloat16") / chip.hbm_bytes_per_s


@pytest.mark.parametrize("name", ["cpu", "h100", "tpu-v5e"])
def test_only_the_tpu_compiler_has_a_duplication_model(name):
    machine = load_machine(name, 8)
    decide = compiler_of(machine).fusion.decide
    balance = getattr(decide, "duplication", None)
    assert (balance is None) == (machine.compiler != "tpu")


def test_a_machine_has_the_compiler_of_its_table():
    assert compiler_of(load_machine("cpu", 8)) is CPU
    assert compiler_of(load_machine("h100", 8)) is GPU
    assert set(_COMPILERS) == COMPILERS.keys()  # the names that machine files may have


@pytest.mark.parametrize("name", ["cpu", "h100", "tpu-v5e"])
def test_compilers_of_equal_machines_are_equal(name):
    first, second = (compiler_of(load_machine(name, 8)) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)


def test_rounding_a_small_factor_does_not_count_as_rounding_the_product():
    """A scale is rounded before it is multiplied with a large array."""

    def fn(x, scale, left, right):
        made = x * scale.astype(jnp.bfloat16)
        return made @ left, right @ made

    large = jax.ShapeDtypeStruct((4 * N, N), jnp.bfloat16)
    scale = jax.ShapeDtypeStruct((N,), jnp.float32)
    left = jax.ShapeDtypeStruct((N, 8), jnp.bfloat16)
    right = jax.ShapeDtypeStruct((8, 4 * N), jnp.bfloat16)
    balance = balance_of(load_machine("tpu-v5e", 1).chip)
    assert (4 * N, N) not in stored(fn, balance, large, scale, left, right)


def test_values_that_a_program_rounds_from_32_bits_are_stored_on_v4_and_v5p():
    def fn(x, left, right):
        made = (x * 2.0).astype(jnp.bfloat16)
        return made @ left, right @ made

    large = jax.ShapeDtypeStruct((4 * N, N), jnp.float32)
    left = jax.ShapeDtypeStruct((N, 8), jnp.bfloat16)
    right = jax.ShapeDtypeStruct((8, 4 * N), jnp.bfloat16)
    found = {
        chip: stored(fn, balance_of(load_machine(chip, 1).chip), large, left, right)
        for chip in ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e")
    }
    kept = [chip for chip, shapes in found.items() if (4 * N, N) in shapes]
    assert kept == ["tpu-v4", "tpu-v5p"]
