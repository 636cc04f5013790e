"""Prices of ops at the uniform partition: values that loops recompute or read."""

import jax
import jax.numpy as jnp

import meshwright as mw
from meshwright.machine import load_machine
from meshwright.planner.prices.uniform_partition import price_ops
from tests.planner.programs import shape

BATCH, WIDTH = 64, 512


def masked(x, w):
    """Layers that read one mask, a smaller one broadcast over the batch."""
    mask = jnp.broadcast_to(jnp.tril(jnp.ones((WIDTH, WIDTH), bool)), x.shape)

    def layer(x, w):
        return jnp.where(mask, jnp.tanh(x @ w), 0.0), None

    return jax.lax.scan(layer, x, w)[0]


ARGS = shape(BATCH, WIDTH, WIDTH), shape(3, WIDTH, WIDTH)


def results(program):
    return [(op, value) for op in program.walk() for value in op.results]


def test_an_operand_that_a_loop_recomputes_is_priced_as_if_written():
    program = mw.partition(masked, {"data": 8}).capture(*ARGS).program
    machine = load_machine("tpu-v5e", 8)
    (mask,) = (
        op
        for op, v in results(program)
        if v.shape == ARGS[0].shape and v.dtype == "bool"
    )
    access = price_ops(program, machine, 8).accesses[mask][mask.results[0]]
    num_bytes = BATCH * WIDTH * WIDTH
    assert access.seconds == num_bytes / machine.chip.hbm_bytes_per_s


def test_an_operand_that_a_loop_rounds_is_not_recomputed():
    """The producer writes it in 32 bits for another reader, too."""

    def fn(x, w):
        y = jnp.sin(x)
        last, _ = jax.lax.scan(lambda c, _: (c @ y, None), w, length=3)
        return last, jnp.cumsum(y)

    wide = shape(WIDTH, WIDTH)
    program = mw.partition(fn, {"data": 8}).capture(wide, wide).program
    machine = load_machine("tpu-v5e", 8)
    accesses = price_ops(program, machine, 8).accesses
    (sine,) = (op for op, _ in results(program) if op.kind == "sin")
    assert set(accesses[sine]) == {*sine.operands, *sine.results}
    written = accesses[sine][sine.results[0]]
    assert written.seconds != 4 * WIDTH * WIDTH / machine.chip.hbm_bytes_per_s
