"""Figures of an estimate as plain data, which a plan keeps, prints and saves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from meshwright.machine import Chip, Machine
from meshwright.machine.placement import placement_matrices
from meshwright.partitioner.lower import executions
from meshwright.predict.energy import Location, co2e_g, energy_j, rent_usd
from meshwright.predict.estimate import Estimate
from meshwright.predict.roofline.matrix_unit import uses_matrix_unit
from meshwright.predict.simulate.shares import LineTime, bound_times, line_times
from meshwright.predict.simulate.timeline import collective_overlaps
from meshwright.program.capture.wide_floats import is_low_precision
from meshwright.program.ir import Op, Program, show_type

if TYPE_CHECKING:
    from meshwright.partitioner.decide import Decided

_LARGEST = 10


@dataclass(frozen=True, slots=True)
class LiveValue:
    """A value in memory at the peak.

    name: path of an input, or kind of the op that defines the value.
    value: its type on a device.
    source: `file:line` of the user's code, "" if unknown.
    """

    name: str
    value: str
    bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Predictions for one step of a plan on a machine; memory is per device.

    mfu, hfu: shares of the machine's 16-bit peak that the model's operations reach, and
        those that the step runs, recomputed ones included; see `Utilisation`.
    usable_bytes: memory of a device that programs may use.
    breakdown: seconds of "compute" and "idle", and for each kind of collective the
        exposed seconds and those hidden behind computation.
    largest: largest values at the memory peak. peak_source: source line that runs there.
    collective_s: seconds of one execution, for each of the plan's collectives.
    collective_runs: executions in the compiled program, for each of them. They may be
        fewer than the plan's: all-reduce code motion reduces an accumulator once after
        its loop, and of two all-reduces whose results are added one remains.
    energy_j, co2e_g, cost_usd: totals of all devices; `None` if the machine has no power
        or price. place: name of the location whose grid and overhead count, "" for none.
    is_peak_power: whether the energy is an upper bound at the chip's peak power, since
        its mean power is not known.
    compute_bounds: seconds of computation by what limits it: "matrix" and "vector" unit,
        "memory", and the "launch" of kernels.
    lines: the source lines that take most of the step, the longest first.
    placement: where each mesh axis lies on the machine; "" if there is only one way.
    widened: dtypes of products that the chip computes as float32.
    """

    machine: str
    num_devices: int
    step_time_s: float
    mfu: float
    hfu: float
    peak_memory_bytes: int
    usable_bytes: float
    breakdown: Mapping[str, float]
    largest: tuple[LiveValue, ...]
    peak_source: str
    collective_s: tuple[float, ...]
    energy_j: float | None
    co2e_g: float | None
    cost_usd: float | None
    place: str
    is_peak_power: bool = False
    collective_runs: tuple[int, ...] = ()
    compute_bounds: Mapping[str, float] = field(default_factory=dict[str, float])
    lines: tuple[LineTime, ...] = ()
    placement: str = ""
    widened: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the peak is at most the memory that programs may use."""
        return self.peak_memory_bytes <= self.usable_bytes


def make_figures(decided: Decided, found: Estimate, place: Location | None) -> Figures:
    """Figures of an estimate; place: gives the grid's carbon intensity and the overhead."""
    chip = found.machine.chip
    peak = found.memory.peak
    collectives = tuple(_collectives(decided.lowered.program, found))
    peak_source = found.fusions[peak].root.source if peak >= 0 else ""
    return Figures(
        machine=found.machine.name,
        num_devices=found.machine.num_devices,
        step_time_s=found.step_time_s,
        peak_memory_bytes=found.peak_memory_bytes,
        usable_bytes=chip.usable_bytes,
        breakdown=dict(found.breakdown),
        largest=tuple(_largest(decided, found)),
        peak_source=str(peak_source),
        collective_s=tuple(seconds for seconds, _ in collectives),
        collective_runs=tuple(runs for _, runs in collectives),
        compute_bounds=bound_times(found.timeline),
        lines=tuple(line_times(found.timeline)[:_LARGEST]),
        placement=_placement(found),
        widened=widened_dtypes(found.original, chip),
        **asdict(found.used),
        **asdict(spending(found.machine, found.step_time_s, place)),
    )


def widened_dtypes(program: Program, chip: Chip) -> tuple[str, ...]:
    """The dtypes of 16 bits or less whose products a chip computes as float32."""
    dtypes = {
        operand.dtype
        for op in program.walk()
        if uses_matrix_unit(op)
        for operand in op.operands[:2]
    }
    wide = chip.peak_flops_per_s("float32")
    narrow = filter(is_low_precision, sorted(dtypes))
    return tuple(d for d in narrow if chip.peak_flops_per_s(d) <= wide)


@dataclass(frozen=True, slots=True)
class Spending:
    """Joules, dollars and grams of CO2 equivalent of a step, as `Figures` has them."""

    energy_j: float | None
    co2e_g: float | None
    cost_usd: float | None
    place: str
    is_peak_power: bool


def spending(machine: Machine, step_time_s: float, place: Location | None) -> Spending:
    """Energy, price and carbon of a step of so many seconds on all devices."""
    chip, count = machine.chip, machine.num_devices
    watts = chip.mean_w or chip.peak_w
    pue = place.pue if place is not None and place.pue else machine.pue
    joules = None if watts is None else energy_j(step_time_s, count, watts, pue)
    price = chip.usd_per_hour
    return Spending(
        energy_j=joules,
        co2e_g=None
        if joules is None or place is None
        else co2e_g(joules, place.gross_g_per_kwh),
        cost_usd=None if price is None else rent_usd(step_time_s, count, price),
        place="" if place is None else place.name,
        is_peak_power=watts is not None and chip.mean_w is None,
    )


def _placement(found: Estimate) -> str:
    """The placement as text; "" if the mesh has only one on the machine."""
    candidates = placement_matrices(found.mesh, found.machine)
    return str(found.placement) if len(candidates) > 1 else ""


def _largest(decided: Decided, found: Estimate) -> Iterator[LiveValue]:
    """The largest values at the peak, with the names that the user's code gives them."""
    program = decided.lowered.program
    paths = dict(zip(program.inputs, decided.captured.paths, strict=True))
    largest = found.memory.alive[:_LARGEST]
    wanted, walked = set(largest), (*found.program.walk(), *program.walk())
    makers = {v: op for op in walked for v in op.results if v in wanted}
    for value in largest:
        op = makers.get(value)
        name = paths.get(value, "a constant") if op is None else op.kind
        source = "" if op is None else str(op.source)
        shown = show_type(value.shape, value.dtype)
        yield LiveValue(name, shown, found.layouts.size(value), source)


def _collectives(program: Program, found: Estimate) -> Iterator[tuple[float, int]]:
    """Seconds of an execution and compiled runs of each collective, as `executions` lists.

    If the compiler runs a collective less often than the program, its seconds are spread
    over the executions of the program.
    """
    runs, known = dict(executions(found.program)), dict[Op, tuple[float, int]]()
    for fusion, exposed, hidden in collective_overlaps(found.timeline):
        op = found.origins.get(fusion.root, fusion.root)
        known[op] = exposed + hidden, runs.get(fusion.root, 0)
    for op, times in executions(program):
        seconds, compiled_runs = known.get(op, (0.0, 0))
        yield seconds / (times or 1), compiled_runs
