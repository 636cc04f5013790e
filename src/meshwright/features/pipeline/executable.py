"""The executable of a staged step, on devices of this process or slices of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshwright.errors import MeshError
from meshwright.features.pipeline.running.donation import with_donated_state
from meshwright.features.pipeline.running.runtime import PipelineExecutable
from meshwright.features.pipeline.running.stage import (
    ProcessDevices,
    StageDevices,
    StageProgram,
)
from meshwright.features.pipeline.running.task_function import TaskLayout
from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.staged_step import StagedStep, stage_programs
from meshwright.machine import Mesh
from meshwright.program.ir import Atom, Literal
from meshwright.run.compilers.confirm import abstract_mesh
from meshwright.run.local.devices import find_devices
from meshwright.run.local.spmd import jax_mesh

if TYPE_CHECKING:
    from meshwright.features.cluster.client import Slice


def make_pipeline(step: StagedStep, slices: Sequence[Slice] = ()) -> PipelineExecutable:
    """The staged step on the devices of this process, or on slices of a cluster."""
    places = slices or place_submeshes(step.submeshes)
    stages: list[StageProgram] = []
    programs, captured = stage_programs(step), step.captured
    if not slices:  # workers keep the arrays that they are given
        programs = with_donated_state(
            programs, step.schedule.placement, captured.ties, captured.donated
        )
    for number, (lowered, tasks) in enumerate(programs):
        devices = _devices(lowered, places[step.schedule.placement[number]])
        name = step.staged.cuts.names[number]
        stages.append(StageProgram(name, number, lowered, tasks, devices))
    atoms = enumerate(step.staged.program.outputs)
    outputs = tuple(_stage_of(atom, place, stages) for place, atom in atoms)
    return PipelineExecutable(
        step.opened, step.staged, tuple(stages), step.schedule, outputs
    )


def place_submeshes(submeshes: Sequence[Mesh]) -> tuple[Mesh, ...]:
    """The submeshes over devices of this process, which are assigned one after another.

    Raises `MeshError` if there are too few devices.
    """
    needed = sum(mesh.num_devices for mesh in submeshes if mesh.devices is None)
    devices = find_devices() if needed else []
    if len(devices) < needed:
        raise MeshError(
            f"the submeshes need {needed} devices, but JAX sees {len(devices)} "
            f"({devices[0].platform}); to try it on one machine, set XLA_FLAGS="
            f"--xla_force_host_platform_device_count={needed} before JAX starts"
        )
    free = iter(devices)
    return tuple(
        mesh
        if mesh.devices is not None
        else mesh.over([next(free) for _ in range(mesh.num_devices)])
        for mesh in submeshes
    )


def _devices(step: LoweredStep, place: Mesh | Slice) -> StageDevices:
    """The devices of a submesh of this process, or of a slice of a cluster."""
    if isinstance(place, Mesh):
        assert place.devices is not None, "the submesh has no devices"
        mesh = jax_mesh(step.lowered.mesh.over(place.devices))
        return ProcessDevices(TaskLayout(mesh, step.shardings))
    from meshwright.features.pipeline.running.slice_devices import SliceDevices

    layout = TaskLayout(abstract_mesh(step.lowered.mesh), step.shardings)
    return SliceDevices(place, layout)


def _stage_of(atom: Atom, place: int, stages: Sequence[StageProgram]) -> int:
    """The number of the stage that computes an output.

    place: position of the output. It is 0 for a constant.
    """
    if isinstance(atom, Literal):
        return 0
    for program in reversed(stages):
        mine = program.step.lowered.program.outputs[place]
        if any(mine in task.outputs for task in program.tasks.every):
            return program.number
    return 0
