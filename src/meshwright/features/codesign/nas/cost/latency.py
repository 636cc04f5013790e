"""`nas.latency`: the predicted time of one call of a model on one chip of a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

from meshwright.app.partition import partition
from meshwright.errors import (
    MeshwrightWarning,
    NasError,
    TacticError,
    did_you_mean,
)
from meshwright.features.codesign.nas.cost.blocks import BlockLatency, block_latencies
from meshwright.machine import Machine, load_machine
from meshwright.partitioner.tactics import data_parallel
from meshwright.plain import Frame
from meshwright.predict.compilers.gpu.framework_passes import FRAMEWORKS
from meshwright.predict.energy import Location, find_location
from meshwright.predict.estimate import estimate
from meshwright.predict.figures import spending, widened_dtypes

_CORES = "core"
"""Mesh axis over the devices of one chip."""


@dataclass(frozen=True, slots=True)
class Latency:
    """The predicted time of one call on one chip, and what it costs.

    name: of the model, "" if it has none. machine: name of the machine.
    seconds: from the first kernel to the last.
    by_block: the same seconds by block of the model, in the order of the program.
    roofline_s: seconds that the call's operations and bytes take at the peaks of the
        matrix unit and of main memory, whichever is longer.
    memory_bytes: peak memory of a device. fits: whether a device has as much.
    energy_j, cost_usd, co2e_g: of one call; `None` if the machine has no power or price.
    place: location whose grid and overhead count for the carbon.
    widened: dtypes of products that the chip computes as float32.
    """

    name: str
    machine: str
    seconds: float
    by_block: tuple[BlockLatency, ...]
    roofline_s: float
    memory_bytes: int
    fits: bool
    energy_j: float | None
    cost_usd: float | None
    co2e_g: float | None
    place: str
    widened: tuple[str, ...] = ()

    @property
    def bounds(self) -> Mapping[str, float]:
        """Seconds by what limits them, the longest first.

        Kernels are limited by the "matrix" or "vector" unit, "memory" or their "launch",
        and the rest of a call by the "links" between the devices of a chip.
        """
        total: dict[str, float] = {}
        for block in self.by_block:
            for bound, seconds in block.bounds.items():
                total[bound] = total.get(bound, 0.0) + seconds
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    @property
    def bound(self) -> str:
        """The resource that limits most of the seconds; see `bounds`."""
        return next(iter(self.bounds), "launch")

    @property
    def roofline_share(self) -> float:
        """The roofline's seconds as a share of the predicted seconds."""
        return self.roofline_s / self.seconds if self.seconds else 0.0

    def to_json(self) -> str:
        """The record as JSON, which `from_json` reads."""
        return _FRAME.write(self, bound=self.bound, roofline_share=self.roofline_share)

    @classmethod
    def from_json(cls, text: str) -> Latency:
        """The record that `to_json` wrote."""
        return _FRAME.read(cls, text)


_FRAME = Frame(
    NasError, "this is no latency", derived=("bound", "roofline_share"), indent=1
)


def latency(
    fn: Callable[..., Any],
    args: Sequence[Any],
    machine: Machine | str | Path,
    *,
    place: Location | str | None = "us-average",
    framework: str | None = None,
) -> Latency:
    """The predicted time of `fn(*args)` on one chip, with its energy, price and carbon.

    args: arrays or `jax.ShapeDtypeStruct`s; nothing runs, and no device is needed.
    machine: a preset, a TOML file, or a machine. Of a preset or file one chip is taken; if
        it has several devices (TPU v2, v3, 7x), they share the batch.
    place: location of the machine, for carbon; `None` for no carbon.
    framework: what runs the net op by op on a GPU, "pytorch" or "tensorflow"; `None` if the
        machine's compiler compiles it.

    >>> import jax, jax.numpy as jnp
    >>> shape = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)
    >>> latency(jnp.matmul, (shape, shape), "tpu-v5e").bound
    'matrix'
    """
    if not callable(fn):
        raise NasError(f"latency wants a function and its arguments, got {fn!r:.60}")
    if not isinstance(args, tuple | list):
        raise NasError(
            f"args is a {type(args).__name__}; wanted a tuple or list of the arguments"
        )
    if not isinstance(machine, Machine):
        machine = load_machine(machine, None)
    if framework is not None:
        machine = run_by(framework, machine)
    where = place if isinstance(place, Location | None) else find_location(place)
    decided = _on_one_chip(fn, args, machine.num_devices)
    found = estimate(decided, machine)
    spent = spending(machine, found.step_time_s, where)
    blocks = block_latencies(found.timeline, machine.chip)
    waiting = found.step_time_s - sum(block.seconds for block in blocks)
    if waiting > 1e-9 * found.step_time_s:
        blocks = (*blocks, BlockLatency("(waiting)", {"links": waiting}, 0.0, 0.0, 0))
    return Latency(
        name=getattr(fn, "__name__", ""),
        machine=machine.name,
        seconds=found.step_time_s,
        by_block=blocks,
        roofline_s=max(
            sum(block.matrix_s for block in blocks),
            sum(block.memory_s for block in blocks),
        ),
        memory_bytes=found.peak_memory_bytes,
        fits=found.fits,
        energy_j=spent.energy_j,
        cost_usd=spent.cost_usd,
        co2e_g=spent.co2e_g,
        place=spent.place,
        widened=widened_dtypes(found.original, machine.chip),
    )


def run_by(framework: str, machine: Machine) -> Machine:
    """The GPU on which a framework runs a program op by op, without a compiler."""
    if framework not in FRAMEWORKS:
        what = f"framework is {framework!r}{did_you_mean(framework, FRAMEWORKS)}"
        raise NasError(f"{what}; wanted one of {', '.join(FRAMEWORKS)}")
    if machine.compiler not in ("gpu", *FRAMEWORKS):
        raise NasError(
            f"{machine.name} runs compiled programs only; {framework} runs ops on GPUs"
        )
    return replace(machine, compiler=framework, name=f"{machine.name} ({framework})")


def named(record: Latency, name: str) -> Latency:
    """The record with the name of its target."""
    return replace(record, name=name)


def _on_one_chip(fn: Callable[..., Any], args: Sequence[Any], num_devices: int) -> Any:
    """The program of one device; the devices of a chip share the batch if it divides."""
    if num_devices > 1:
        try:
            step = partition(fn, {_CORES: num_devices}, [data_parallel(_CORES)])
            with catch_warnings():  # on names of roles, which only tactics can change
                filterwarnings("ignore", ".*weak evidence", MeshwrightWarning)
                return step.decide(*args)
        except TacticError:  # nothing to divide: each device computes the whole
            pass
    return partition(fn, {_CORES: num_devices}).decide(*args)
