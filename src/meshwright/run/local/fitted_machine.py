"""The machine description whose cost model fits measured times of ops best."""

import math
import os
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from meshwright.machine import Dim, Kind, Level, Machine
from meshwright.machine.measured_chip import Probe, Samples, measured_chip
from meshwright.machine.placement import Segment
from meshwright.predict.links.collective import COLLECTIVE_S


def describe(samples: Samples, devices: Sequence[Any], name: str, how: str) -> Machine:
    """The machine whose cost model best fits the measured times of ops.

    Its grid, the arrangement of the devices, is not known.

    how: text on the measurement, for the sources of the machine's numbers.
    """
    first, count = devices[0], len(devices)
    chip, sources = measured_chip(samples, device_memory(devices), how)
    levels = list[Level]()
    links = [s for s in samples if s[0].kind in COLLECTIVE_S]
    if links:
        level, error = fit_level(links, count)
        fitted = f"measured: {len(links)} collectives, median error {error:.0%}, {how}"
        levels.append(level)
        for key in ("link_bytes_per_s", "latency_s"):
            sources[f"levels[0].{key}"] = fitted
        sources["levels[0].extents"] = "jax.local_devices()"
    return Machine(
        name=name,
        title=f"{count} x {first.device_kind}, calibrated",
        chip=chip,
        levels=tuple(levels),
        num_devices=count,
        compiler={"cpu": "cpu", "tpu": "tpu"}.get(first.platform, "gpu"),
        sources=sources,
    )


def device_memory(devices: Sequence[Any]) -> tuple[int, str]:
    """Bytes of memory of one device, and the name of the source of this number."""
    stats = devices[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"], "device.memory_stats(): bytes_limit"
    num_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    parts = f", 1/{len(devices)} of it" if len(devices) > 1 else ""
    return num_bytes // len(devices), f"os.sysconf: memory of the host{parts}"


def fit_level(samples: Samples, num_devices: int) -> tuple[Level, float]:
    """The bandwidth and latency of a switch that fit measured collectives best.

    Returns the switch, as a level of a machine, and the median relative error of its
    times. Least squares of the relative error find the latency and the seconds per
    byte.
    """
    op_s = np.array([each for _, each in samples])
    units = _switch(num_devices, math.inf, 1.0), _switch(num_devices, 1.0, 0.0)
    terms = np.array([[_modelled_s(p, unit) for unit in units] for p, _ in samples])
    relative = terms / op_s[:, None]
    norms = np.linalg.norm(relative, axis=0)
    latency_s, byte_s = np.linalg.lstsq(relative / norms, np.ones(len(op_s)))[0] / norms
    if latency_s < 0:
        latency_s, byte_s = 0.0, relative[:, 1].sum() / norms[1] ** 2
    elif byte_s <= 0:  # noise: take the fastest measured rate
        byte_s = 1 / relative[:, 1].max()
    level = _switch(num_devices, float(f"{1 / byte_s:.4g}"), float(f"{latency_s:.4g}"))
    errors = (abs(_modelled_s(p, level) / each - 1) for p, each in samples)
    return level, median(errors)


def _switch(num_devices: int, rate: float, latency_s: float) -> Level:
    return Level("devices", Kind.SWITCH, (num_devices,), rate, latency_s)


def _modelled_s(probe: Probe, level: Level) -> float:
    """Modelled seconds of one step in the chain of ops that a probe times.

    A reduce-scatter is followed by an all-gather, which restores the shape.
    """
    count = level.largest
    segments = (Segment(Dim(level, count, is_ring=False), count, 1),)
    seconds = COLLECTIVE_S[probe.kind](probe.size, segments)
    if probe.kind == "reduce_scatter":
        seconds += COLLECTIVE_S["all_gather"](probe.size, segments)
    return seconds
