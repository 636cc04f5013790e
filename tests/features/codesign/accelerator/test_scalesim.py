"""Cycles of products against SCALE-Sim 3.0.0, which simulates every cycle."""

import contextlib
import io
import time

import numpy as np
import pytest

from meshwright.codesign import accelerator as acc

pytestmark = [
    pytest.mark.codesign,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # files that it leaves open
]

ROWS, COLUMNS, BUFFER_KB = 16, 16, 64

CONFIG = """
[general]
run_name = run
[run_presets]
InterfaceBandwidth = {mode}
UseRamulatorTrace = False
[architecture_presets]
ArrayHeight = {rows}
ArrayWidth = {columns}
IfmapSramSzkB = {kb}
FilterSramSzkB = {kb}
OfmapSramSzkB = {kb}
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Dataflow = {dataflow}
Bandwidth = {rate}
ReadRequestBuffer = 512
WriteRequestBuffer = 512
[layout]
IfmapCustomLayout = False
IfmapSRAMBankBandwidth = {rate}
IfmapSRAMBankNum = 1
IfmapSRAMBankPort = 2
FilterCustomLayout = False
FilterSRAMBankBandwidth = {rate}
FilterSRAMBankNum = 1
FilterSRAMBankPort = 2
[sparsity]
SparsitySupport = false
"""

DESIGN = acc.Design.load("tpu-v4i").changed(
    pes=(1, 1), array=(ROWS, COLUMNS), preloads=0, number="int8", global_bytes=0,
    l1="private", l1_bytes=(BUFFER_KB << 10,) * 3, dram_channels=1,
)  # fmt: skip


def simulated_cycles(folder, m, n, k, dataflow, rate=0):
    """Total cycles with `rate` bytes a cycle for each operand; 0 for no stalls."""
    from scalesim.scale_sim import scalesim

    texts = {
        "config.cfg": CONFIG.format(
            mode="USER" if rate else "CALC", rows=ROWS, columns=COLUMNS, kb=BUFFER_KB,
            dataflow=dataflow, rate=rate or 10,
        ),
        "topology.csv": f"Layer,M,N,K,\nlayer,{m},{n},{k},\n",
        "layout.csv": "Layer,\nlayer," + "1," * 24 + "\n",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    config, topology, layout = (str(folder / name) for name in texts)
    with contextlib.redirect_stdout(io.StringIO()):
        made = scalesim(
            save_disk_space=True, verbose=False, config=config, topology=topology,
            layout=layout, input_type_gemm=True,
        )  # fmt: skip
        made.run_scale(top_path=str(folder))
    row = (folder / "run" / "COMPUTE_REPORT.csv").read_text().splitlines()[1]
    return int(float(row.split(",")[2]))


def products(count, seed):
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield dict(zip("mnk", map(int, random.integers(8, 150, 3)), strict=True))


@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_cycles_without_stalls_are_one_more(dataflow, tmp_path):
    simulated_s, mapped_s = 0.0, 0.0
    acc.map_product(DESIGN, m=8, n=8, k=8, dataflow=dataflow)  # compiles the mapper
    for product in products(34, seed=0):
        began = time.process_time()
        simulated = simulated_cycles(tmp_path, **product, dataflow=dataflow)
        ended = time.process_time()
        found = acc.map_product(DESIGN, **product, dataflow=dataflow)
        mapped_s += time.process_time() - ended
        simulated_s += ended - began
        assert found.cycles == simulated + 1
    assert simulated_s > 100 * mapped_s


@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_cycles_at_a_bandwidth_are_within_a_tenth(dataflow, tmp_path):
    rate = 16
    design = DESIGN.changed(dram_channel_bytes_per_s=rate * DESIGN.chip.clock_hz)
    for product in products(30, seed=1):
        simulated = simulated_cycles(tmp_path, **product, dataflow=dataflow, rate=rate)
        found = acc.map_product(design, **product, dataflow=dataflow)
        cycles = found.cycles + found.stall_cycles
        assert cycles == pytest.approx(simulated, rel=0.1)
