"""Products in SCALE-Sim 3.0.0, which simulates every cycle (extra `codesign`)."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from meshwright.codesign import accelerator as acc

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


def simulated_cycles(
    folder: Path, *, m: int, n: int, k: int, dataflow: str, rate: int = 0
) -> int:
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


def products(count: int, seed: int) -> Iterator[dict[str, int]]:
    """Random products of 8 to 149 a side, by the names of their dims."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield dict(zip("mnk", map(int, random.integers(8, 150, 3)), strict=True))
