"""Measures this process's devices, and describes them as a machine.

An op is timed in a chain of itself inside one program, less what starting a program
takes: what it costs in the middle of a step. All devices run the chain at once, as in a
step, so that virtual devices that share cores are measured sharing them.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshwright.cost.collective import COLLECTIVE_S
from meshwright.errors import MachineError
from meshwright.machine import Dim, Kind, Level, Machine, parse_machine
from meshwright.machine.placement import Segment
from meshwright.machine.write import (
    Probe,
    Samples,
    machine_toml,
    measured_chip,
    rounded,
)

_AXIS = "devices"
_DTYPES = ("float32", "bfloat16", "float16")  # the first stands for all others
_MUL_ADDS = 128  # on each element: so many that memory does not bound them
_MANY = 128  # tiny ops in a chain
_SLOW_S = 0.5  # an op that takes this long is the last of its kind
_GROWTH = 4.0  # times longer that the next probe may take, with compilation
_SHORT_S = 10.0  # budgets below have fewer repetitions
_SETTLED_S = 0.02  # a program is repeated for this long at least


ProgramTimer = Callable[[Probe, int], float]
"""Seconds of a program that is a chain of so many of the op."""

TINY = Probe("copy", 64, ((8,), ()))


def calibrate(
    path: str | Path | None = None,
    *,
    name: str = "this-machine",
    budget_s: float = 30.0,
    progress: bool = True,
) -> Machine:
    """This process's devices as a machine, measured; its TOML is written to `path`.

    `mw.machine(path, chips=n)` reads it. Every number has its source; power and price,
    which nobody measures, are left out.

    budget_s: about how long it takes. A short one has fewer sizes and repetitions, but
        every kind of op is compiled and run at least once.
    progress: say on stderr what is measured, where that is a terminal.
    Raises `MachineError` for a folder that does not exist, a file that does not end in
    .toml, or a budget that is not above 0.
    """
    target = None if path is None else _checked(Path(path))
    if not 0 < budget_s < math.inf:
        raise MachineError(f"budget_s is {budget_s}; wanted seconds above 0")
    devices = jax.local_devices()
    repeats = 5 if budget_s >= _SHORT_S else 2
    how = f"best of {repeats} or more, jax {jax.__version__}, {devices[0].platform}"
    with _telling(progress) as tell:
        timer = program_timer(devices, repeats, tell)
        samples = survey(timer, len(devices), budget_s)
    text = machine_toml(describe(samples, devices, name, how))
    if target is not None:
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise MachineError(f"cannot write {target}: {error.strerror}") from None
    return parse_machine(text, name, len(devices))


def _checked(path: Path) -> Path:
    if path.suffix != ".toml":
        raise MachineError(f"path is {path}; wanted a file that ends in .toml")
    if not path.parent.is_dir():
        raise MachineError(f"there is no folder {path.parent}; make it first")
    return path


@contextmanager
def _telling(is_wanted: bool) -> Generator[Callable[[object], None]]:
    """What shows a line on stderr, or nothing where nobody watches."""
    if not is_wanted or not sys.stderr.isatty():
        yield lambda what: None
        return
    from rich.console import Console

    with Console(stderr=True).status("calibrating ...") as status:
        yield lambda what: status.update(f"calibrating: {what} ...")


# -- what is measured ---------------------------------------------------------------


def probes_of(num_devices: int) -> list[tuple[float, int, list[Probe]]]:
    """By kind of op: its share of the budget, how many probes it needs, all of them."""
    sides = [16 << i for i in range(10)]
    products, *other_products = [
        [Probe("matmul", 2 * n**3, ((n, n), (n, n)), dtype) for n in sides]
        for dtype in _DTYPES
    ]
    images = ((1, 8, 8), (1, 16, 16), (2, 32, 32), (8, 32, 64), (16, 64, 128))
    vectors = [
        Probe("mul-adds", 256 << i, ((1 << i,), (), ())) for i in range(8, 23, 2)
    ]
    copies = [Probe("copy", 8 << i, ((1 << i,), ())) for i in range(10, 27, 2)]
    collectives = [
        _collective(kind, exponent, num_devices)
        for exponent in (12, 21, 15, 18, 24, 27)  # two far ends make a line
        for kind in sorted(COLLECTIVE_S)
    ]
    return [
        (2.0, 1, products),
        (2.0, 1, [_convolution(*image) for image in images]),
        (1.0, 1, vectors),
        (1.0, 1, copies),
        *((1.0, 0, each) for each in other_products),
        *([(4.0, 6, collectives)] if num_devices > 1 else []),
    ]


def _convolution(batch: int, side: int, channels: int) -> Probe:
    """Of 3x3, with a padding that keeps the size; what falls on it does not count."""
    flops = 2 * batch * channels**2 * (3 * side - 2) ** 2
    shapes = (batch, side, side, channels), (3, 3, channels, channels)
    return Probe("convolution", flops, shapes)


def _collective(kind: str, exponent: int, num_devices: int) -> Probe:
    shard = max(1, 2**exponent // (4 * num_devices))
    held = shard if kind == "all_gather" else shard * num_devices
    return Probe(kind, 4 * shard * num_devices, ((held,),))


def survey(
    program_s: ProgramTimer,
    num_devices: int,
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Samples:
    """One op of each probe, from small sizes to as large ones as there is time for.

    The first is a tiny op. What a kind leaves of its share is there for the next ones.
    """
    end_s = clock() + budget_s
    start_program_s = program_s(TINY, 1)
    tiny_s = (program_s(TINY, _MANY) - start_program_s) / (_MANY - 1)
    samples = [(TINY, max(tiny_s, 1e-9))]
    planned = probes_of(num_devices)
    for index, (share, needed, probes) in enumerate(planned):
        shares = sum(each[0] for each in planned[index:])
        until_s = clock() + (end_s - clock()) * share / shares
        op_s = took_s = 0.0
        for number, probe in enumerate(probes):
            start_s = clock()
            is_late = start_s + _GROWTH * took_s > until_s
            if number >= needed and (is_late or op_s > _SLOW_S):
                break
            count = 16 if op_s < 1e-3 else 2
            total_s = program_s(probe, count)
            op_s = max(total_s - start_program_s, total_s / 10) / count
            samples.append((probe, op_s))
            took_s = clock() - start_s
    return samples


# -- how it is measured -------------------------------------------------------------


def program_timer(
    devices: Sequence[Any], repeats: int, tell: Callable[[object], None]
) -> ProgramTimer:
    """Runs chains on all devices at once; the best of `repeats` runs or more."""
    mesh = jax.sharding.Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    values = np.random.default_rng(0).standard_normal(1 << 16)

    def program_s(probe: Probe, count: int) -> float:
        tell(probe)
        is_collective = probe.kind in COLLECTIVE_S
        spec = P(_AXIS) if is_collective else P()
        copies = len(devices) if is_collective else 1
        scale = math.prod(probe.shapes[-1][:-1]) ** -0.5  # of a kernel: keeps the norm
        operands = [
            np.resize(values * scale, (copies * s[0], *s[1:]) if s else ())
            for s in probe.shapes
        ]
        placed = [
            jax.device_put(o.astype(probe.dtype), NamedSharding(mesh, spec))
            for o in operands
        ]
        run = _chain(probe.kind, count, len(devices))
        if is_collective:
            run = jax.shard_map(
                run, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
            )
        return _best_s(jax.jit(run), placed, repeats)

    return program_s


def _best_s(run: Callable[..., Any], operands: Sequence[Any], repeats: int) -> float:
    jax.block_until_ready(run(*operands))
    times = list[float]()
    while len(times) < repeats or sum(times) < _SETTLED_S:
        start_s = time.perf_counter()
        jax.block_until_ready(run(*operands))
        times.append(time.perf_counter() - start_s)
    return min(times)


def _chain(kind: str, count: int, num_devices: int) -> Callable[..., Any]:
    def mul_adds(x: Any, a: Any, b: Any) -> Any:
        for _ in range(_MUL_ADDS):
            x = x * a + b
        return x

    def gathered(x: Any) -> Any:
        return lax.all_gather(x, _AXIS, tiled=True)

    ring = [(i, (i + 1) % num_devices) for i in range(num_devices)]
    layout = ("NHWC", "HWIO", "NHWC")
    ops: dict[str, tuple[Callable[..., Any], ...]] = {
        "copy": (lambda x, b: x + b,),
        "mul-adds": (mul_adds,),
        "matmul": (lambda x, w: x @ w,),
        "convolution": (
            lambda x, w: lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=layout
            ),
        ),
        "all_gather": (gathered, lambda y: y[: y.shape[0] // num_devices]),
        "all_reduce": (lambda x: lax.psum(x, _AXIS),),
        "all_to_all": (lambda x: lax.all_to_all(x, _AXIS, 0, 0, tiled=True),),
        "permute": (lambda x: lax.ppermute(x, _AXIS, ring),),
        "reduce_scatter": (
            lambda x: lax.psum_scatter(x, _AXIS, tiled=True),
            gathered,  # or the next would be smaller
        ),
    }

    def run(x: Any, *others: Any) -> Any:
        for op in ops[kind] * count:
            x = lax.optimization_barrier(op(x, *others))
        return x

    return run


# -- what it means ------------------------------------------------------------------


def describe(samples: Samples, devices: Sequence[Any], name: str, how: str) -> Machine:
    """The machine on which the probes would take what they took; without its grid."""
    first, count = devices[0], len(devices)
    chip, sources = measured_chip(samples, _memory(devices), how)
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


def _memory(devices: Sequence[Any]) -> tuple[int, str]:
    stats = devices[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"], "device.memory_stats(): bytes_limit"
    num_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    origin = f"os.sysconf: memory of the host, for {len(devices)} devices"
    return num_bytes // len(devices), origin


def fit_level(samples: Samples, num_devices: int) -> tuple[Level, float]:
    """The switch whose closed forms are nearest, and the median relative error.

    Least squares of the relative error, in latency and seconds per byte.
    """
    op_s = np.array([each for _, each in samples])
    terms = np.array(
        [
            (_modelled_s(probe, _switch(num_devices, math.inf, 1.0)),
             _modelled_s(probe, _switch(num_devices, 1.0, 0.0)))
            for probe, _ in samples
        ]
    )  # fmt: skip
    relative = terms / op_s[:, None]
    norms = np.linalg.norm(relative, axis=0)
    latency_s, byte_s = np.linalg.lstsq(relative / norms, np.ones(len(op_s)))[0] / norms
    if latency_s < 0:
        latency_s, byte_s = 0.0, relative[:, 1].sum() / norms[1] ** 2
    elif byte_s <= 0:  # noise: the fastest that was seen
        byte_s = 1 / relative[:, 1].max()
    level = _switch(num_devices, rounded(1 / byte_s), rounded(latency_s))
    errors = (abs(_modelled_s(p, level) / each - 1) for p, each in samples)
    return level, median(errors)


def _switch(num_devices: int, rate: float, latency_s: float) -> Level:
    return Level("devices", Kind.SWITCH, (num_devices,), rate, latency_s)


def _modelled_s(probe: Probe, level: Level) -> float:
    """Of one op in its chain: a reduce-scatter is followed by an all-gather."""
    count = level.largest
    segments = (Segment(Dim(level, count, is_ring=False), count, 1),)
    seconds = COLLECTIVE_S[probe.kind](probe.size, segments)
    if probe.kind == "reduce_scatter":
        seconds += COLLECTIVE_S["all_gather"](probe.size, segments)
    return seconds
