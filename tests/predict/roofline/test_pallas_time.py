"""Seconds of Pallas kernels, by the unit that binds them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from meshwright.machine import load_machine
from meshwright.predict.roofline.kernel_time import (
    ALUS,
    STEP_CYCLES,
    Bound,
    KernelTraffic,
    kernel_time,
)
from meshwright.program.capture import capture
from meshwright.program.ops import OpWork
from meshwright.program.rules.pallas_work import (
    KERNEL_PARAM,
    KernelSection,
    PallasKernel,
)

CHIP = replace(load_machine("tpu-v5e").chip, efficiency={})
"""A chip that reaches all its peaks."""
CYCLE_S = 1 / 1.5e9
MANY = 10_000


def product(dtype):
    """The op of a product of 512 x 512 blocks."""
    block = jax.ShapeDtypeStruct((512, 512), dtype)
    return capture(jnp.matmul, (block, block)).program.ops[0]


def time_of(*stretches, steps=MANY, num_bytes=0, told=None):
    """The time of an op that calls a kernel of these sections; operands do not matter."""
    op = product(jnp.float32)
    kernel = PallasKernel(steps, stretches, num_bytes, told)
    op = replace(op, params={**op.params, KERNEL_PARAM: kernel})
    return kernel_time(op, OpWork(), KernelTraffic(1e12, 10**12), CHIP)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_blocks_of_32_bits_pass_the_matrix_unit_as_16_bits(dtype):
    time = time_of(KernelSection(products=((product(dtype), MANY),)))
    wanted = MANY * (2 * 512**3 / 197e12 + STEP_CYCLES * CYCLE_S)
    assert (time.bound, time.seconds) == (Bound.MATRIX, pytest.approx(wanted))


@pytest.mark.parametrize(
    "stretch",
    [
        KernelSection(rest=OpWork(6_100 * MANY)),
        KernelSection(rest=OpWork(1, transcendentals=6_100 * MANY // ALUS)),
        KernelSection(stored=6_100 * MANY // ALUS),
    ],
)
def test_the_busiest_slot_of_the_vector_unit_sets_the_time(stretch):
    time = time_of(stretch)
    wanted = MANY * (6_100 / 6.1e12 + STEP_CYCLES * CYCLE_S)
    assert (time.bound, time.seconds) == (Bound.VECTOR, pytest.approx(wanted))


def test_sections_run_in_sequence_and_the_units_of_one_in_parallel():
    matrix = KernelSection(products=((product(jnp.bfloat16), MANY),))
    vector = KernelSection(rest=OpWork(10_000 * MANY))
    together = replace(matrix, rest=vector.rest)
    assert time_of(matrix, vector).seconds == pytest.approx(
        time_of(matrix).seconds + time_of(vector, steps=0).seconds
    )
    assert time_of(together).seconds == time_of(matrix).seconds


def test_blocks_move_while_units_work():
    slow = time_of(KernelSection(rest=OpWork(1)), num_bytes=819e9)
    assert (slow.bound, slow.seconds) == (Bound.MEMORY, pytest.approx(1.0))


def test_a_kernels_own_cost_estimate_replaces_the_count():
    stretch = KernelSection(rest=OpWork(10**9))
    half = time_of(stretch, steps=0, told=OpWork(10**9 // 2))
    assert half.seconds == pytest.approx(time_of(stretch, steps=0).seconds / 2)


def test_a_tiny_pallas_kernel_takes_its_launch():
    assert time_of(steps=1).seconds == CHIP.launch_s
