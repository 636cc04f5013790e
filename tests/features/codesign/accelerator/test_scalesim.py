"""Cycles of products against SCALE-Sim 3.0.0, which simulates every cycle."""

import pytest

from benchmarks.codesign.scalesim_runs import DESIGN, products, simulated_cycles
from meshwright.codesign import accelerator as acc

pytestmark = [
    pytest.mark.codesign,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # files that it leaves open
]


@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_cycles_without_stalls_are_one_more(dataflow, tmp_path):
    for product in products(34, seed=0):
        simulated = simulated_cycles(tmp_path, **product, dataflow=dataflow)
        found = acc.map_product(DESIGN, **product, dataflow=dataflow)
        assert found.cycles == simulated + 1


@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_cycles_at_a_bandwidth_are_within_a_tenth(dataflow, tmp_path):
    rate = 16
    design = DESIGN.changed(dram_channel_bytes_per_s=rate * DESIGN.chip.clock_hz)
    for product in products(30, seed=1):
        simulated = simulated_cycles(tmp_path, **product, dataflow=dataflow, rate=rate)
        found = acc.map_product(design, **product, dataflow=dataflow)
        cycles = found.cycles + found.stall_cycles
        assert cycles == pytest.approx(simulated, rel=0.1)
