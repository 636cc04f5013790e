"""Products in zigzag-dse 3.9.1 (in requirements-codesign.lock), which searches mappings."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from meshwright.codesign import accelerator as acc
from meshwright.features.codesign.accelerator.cost.figures import multiply_add_pj
from meshwright.features.codesign.accelerator.cost.joules import pj_per_byte
from meshwright.features.codesign.accelerator.mapping.product import SUM_BYTES

ROWS, COLUMNS, BUFFER_BYTES, DRAM_RATE = 32, 32, 256 << 10, 64

PORT_BYTES = 4096
"""Bytes that the buffer reads and writes a cycle: so many that it never stalls."""

LONGEST = 6
"""The number of loops whose orders zigzag enumerates."""

DESIGN = acc.Design.load("tpu-v4i").changed(
    pes=(1, 1), array=(ROWS, COLUMNS), preloads=1, number="int8", global_bytes=0,
    l1="shared", l1_bytes=(BUFFER_BYTES,), l2_bytes=0, dram_channels=1,
)  # fmt: skip
DESIGN = DESIGN.changed(dram_channel_bytes_per_s=DRAM_RATE * DESIGN.chip.clock_hz)
"""A weight-stationary array with one buffer, and 64 bytes of main memory a cycle."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Cycles and picojoules of a product, as zigzag counts them."""

    cycles: float
    energy_pj: float


def counted(
    folder: Path,
    extents: Mapping[str, int],
    goal: str,
    loops: Sequence[tuple[str, int]] = (),
    weights_rate: int = PORT_BYTES,
) -> Counted:
    """The best mapping that zigzag finds for a goal, or its count of given loops.

    goal: "energy", "latency", or "EDP" for their product.
    loops: loops over folds and tiles, the innermost first.
    weights_rate: bytes of weights that the array takes in a cycle; with `COLUMNS` it loads
        row by row, as ours does, but zigzag's energy is then too large.
    """
    from zigzag.api import get_hardware_performance_zigzag

    mapping = {
        "name": "default",
        "spatial_mapping": {"D1": [f"K, {ROWS}"], "D2": [f"N, {COLUMNS}"]},
        "memory_operand_links": {"O": "O", "W": "I2", "I": "I1"},
    }
    if loops:
        mapping["temporal_ordering"] = [list(loop) for loop in loops]
    texts = {
        "hardware": _hardware(weights_rate),
        "mapping": [mapping],
        "workload": [_layer(extents)],
    }
    paths: dict[str, str] = {}
    for name, content in texts.items():
        paths[name] = str(folder / f"{name}.yaml")
        Path(paths[name]).write_text(yaml.safe_dump(content, sort_keys=False))
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            energy_pj, cycles, *_ = get_hardware_performance_zigzag(
                paths["workload"], paths["hardware"], paths["mapping"], opt=goal,
                dump_folder=str(folder / "dump"), lpf_limit=LONGEST,
                loma_show_progress_bar=False,
            )  # fmt: skip
    finally:
        logging.disable(logging.NOTSET)
    return Counted(float(cycles), float(energy_pj))


def loops_of(
    mapping: Any, extents: Mapping[str, int], divides: bool
) -> list[tuple[str, int]]:
    """The loops of a mapping of ours over folds and tiles, the innermost first.

    Zigzag's tiles divide a dim. divides: whether the next smaller tile that divides it
        stands for ours; if not, as many of our tiles as cover the dim.
    """
    tiling = mapping.tilings["l1"]
    tile = dict(zip("MNK", tiling.tile, strict=True))
    unit = {"M": 1, "N": COLUMNS, "K": ROWS}
    inside: dict[str, int] = {}
    for dim in "MKN":
        folds, taken = -(-extents[dim] // unit[dim]), max(1, tile[dim] // unit[dim])
        if tile[dim] >= extents[dim]:
            taken = folds
        inside[dim] = _divisor(folds, taken) if divides else taken
    outside = [
        (dim, -(-extents[dim] // (inside[dim] * unit[dim])))
        for dim in reversed(tiling.order.upper())
    ]
    return [(dim, trips) for dim, trips in (*inside.items(), *outside) if trips > 1]


def covered(
    loops: Sequence[tuple[str, int]], extents: Mapping[str, int]
) -> dict[str, int]:
    """The extents that loops cover; zigzag's loops have no smaller last iteration."""
    units = {"M": 1, "N": COLUMNS, "K": ROWS}
    for dim, trips in loops:
        units[dim] *= trips
    looped = {dim for dim, _ in loops}
    return {d: units[d] if d in looped else n for d, n in extents.items()}


def _divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most `most`."""
    return next(d for d in range(min(most, number), 0, -1) if number % d == 0)


def _hardware(weights_rate: int) -> dict[str, Any]:
    """The design as zigzag describes hardware."""
    chip = DESIGN.chip
    both, operands = ["D1", "D2"], ["I1", "I2", "O"]
    reads = [f"{each}, tl" for each in operands] + ["O, th"]
    writes = [f"{each}, fh" for each in operands] + ["O, fl"]
    # a port for each: zigzag lets none serve two accesses in a cycle
    rates = {"I2, tl": weights_rate}
    buffer = [
        _port(f"{kind[0]}_port_{i + 1}", kind, rates.get(each, PORT_BYTES), [each])
        for kind, ends in (("read", reads), ("write", writes))
        for i, each in enumerate(ends)
    ]
    dram = (_port("rw_port_1", "read_write", DRAM_RATE, reads + writes),)
    weights = (
        _port("r_port_1", "read", 1, ["I2, tl"]),
        _port("w_port_1", "write", 1, ["I2, fh"]),
    )
    return {
        "name": "array",
        "memories": {
            # two weights in each unit, one of which the next fold needs
            "registers": _memory(2, 1, 0.0, ["I2"], weights, []),
            "buffer": _memory(
                BUFFER_BYTES, PORT_BYTES, pj_per_byte("l1", chip), operands, buffer, both
            ),
            "dram": _memory(
                1 << 40, DRAM_RATE, pj_per_byte("dram", chip), operands, dram, both
            ),
        },
        "operational_array": {
            "input_precision": [8, 8],
            "unit_energy": multiply_add_pj(chip.number, chip.node_nm),
            "unit_area": 1, "dimensions": both, "sizes": [ROWS, COLUMNS],
            "systolic_dimensions": both,
        },
    }  # fmt: skip


def _memory(
    size: int, width: int, pj: float, operands: Sequence[str],
    ports: Sequence[dict[str, Any]], served: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    """A memory of `size` bytes; an access of `width` bytes takes `pj` for each of them."""
    return {
        "size": 8 * size, "r_cost": pj * width, "w_cost": pj * width, "area": 0,
        "latency": 1, "operands": list(operands), "ports": list(ports),
        "served_dimensions": list(served), "force_double_buffering": size == BUFFER_BYTES,
    }  # fmt: skip


def _port(name: str, kind: str, width: int, served: Sequence[str]) -> dict[str, Any]:
    return {
        "name": name, "type": kind, "bandwidth_min": 8, "bandwidth_max": 8 * width,
        "allocation": list(served),
    }  # fmt: skip


def _layer(extents: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": 0, "name": "product", "operator_type": "Gemm",
        "equation": "O[m][n]+=I[m][k]*W[k][n]",
        "loop_dims": list(extents), "loop_sizes": list(extents.values()),
        "operand_precision": {"I": 8, "W": 8, "O": 8 * SUM_BYTES, "O_final": 8},
        "operand_source": {"I": 0, "W": 0},
    }  # fmt: skip
