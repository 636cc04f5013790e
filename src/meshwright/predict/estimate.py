"""Estimate of a plan on a machine: time, memory, energy, money and carbon per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from meshwright.machine import Chip, Machine, Mesh
from meshwright.machine.placement import Placement, place_mesh, require_size
from meshwright.partitioner.lower import Lowered
from meshwright.predict.compilers.model.compilation import (
    Compilation,
    Compiler,
    compile_program,
)
from meshwright.predict.compilers.model.fusion import Fusion
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.compilers.xla.memory_space_assignment import (
    COPIES_PER_GAP,
    PALLAS,
)
from meshwright.predict.links.best_placement import best_placement
from meshwright.predict.links.random_pauses import num_groups, waiting_s
from meshwright.predict.memory.buffer_assignment import Heap, heap_of, memory_of
from meshwright.predict.memory.layout_compression import compressed
from meshwright.predict.memory.memory_curve import MemoryCurve
from meshwright.predict.simulate.on_chip import (
    LARGE_SHARE,
    values_that_save_time,
    values_with_gaps,
)
from meshwright.predict.simulate.timeline import (
    COMPUTE,
    Setting,
    Timeline,
    collective_overlaps,
    kernel_traffic,
    timeline_of,
)
from meshwright.predict.utilisation import Utilisation, utilisation
from meshwright.program.capture.donation import (
    donated_aliases,
    donated_inputs,
    unaliased_results,
)
from meshwright.program.ir import Op, Program
from meshwright.program.records import paused_collector

if TYPE_CHECKING:
    from meshwright.partitioner.decide import Decided

WAITING = "waiting"
"""Key of a breakdown for the seconds that a step waits for pauses of other devices."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A simulated step of a plan on a machine.

    breakdown: seconds by part of the step. Each kind of collective has an exposed part,
        during which nothing is computed ("all_reduce exposed"), and the rest
        ("all_reduce hidden"). "waiting" is for pauses of other groups of devices, if
        there are any. The parts that are not hidden add up to the step.
    original: the program before it was partitioned.
    used: the shares of the machine's peak that the program's operations reach.
    program: the program of one device, as the compiler rewrote it.
    fusions, layouts, origins: of `program`, as in its `Compilation`.
    donated: positions of the inputs whose memory the caller donates.
    placement: where the mesh's axes lie on the machine.
    """

    machine: Machine
    mesh: Mesh
    step_time_s: float
    original: Program = field(repr=False)
    used: Utilisation
    program: Program = field(repr=False)
    memory: MemoryCurve = field(repr=False)
    timeline: Timeline = field(repr=False)
    breakdown: Mapping[str, float]
    fusions: tuple[Fusion, ...] = field(repr=False)
    layouts: Layouts = field(repr=False)
    origins: Mapping[Op, Op] = field(repr=False)
    donated: tuple[int, ...]
    placement: Placement = field(repr=False)

    @property
    def peak_memory_bytes(self) -> int:
        """Bytes that a device must have."""
        return self.memory.peak_bytes

    @property
    def fits(self) -> bool:
        """Whether the peak is within the memory that a device gives to programs."""
        return self.peak_memory_bytes <= self.machine.chip.usable_bytes


@paused_collector()
def estimate(
    decided: Decided,
    machine: Machine,
    donate_state: bool = False,
    placement: Placement | None = None,
) -> Estimate:
    """Simulate a decided program on a machine with as many devices as its mesh.

    placement: of the lowered program's mesh; None for the one with the least seconds of
        collectives, unless the step is faster with `place_mesh`.

    Arguments are donated if the partitioned function donates them, and with
    `donate_state` also if a step returns their next value.
    """
    # The lowered program's mesh has sub-axes, which an error should not name.
    require_size(decided.work.mesh, machine)
    lowered, captured = decided.lowered, decided.captured
    compilation = _compiled(lowered, machine)
    program = compilation.program
    donated = donated_inputs(captured, donate_state)
    aliases = donated_aliases(captured, program, donated)
    tried = _placements(compilation, lowered.mesh, machine)
    timeline, waiting, placement = _fastest(
        compilation, tried if placement is None else (placement,)
    )
    layouts = _layouts_on(machine.chip, compilation, timeline)
    unaliased = unaliased_results(captured, program, aliases)
    measure = partial(memory_of, compilation, aliases, unaliased=unaliased)
    memory, usable = measure(layouts), machine.chip.usable_bytes
    if memory.peak_bytes > usable:
        memory, layouts = compressed(memory, layouts, usable, compilation, measure)
    step_time_s, rewritten = timeline.end_s + waiting, decided.work.graph.program
    return Estimate(
        machine=machine,
        mesh=lowered.mesh,
        step_time_s=step_time_s,
        original=captured.program,
        used=utilisation(captured.program, rewritten, step_time_s, machine),
        program=program,
        memory=memory,
        timeline=timeline,
        breakdown=_breakdown(timeline) | ({WAITING: waiting} if waiting else {}),
        fusions=compilation.fusions,
        layouts=layouts,
        origins=compilation.origins,
        donated=donated,
        placement=placement,
    )


def _layouts_on(chip: Chip, compilation: Compilation, timeline: Timeline) -> Layouts:
    """The layouts with the values that stay in scratch memory.

    None of them waits there for long, and each large one saves time there: for others,
    what is prefetched leaves no room. Beside Pallas kernels, whose operands are
    prefetched whole, less of it is left.
    """
    if not compilation.on_chip:
        return compilation.layouts
    longest_s = COPIES_PER_GAP * chip.room_bytes / chip.hbm_bytes_per_s
    has_kernels = any(op.kind == PALLAS for op in compilation.program.walk())
    room = chip.lasting_bytes if has_kernels else chip.room_bytes
    candidates = [each for part in compilation.on_chip for each in part.ranges]
    large = {each.value for each in candidates if each.size > LARGE_SHARE * room}
    if large:
        large -= values_that_save_time(compilation.kernels, chip)
    return compilation.layouts_on(room, large | values_with_gaps(timeline, longest_s))


@paused_collector()
def simulated_s(lowered: Lowered, machine: Machine) -> float:
    """Simulated seconds of one step of a device program, on its fastest placement."""
    compilation = _compiled(lowered, machine)
    tried = _placements(compilation, lowered.mesh, machine)
    timeline, waiting, _ = _fastest(compilation, tried)
    return timeline.end_s + waiting


def heap_of_step(decided: Decided, estimated: Estimate) -> Heap:
    """The heap of a simulated step, with the live range of each buffer."""
    compilation = _compiled(decided.lowered, estimated.machine)
    program, captured = compilation.program, decided.captured
    aliases = donated_aliases(captured, program, estimated.donated)
    unaliased = unaliased_results(captured, program, aliases)
    return heap_of(compilation, aliases, estimated.layouts, unaliased)[0]


def _placements(
    compilation: Compilation, mesh: Mesh, machine: Machine
) -> tuple[Placement, ...]:
    """The usual placement, and the one with the least seconds of collectives."""
    usual = place_mesh(mesh, machine)
    best = best_placement(kernel_traffic(compilation.kernels), mesh, machine)
    return (usual,) if best == usual else (usual, best)


def _fastest(
    compilation: Compilation, placements: Sequence[Placement]
) -> tuple[Timeline, float, Placement]:
    """The timeline, seconds of waiting and placement with which a step is fastest."""
    runs: list[tuple[Timeline, float, Placement]] = []
    for placement in placements:
        setting = Setting(placement, compilation.compiler.async_collectives)
        timeline = timeline_of(compilation.kernels, setting)
        waiting = _waiting_s(timeline.end_s, compilation, placement)
        runs.append((timeline, waiting, placement))
    return min(runs, key=lambda run: run[0].end_s + run[1])


_COMPILATIONS: WeakKeyDictionary[
    Lowered, dict[tuple[Compiler, tuple[int, int]], Compilation]
] = WeakKeyDictionary()
"""Cache of compilations: another machine with an equal compiler needs only the times of
its kernels."""


def _compiled(lowered: Lowered, machine: Machine) -> Compilation:
    compilations = _COMPILATIONS.setdefault(lowered, {})
    key = compiler_of(machine), machine.chip.tile
    if key not in compilations:
        compilations[key] = compile_program(lowered.program, *key)
    return compilations[key]


def _waiting_s(step_s: float, compilation: Compilation, placement: Placement) -> float:
    """Seconds of waiting for pauses, on each network level that a collective crosses."""
    segments, machine = placement.of(compilation.kernels.axes), placement.machine
    across = {segment.dim.level for segment in segments}
    return sum(
        waiting_s(step_s, level, num_groups(machine, level))
        for level in machine.levels
        if level in across
    )


def _breakdown(timeline: Timeline) -> dict[str, float]:
    """Seconds by part of a step; bodies of loops count once per iteration."""
    parts: dict[str, float] = {COMPUTE: timeline.busy_s(COMPUTE)}
    for fusion, exposed, hidden in collective_overlaps(timeline):
        for name, seconds in (("exposed", exposed), ("hidden", hidden)):
            key = f"{fusion.root.kind} {name}"
            parts[key] = parts.get(key, 0.0) + seconds
    visible = sum(s for name, s in parts.items() if not name.endswith("hidden"))
    parts["idle"] = max(0.0, timeline.end_s - visible)
    return parts
