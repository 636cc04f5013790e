"""Logs of designs made without a simulator, in both forms."""

import csv
import struct

import numpy as np

from meshwright.features.codesign.accelerator.logs.application import write_application
from meshwright.features.codesign.accelerator.logs.prime_space import (
    NAMES,
    draw,
    values_of,
)
from meshwright.features.codesign.accelerator.logs.write_logs import COLUMNS
from meshwright.features.codesign.accelerator.offline.tfrecord import masked_crc32c


def rows(count, power=1.0, cap=60.0, seed=0):
    """Designs whose time falls, and whose area grows, with the number of multipliers."""
    for number in range(count):
        values = values_of(draw(seed, number))
        macs = values["pes_x"] * values["pes_y"] * values["simd"] * values["lanes"]
        area = 5 + macs / 1000 + values["pe_memory"] * values["pes_x"] / 2**23
        runtime = 1 + (1e4 / macs) ** power + 20 / values["dram_gb_per_s"]
        yield values, runtime, area, area > cap


def write_csv(path, designs, context=None):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for values, runtime, area, is_infeasible in designs:
            found = "" if is_infeasible else repr(float(np.float32(runtime)))
            writer.writerow(
                {
                    **values,
                    "runtime_ms": found,
                    "area_mm2": repr(float(np.float32(area))),
                    "infeasible": int(is_infeasible),
                    "reason": "area" if is_infeasible else "",
                }
            )
    if context is not None:
        write_application(path.with_suffix(".json"), context)


def field(number, kind, payload):
    head = bytes([number << 3 | kind])
    return head + (varint(len(payload)) if kind == 2 else b"") + payload


def varint(value):
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def example(features):
    """A serialised `tf.train.Example`: floats as packed lists, whole numbers as int64."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, int):
            feature = field(3, 2, field(1, 2, varint(value)))
        else:
            feature = field(2, 2, field(1, 2, struct.pack("<f", value)))
        entries += field(1, 2, field(1, 2, name.encode()) + field(2, 2, feature))
    return field(1, 2, entries)


def record(payload):
    length = struct.pack("<Q", len(payload))
    sums = (masked_crc32c(part) for part in (length, payload))
    first, second = (struct.pack("<I", crc) for crc in sums)
    return length + first + payload + second


def records(designs):
    """The records of designs in the published form, with names in another order."""
    for values, runtime, area, is_infeasible in designs:
        named = {f"param_{i + 1}": float(values[n]) for i, n in enumerate(NAMES)}
        figures = {"runtime": float(runtime), "area": float(area)}
        yield record(example({**figures, **named, "infeasible": int(is_infeasible)}))
