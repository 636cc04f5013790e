"""Bfloat16 propagation: values that are stored as bfloat16."""

import jax
import jax.numpy as jnp
from jax import lax

from meshwright.predict.compilers.tpu.bfloat16_propagation import bfloat16_values
from tests.predict.memory.test_buffer_assignment import W, X, program_of


def narrow_results(fn, *args):
    program = program_of(fn, *args)
    narrow = bfloat16_values(program)
    return [r in narrow for op in program.ops for r in op.results]


def test_values_that_only_products_read_are_stored_as_bfloat16():
    assert narrow_results(lambda x, w: jnp.tanh(x) @ w, X, W) == [True, False]


def test_values_that_another_op_reads_stay_float32():
    def fn(x, w):
        y = jnp.tanh(x)
        return y @ w, y - 1

    assert narrow_results(fn, X, W)[0] is False


def test_a_sum_is_computed_before_its_operand_is_rounded():
    def made_here(x, w):
        y = jnp.tanh(x)
        return y @ w, y.sum()

    def made_in_a_loop(x, w):
        y = jax.lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c), x)
        return y @ w, y.sum()

    assert narrow_results(made_here, X, W)[0] is True
    assert not any(narrow_results(made_in_a_loop, X, W))


def test_a_product_of_higher_precision_reads_float32():
    def fn(x, w):
        return jnp.matmul(jnp.tanh(x), w, precision="highest")

    assert narrow_results(fn, X, W)[0] is False


def test_ops_that_move_elements_propagate_bfloat16():
    found = narrow_results(lambda x, w: jnp.tanh(x).reshape(32, 2, 128)[:, 0] @ w, X, W)
    assert found[:-1] == [True] * (len(found) - 1)


def test_a_loop_carry_is_bfloat16_everywhere_or_nowhere():
    def fn(x, w):
        def body(c, _):
            return jnp.tanh(c @ w), c

        end, rows = lax.scan(body, jnp.tanh(x), length=4)
        return end, rows[0] @ w

    program = program_of(fn, X, W)
    narrow = bfloat16_values(program)
    (scan,) = (op for op in program.ops if op.kind == "scan")
    carried, stacked = scan.results
    assert carried not in narrow
    assert stacked in narrow
