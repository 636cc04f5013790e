"""PartIR's Table 4 by our simulator: T32 at full size, relations between schedules.

Theirs is a simulator too, of 32 cores of TPU v3. On its own terms ("counted":
operations and bytes sent) its relations must hold; on the machine as it is ("tpu-v3":
memory, overlap and 16-bit weights as well) some do not, and the tests say by how much.
"""

from itertools import pairwise

import pytest

from benchmarks.papers.partir import as_counted, it32, t32, tpu_v3
from benchmarks.papers.published import T32

pytestmark = pytest.mark.slow

MACHINES = ("tpu-v3", "counted")


def step_s(schedule, machine):
    return t32(schedule)[machine]["step_s"]


def held_bytes(schedule, machine):
    return t32(schedule)[machine]["bytes"]


def test_both_machines_are_sixteen_chips():
    for machine in (tpu_v3(), as_counted()):
        assert (machine.num_devices, machine.num_chips) == (32, 16)
        assert sorted(dim.extent for dim in machine.grid) == [1, 4, 8]


# -- times ------------------------------------------------------------------------------


def test_zero_2_takes_as_long_as_no_zero():
    """Theirs to the digit; ours but for the latency of as many collectives more."""
    assert step_s("bp+mp+z2", "counted") == pytest.approx(
        step_s("bp+mp", "counted"), rel=1e-3
    )


def test_zero_2_is_a_little_faster_where_scatters_are_hidden():
    """Its reduce-scatters overlap with the backward pass, and Adam reads less."""
    before, after = (t32(s)["tpu-v3"] for s in ("bp+mp", "bp+mp+z2"))
    assert 0.94 < after["step_s"] / before["step_s"] < 1
    assert after["breakdown"]["reduce_scatter hidden"] > 0
    assert after["breakdown"]["compute"] < before["breakdown"]["compute"]


def test_zero_3_is_slower_by_its_second_gathers():
    """Theirs 2.1 %; ours 3 %: twice the gathers of ZeRO-2, at the same bytes each."""
    ratio = step_s("bp+mp+z3", "counted") / step_s("bp+mp+z2", "counted")
    assert 1.01 < ratio < 1.05
    gathers = [
        t32(s)["counted"]["breakdown"]["all_gather exposed"]
        for s in ("bp+mp+z2", "bp+mp+z3")
    ]
    assert gathers[1] == pytest.approx(2 * gathers[0], rel=0.1)


def test_zero_3_costs_no_time_where_gathers_are_hidden():
    """On the machine weights are gathered in 16 bits and behind computation: within 2 %."""
    ratio = step_s("bp+mp+z3", "tpu-v3") / step_s("bp+mp+z2", "tpu-v3")
    assert ratio == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("machine", MACHINES)
def test_model_parallelism_alone_is_about_2_2_times_slower(machine):
    """4 parts instead of 8 make 2; activations are reduced at 8 times the size."""
    published = T32["mp"][1] / T32["bp"][1]
    assert step_s("mp", machine) / step_s("bp", machine) == pytest.approx(
        published, rel=0.15
    )


# -- memory -----------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_falls_from_schedule_to_schedule_as_in_the_paper(machine):
    falling = ("mp", "bp", "bp+mp", "bp+mp+z2", "bp+mp+z3")
    for more, less in pairwise(falling):
        assert T32[more][0] > T32[less][0]
        assert held_bytes(more, machine) > held_bytes(less, machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("before", "after"), [("bp+mp", "bp+mp+z2"), ("bp+mp+z2", "bp+mp+z3")]
)
def test_zero_saves_the_same_bytes_as_in_the_paper(before, after, machine):
    """State and parameters; a megabyte is one of 2^20 bytes.

    The step does not donate its state, which a TPU then holds twice, as input and result.
    They count it once, and so does "counted", where other values take a result's place.
    """
    copies = 2 if machine == "tpu-v3" else 1
    ours = held_bytes(before, machine) - held_bytes(after, machine)
    theirs = copies * (T32[before][0] - T32[after][0]) * 2**20
    assert ours == pytest.approx(theirs, rel=0.05)


# -- serving ----------------------------------------------------------------------------


def test_serving_schedules_have_the_papers_order_if_collectives_have_latency():
    """BP, then BP+MP, and MP far behind: with few sequences, of which they state none.

    Two all-reduces a layer and token take longer to start than the operations saved.
    """
    data, both, model = (
        it32(s, batch=16)["counted"]["step_s"] for s in ("bp", "bp+mp", "mp")
    )
    assert data < both < model / 2.5


def test_serving_on_the_real_machine_is_limited_by_memory():
    """BP reads all weights for every token, BP+MP a quarter: their order is reversed."""
    data, both, model = (
        it32(s, batch=64)["tpu-v3"]["step_s"] for s in ("bp", "bp+mp", "mp")
    )
    assert both < data < model
