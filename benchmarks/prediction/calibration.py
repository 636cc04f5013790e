"""Times of programs on this machine, compared with predictions after its calibration.

    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 1 \
        python -m benchmarks prediction calibration [--out FILE] [--budget 30]

Calibrates one device, then runs programs that calibration has not timed: ops of each
class in other shapes, and small steps of the zoo. They are predicted with the calibrated
efficiencies, with the constant 1 of the cost model in place of those of one class (or of
all), and with the preset of a CPU host. A ratio is predicted over
measured time: below 1 the simulator is too optimistic. Times are CPU seconds of this
process, the best of several runs, so that other work on the machine disturbs little; they
are those of the wall clock with one thread only.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.progress import track
from rich.table import Table

import meshwright as mw
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.run.local.calibrate import measure

CONSOLE = Console()
STEPS = ("gpt", "llm", "vit", "mixer", "resnet", "unet", "lstm", "gns")
_DIMS = ("NHWC", "HWIO", "NHWC")

# -- held-out programs -------------------------------------------------------------


def _conv(stride: int, x: Any, k: Any) -> Any:
    return jax.lax.conv_general_dilated(
        x, k, (stride, stride), "SAME", dimension_numbers=_DIMS
    )


def _normalised(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)


OPS: dict[str, list[tuple[Any, tuple[tuple[int, ...], ...]]]] = {
    "product": [
        (jnp.matmul, ((64, 768), (768, 3072))),
        (jnp.matmul, ((196, 384), (384, 1536))),
        (jnp.matmul, ((512, 136), (136, 256))),
        (jnp.matmul, ((100, 300), (300, 77))),
        (jnp.matmul, ((32, 512), (512, 2048))),
        (jnp.matmul, ((12, 128, 64), (12, 64, 128))),
        (lambda x, y: x.T @ y, ((128, 784), (128, 512))),
    ],
    "convolution": [
        (partial(_conv, 1), ((8, 32, 32, 16), (3, 3, 16, 16))),
        (partial(_conv, 1), ((2, 28, 28, 128), (3, 3, 128, 128))),
        (partial(_conv, 2), ((2, 56, 56, 64), (3, 3, 64, 128))),
        (partial(_conv, 1), ((4, 14, 14, 192), (1, 1, 192, 64))),
        (partial(_conv, 1), ((2, 24, 24, 96), (5, 5, 96, 32))),
    ],
    "vector": [
        (jax.nn.gelu, ((256, 3072),)),
        (jax.nn.softmax, ((6, 256, 256),)),
        (_normalised, ((512, 768),)),
        (lambda x: jnp.sin(x) * jnp.exp(x), ((300, 1000),)),
        (jnp.tanh, ((64, 64, 96),)),
    ],
    "memory": [
        (jnp.add, ((3000, 1000), (3000, 1000))),
        (lambda x: x.T, ((1024, 768),)),
        (lambda x: jnp.concatenate([x, x], 1), ((1500, 700),)),
        (lambda x, b: x * b, ((2048, 1500), (1500,))),
        (lambda x: x[:, ::2], ((2000, 1600),)),
    ],
}
"""Float32 programs whose time is that of one class of op; calibration has squares only."""


def op_program(fn: Any, shapes: tuple[tuple[int, ...], ...]) -> tuple[Any, Any]:
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return fn, [jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]


# -- measurement and prediction ----------------------------------------------------


def best_s(fn: Any, args: Any, runs: int) -> float:
    """The least CPU seconds of a call, results awaited, compilation excluded."""
    jitted = jax.jit(fn)
    jax.block_until_ready(jitted(*args))
    times = []
    for _ in range(runs):
        start = time.process_time()
        jax.block_until_ready(jitted(*args))
        times.append(time.process_time() - start)
    return min(times)


def compare(
    program: tuple[Any, Any], machines: dict[str, mw.Machine], runs: int
) -> dict[str, Any]:
    """Measured seconds of a program, and predicted ones with each machine."""
    fn, args = program
    args = jax.device_put(tuple(args), jax.devices()[0])
    plan = mw.partition(fn, {"data": 1}, []).plan(*args)
    row: dict[str, Any] = {"measured_s": best_s(fn, args, runs)}
    for name, machine in machines.items():
        row[name] = plan.on(machine).step_time_s / row["measured_s"]
    return row


def without_curves(machine: mw.Machine, classes: tuple[str, ...]) -> mw.Machine:
    """The machine with the constant efficiency 1 for some classes of op."""
    kept = {k: c for k, c in machine.chip.efficiency.items() if k not in classes}
    return replace(machine, chip=replace(machine.chip, efficiency=kept))


def machines_of(calibrated: mw.Machine) -> dict[str, Any]:
    """The machines by name of prediction."""
    named = {f"constant {c}": without_curves(calibrated, (c,)) for c in OPS}
    return {
        "calibrated": calibrated,
        **named,
        "constants": without_curves(calibrated, tuple(OPS)),
        "preset": mw.machine("cpu", chips=1),
    }


def factor(rows: list[dict[str, Any]], name: str) -> float:
    """The geometric mean of the factors, 1 or more, by which predictions are off."""
    return math.exp(statistics.fmean(abs(math.log(row[name])) for row in rows))


# -- report ------------------------------------------------------------------------


def measured_rows(machines: dict[str, Any], runs: int) -> dict[str, Any]:
    """Held-out programs with their predictions: ops by class, and steps of the zoo."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, programs in OPS.items():
        found[name] = []
        for fn, shapes in programs:
            row = compare(op_program(fn, shapes), machines, runs)
            shown = " ".join("x".join(map(str, shape)) for shape in shapes)
            found[name].append({"program": shown, **row})
    names = track(STEPS, "steps", console=CONSOLE, transient=True)
    programs = ((name, import_module(f"zoo.{name}").tiny()) for name in names)
    found["steps"] = [
        {"program": name, **compare(p, machines, runs)} for name, p in programs
    ]
    return found


def figures_of(rows: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Factors of predictions by class: on its ops and on steps, with and without it."""
    return {
        name: {
            "ops, calibrated": factor(rows[name], "calibrated"),
            "ops, constant": factor(rows[name], f"constant {name}"),
            "steps, calibrated": factor(rows["steps"], "calibrated"),
            "steps, constant": factor(rows["steps"], f"constant {name}"),
        }
        for name in OPS
    }


@benchmark(
    option("--budget", type=float, default=30.0, help="to calibrate, in s"),
    option("--runs", type=int, default=30, help="of which the best counts"),
    out=STORED,
)
def main(options: Options) -> None:
    """Calibrate, compare, print tables, write JSON."""
    if jax.device_count() > 1 and jax.default_backend() == "cpu":
        options.error("virtual devices share the cores; unset XLA_FLAGS")
    devices = jax.local_devices()
    calibrated = measure(devices, "here", options.budget, clock=time.process_time)
    machines = machines_of(calibrated)
    rows = measured_rows(machines, options.runs)
    figures = figures_of(rows)
    table = Table("class", *next(iter(figures.values())))
    for name, row in figures.items():
        table.add_row(name, *(f"{v:.2f}" for v in row.values()))
    CONSOLE.print(table)
    every = ("calibrated", "constants", "preset")
    whole = {name: factor(rows["steps"], name) for name in every}
    CONSOLE.print("steps:", " ".join(f"{n} {f:.2f}" for n, f in whole.items()))
    form = {**figures_of_chip(calibrated), "factors": figures, "steps": whole}
    options.save({**form, "rows": rows})


def figures_of_chip(machine: mw.Machine) -> dict[str, Any]:
    """The calibrated numbers that predictions were made from."""
    chip = machine.chip
    return {
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "flops_per_s": dict(chip.flops_per_s),
        "vector_flops_per_s": chip.vector_flops_per_s,
        "hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "launch_s": chip.launch_s,
        "efficiency": {name: c.points for name, c in chip.efficiency.items()},
    }


if __name__ == "__main__":
    main()
