"""Calibration: measurements of this process's devices, described as a machine.

An op is timed as a chain of copies of itself in one program, minus the time to start a
program, so that the result is its time in the middle of a step. All devices run the
chain at once, as in a step, so that virtual devices which share cores are measured
while they share them.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from meshwright.errors import MachineError
from meshwright.machine import Machine, parse_machine
from meshwright.machine.measured_chip import (
    MUL_ADDS,
    TINY,
    Probe,
    Samples,
    machine_toml,
    probes_of,
)
from meshwright.predict.links.collective import COLLECTIVE_S
from meshwright.run.local.fitted_machine import describe, device_memory

_AXIS = "devices"
_TINY_OPS = 128  # length of the chain of tiny ops
_QUICK_S = 4e-3  # shorter ops are timed in a long chain
_SLOW_S = 2.0  # longer ops are left out
_GROWTH = 4.0  # ratio by which the next probe may take longer, compilation included
_SHORT_S = 10.0  # shorter budgets have fewer repetitions
_MIN_REPEATED_S = 0.02  # a program is repeated at least this long

ProgramTimer = Callable[[Probe, int], float]
"""A function that takes an op to time and a number n.

It returns the seconds of a program that is a chain of n such ops.
"""


def calibrate(
    path: str | Path | None = None,
    *,
    name: str = "this-machine",
    budget_s: float = 30.0,
    progress: bool = True,
) -> Machine:
    """A machine with the measured numbers of this process's devices.

    Its TOML is written to `path`, and `mw.machine(path, chips=n)` reads it. Every number
    has its source; power and price are not measured and left out.

    budget_s: approximate seconds of the calibration. A short one measures fewer sizes with
        fewer repetitions, but compiles and runs every kind of op at least once.
    progress: write to stderr which probe is measured, if that is a terminal.
    Raises `MachineError` for a folder that does not exist, a file that does not end in
    .toml, or a budget that is not above 0.
    """
    target = None if path is None else _checked(Path(path))
    if not 0 < budget_s < math.inf:
        raise MachineError(f"budget_s is {budget_s}; wanted seconds above 0")
    devices = jax.local_devices()
    show = _show if progress and sys.stderr.isatty() else lambda what: None
    text = machine_toml(measure(devices, name, budget_s, show))
    show("")
    if target is not None:
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise MachineError(f"cannot write {target}: {error.strerror}") from None
    return parse_machine(text, name, len(devices))


def measure(
    devices: Sequence[Any],
    name: str,
    budget_s: float,
    show: Callable[[str], None] = lambda what: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Machine:
    """The machine that timed ops (probes) on these devices describe.

    Its grid, the arrangement of the devices, is not measured.

    clock: function that returns the seconds by which ops are timed. If other work
        shares the cores, the CPU seconds of a process of one thread equal the time on a
        quiet machine.
    """
    repeats = 5 if budget_s >= _SHORT_S else 2
    how = f"best of {repeats} or more, jax {jax.__version__}, {devices[0].platform}"
    timer = program_timer(devices, repeats, show, clock)
    samples = survey(timer, len(devices), device_memory(devices)[0], budget_s)
    return describe(samples, devices, name, how)


def _checked(path: Path) -> Path:
    if path.suffix != ".toml":
        raise MachineError(f"path is {path}; wanted a file that ends in .toml")
    if not path.parent.is_dir():
        raise MachineError(f"there is no folder {path.parent}; make it first")
    return path


def _show(what: str) -> None:
    """Overwrite the line on stderr; a progress bar's thread would disturb the timing."""
    sys.stderr.write(f"\r\x1b[K{what}")
    sys.stderr.flush()


# -- probes -------------------------------------------------------------------------


def survey(
    program_s: ProgramTimer,
    num_devices: int,
    memory_bytes: float,
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Samples:
    """Seconds of one op for each probe (an op of some kind and size) in the budget.

    The first probe is a tiny op. Time that one kind of probe leaves unused goes to the
    next kinds.

    budget_s: seconds for all probes.
    """
    end_s = clock() + budget_s
    one_s, many_s = program_s(TINY, 1), program_s(TINY, _TINY_OPS)
    tiny_s = max((many_s - one_s) / (_TINY_OPS - 1), many_s / 10 / _TINY_OPS)
    start_program_s = max(one_s - tiny_s, 0.0)
    samples = [(TINY, tiny_s)]
    planned = probes_of(num_devices, sorted(COLLECTIVE_S))
    for index, (share, needed, probes) in enumerate(planned):
        shares = sum(each[0] for each in planned[index:])
        until_s = clock() + (end_s - clock()) * share / shares
        unit_s = took_s = 0.0
        for number, probe in enumerate(probes):
            start_s = clock()
            is_late = start_s + _GROWTH * took_s > until_s
            is_large = 64 * math.prod(probe.shapes[0]) > memory_bytes
            expected_s = unit_s * probe.size
            if number >= needed and (is_late or is_large or expected_s > _SLOW_S):
                break
            count = 16 if expected_s < _QUICK_S else 2
            total_s = program_s(probe, count)
            op_s = max(total_s - start_program_s, total_s / 10) / count
            samples.append((probe, op_s))
            unit_s, took_s = op_s / probe.size, clock() - start_s
    return samples


# -- timing -------------------------------------------------------------------------


def program_timer(
    devices: Sequence[Any],
    repeats: int,
    show: Callable[[str], None],
    clock: Callable[[], float] = time.perf_counter,
) -> ProgramTimer:
    """A function that times chains of equal ops, run on all devices at the same time.

    It returns the least seconds of at least `repeats` runs.
    """
    mesh = jax.sharding.Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    values = np.random.default_rng(0).standard_normal(1 << 16)

    def program_s(probe: Probe, count: int) -> float:
        show(f"calibrating: {probe} ...")
        is_collective = probe.kind in COLLECTIVE_S
        spec = PartitionSpec(_AXIS) if is_collective else PartitionSpec()
        copies = len(devices) if is_collective else 1
        scale = math.prod(probe.shapes[-1][:-1]) ** -0.5  # products then keep the norm
        scaled = (values * scale).astype(probe.dtype)
        operands = [
            np.resize(scaled, (copies * shape[0], *shape[1:]) if shape else ())
            for shape in probe.shapes
        ]
        run = _chain(probe.kind, count, len(devices))
        if is_collective:
            run = jax.shard_map(
                run, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
            )
        placed = jax.device_put(operands, NamedSharding(mesh, spec))
        return _best_s(jax.jit(run), placed, repeats, clock)

    return program_s


def _best_s(
    run: Callable[..., Any],
    operands: Sequence[Any],
    repeats: int,
    clock: Callable[[], float],
) -> float:
    jax.block_until_ready(run(*operands))
    times = list[float]()
    while len(times) < repeats or sum(times) < _MIN_REPEATED_S:
        start_s = clock()
        jax.block_until_ready(run(*operands))
        times.append(clock() - start_s)
    return min(times)


def _chain(kind: str, count: int, num_devices: int) -> Callable[..., Any]:
    def mul_adds(x: Any, a: Any, b: Any) -> Any:
        for _ in range(MUL_ADDS):
            x = x * a + b
        return x

    def gathered(x: Any) -> Any:
        return lax.all_gather(x, _AXIS, tiled=True)

    convolution = partial(
        lax.conv_general_dilated,
        window_strides=(1, 1),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    ring = [(i, (i + 1) % num_devices) for i in range(num_devices)]
    ops: dict[str, tuple[Callable[..., Any], ...]] = {
        "copy": (lambda x, b: x + b,),
        "mul-adds": (mul_adds,),
        "matmul": (lambda x, w: x @ w,),
        "convolution": (convolution,),
        "all_gather": (gathered, lambda x: x[: x.shape[0] // num_devices]),
        "all_reduce": (lambda x: lax.psum(x, _AXIS),),
        "all_to_all": (lambda x: lax.all_to_all(x, _AXIS, 0, 0, tiled=True),),
        "permute": (lambda x: lax.ppermute(x, _AXIS, ring),),
        # The gathered result has the shape of the next operand.
        "reduce_scatter": (lambda x: lax.psum_scatter(x, _AXIS, tiled=True), gathered),
    }

    def run(x: Any, *others: Any) -> Any:
        for op in ops[kind] * count:
            x = lax.optimization_barrier(op(x, *others))
        return x

    return run


# -- fit ----------------------------------------------------------------------------
