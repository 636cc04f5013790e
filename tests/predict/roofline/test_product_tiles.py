"""Times of products by tiles on several cores: laws, and shapes with a closed form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.machine import load_machine
from meshwright.predict.roofline.kernel_time import matrix_s
from meshwright.predict.roofline.product_tiles import (
    PRODUCT_EDGE,
    Cores,
    tiled_product_s,
)
from meshwright.program.ir import Op, Value

PEAK, NUM_CORES = 312e12, 108
CORES = Cores(NUM_CORES, PEAK, 0.0)
FILL_S = 3e-6
EXTENTS = st.tuples(
    st.integers(1, 64), st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000)
)


def busy_s(extents, cores=CORES, itemsize=2):
    """Seconds without the filling of the cores."""
    return tiled_product_s(extents, itemsize, cores) - FILL_S


@given(EXTENTS)
def test_no_product_exceeds_the_peak(extents):
    batch, rows, columns, summed = extents
    flops = 2 * batch * rows * columns * summed
    assert busy_s(extents) >= flops / PEAK * (1 - 1e-9)


@given(EXTENTS)
def test_faster_reads_of_the_cache_never_take_longer(extents):
    slow, fast = (
        CORES._replace(read_bytes_per_s=3e10),
        CORES._replace(read_bytes_per_s=6e10),
    )
    assert busy_s(extents, fast) <= busy_s(extents, slow) * (1 + 1e-9)


def test_tiles_that_fill_all_cores_reach_the_peak():
    extents = 1, 128 * NUM_CORES, 256, 4096
    flops = 2 * 128 * NUM_CORES * 256 * 4096
    assert busy_s(extents) == pytest.approx(flops / PEAK)


def test_one_tile_more_than_the_cores_takes_another_wave():
    """Wave quantization: a batch of products of one tile each."""
    full, more = (busy_s((count, 64, 64, 4096)) for count in (NUM_CORES, NUM_CORES + 1))
    assert more == pytest.approx(2 * full)


def test_a_product_of_few_tiles_is_cut_along_the_sum():
    one = 2 * 64 * 64 * 65536 / (PEAK / NUM_CORES)
    assert busy_s((1, 64, 64, 65536)) < one / 50


def test_small_tiles_wait_for_the_cache():
    """Two stripes of 64 elements of two bytes for each of the summed elements."""
    cores = CORES._replace(read_bytes_per_s=1e10)
    extents = NUM_CORES, 64, 64, 200
    assert busy_s(extents, cores) == pytest.approx(200 * 128 * 2 / 1e10)


def test_each_wave_of_tiles_starts_and_ends():
    """Two waves of 512 summed elements, of which each waits for 96 more."""
    extents = 2 * NUM_CORES, 64, 64, 512
    one = 2 * 64 * 64 / (PEAK / NUM_CORES)
    seconds = tiled_product_s(extents, 2, CORES, PRODUCT_EDGE) - FILL_S
    assert seconds == pytest.approx(2 * (512 + 96) * one)


@pytest.mark.parametrize(
    "name", ["v100", "a100-40g", "a100-80g", "h100", "h200", "b200"]
)
def test_a_large_product_reaches_the_share_that_its_preset_states(name):
    chip = load_machine(name, 8).chip
    size = 16384
    operands = [Value((size, size), "float16") for _ in range(2)]
    numbers = ((1,), (0,)), ((), ())
    result = (Value((size, size), "float16"),)
    op = Op("dot_general", tuple(operands), result, {"dimension_numbers": numbers})
    reached = 2 * size**3 / matrix_s(op, chip) / chip.peak_flops_per_s("float16")
    assert reached == pytest.approx(chip.efficiency["product"].share(1.0), rel=0.03)
