"""Exact offsets of a plan's buffers, beside the compiler's packing."""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.errors import PlanError
from meshwright.features.allocate import Allocation, AllocationOutcome, Buffer
from meshwright.features.allocate.problem.packing_check import faults
from meshwright.features.allocate.step_offsets import ExactOffsets


def step(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return (x**2).mean()


@pytest.fixture(scope="module")
def plan():
    struct = jax.ShapeDtypeStruct
    params = [struct((512, n), jnp.float32) for n in (512, 512, 512)]
    grad = mw.partition(jax.grad(step), {"data": 2}, [mw.data_parallel("data")])
    return grad.plan(params, struct((4096, 512), jnp.float32)).on("tpu-v5e")


def test_offsets_are_a_packing_not_above_the_compilers(plan):
    found = plan.offsets(seconds=1)
    allocation = found.allocation
    assert not list(faults(allocation.buffers, allocation.offsets, None))
    assert allocation.bound <= found.heap_bytes <= found.compiler_bytes
    assert found.gained_bytes == found.compiler_bytes - found.heap_bytes
    memory = plan.estimate.memory
    assert found.peak_bytes + found.gained_bytes == memory.peak_bytes
    assert found.to_csv().splitlines()[0] == "id,lower,upper,size,offset"


def packed(height, compiler, usable):
    allocation = Allocation(
        AllocationOutcome.PACKED,
        (Buffer("x", 0, 1, height),),
        None,
        (0,),
        height,
        "",
        0,
        0.0,
    )
    return ExactOffsets(usable, 10, 5, compiler, allocation)


@pytest.mark.parametrize(
    ("usable", "fits", "fits_only_so", "words"),
    [
        (200, True, False, "fits: "),
        (100, True, True, "fits only with these offsets"),
        (90, False, False, "does not fit"),
    ],
)
def test_a_step_that_fits_only_by_our_packing_says_so(
    usable, fits, fits_only_so, words
):
    found = packed(80, 90, usable)
    assert found.gained_bytes == 10
    assert (found.fits, found.fits_only_so) == (fits, fits_only_so)
    assert words in str(found)
    assert "gained     10 bytes" in str(found)


def test_a_packing_that_is_higher_gains_nothing():
    found = packed(100, 90, 200)
    assert (found.heap_bytes, found.gained_bytes) == (90, 0)


def test_a_plan_read_from_json_has_no_buffers(plan):
    with pytest.raises(PlanError, match="a plan read from JSON has"):
        mw.Plan.from_json(plan.to_json()).offsets()
