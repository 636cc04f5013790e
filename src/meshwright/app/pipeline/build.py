"""From a captured step to the programs of its stages, each partitioned on its submesh."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from meshwright.app.pipeline.options import Options
from meshwright.errors import MeshError, PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided, apply_tactics, decide
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.lower.lowering import lower_unrolled
from meshwright.partitioner.stages import (
    MICROBATCH,
    Cuts,
    LoweredStep,
    Microbatches,
    Staged,
    cuts_at,
    even_cuts,
    find_microbatches,
    marked_cuts,
    read_lowered,
    stage_step,
    stage_tasks,
)
from meshwright.partitioner.tactics import Tactic, data_parallel
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.predict.schedules import Schedule
from meshwright.program.capture import Captured
from meshwright.program.ir import Literal
from meshwright.run.local import find_devices, jax_mesh
from meshwright.run.pipeline import (
    Layout,
    PipelineExecutable,
    StageProgram,
    as_primitives,
)


@dataclass(frozen=True, eq=False)
class StagedStep:
    """A step in stages, each with the decisions on its submesh.

    captured: the step of one microbatch, which tactics partition. decided: by stage.
    """

    staged: Staged
    captured: Captured
    schedule: Schedule
    decided: tuple[Decided, ...]
    submeshes: tuple[Mesh, ...]


def find_step(captured: Captured, options: Options) -> Microbatches:
    """The microbatches of a captured step."""
    axis = Mesh({}, sequential={MICROBATCH: options.microbatches})
    tactic = data_parallel(MICROBATCH, options.batch or None)
    work = apply_tactics(captured, axis, [tactic])
    return find_microbatches(lower_unrolled(work.state))


def choose_cuts(step: Microbatches, options: Options) -> Cuts:
    """Where the stages begin."""
    stages = options.stages
    if isinstance(stages, int):
        return even_cuts(step, stages)
    if stages is not None:
        return cuts_at(step, stages)
    if step_has_marks(step):
        return marked_cuts(step)
    return even_cuts(step, options.default_stages)


def step_has_marks(step: Microbatches) -> bool:
    """Whether the user has marked stages."""
    from meshwright.partitioner.stages.cuts import mark_of

    inner = (each for op in step.body for body in op.bodies for each in body.walk())
    return any(map(mark_of, (*step.body, *inner)))


def stage(captured: Captured, options: Options) -> StagedStep:
    """The step in stages, partitioned by their tactics on their submeshes."""
    step = find_step(captured, options)
    cuts = choose_cuts(step, options)
    schedule = options.schedule_for(cuts.num_stages)
    staged = stage_step(step, cuts)
    staged = replace(staged, program=as_primitives(staged.program))
    micro = _captured(captured, staged)
    known: dict[tuple[Mesh, tuple[Tactic, ...]], Decided] = {}
    decided: list[Decided] = []
    for name, place in zip(cuts.names, schedule.placement, strict=True):
        mesh, tactics = options.submeshes[place], options.tactics_of(name)
        if (mesh, tactics) not in known:
            known[mesh, tactics] = decide(
                micro, mesh, tactics, Gather.SHARED, workarounds=XLA_WORKAROUNDS
            )
        decided.append(known[mesh, tactics])
    return StagedStep(staged, micro, schedule, tuple(decided), options.submeshes)


def _captured(captured: Captured, staged: Staged) -> Captured:
    """The step of one microbatch as a captured program."""
    program = staged.program
    whole = tuple(f"{captured.paths[i]}.whole" for i in staged.whole)
    avals = tuple(
        jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in captured.avals
    )
    sliced = {
        i: jax.ShapeDtypeStruct(program.inputs[i].shape, avals[i].dtype)
        for i in staged.slices
    }
    every = [sliced.get(i, aval) for i, aval in enumerate(avals)]
    every += [avals[i] for i in staged.whole]
    every.append(jax.ShapeDtypeStruct((), jnp.int32))
    return replace(
        captured,
        program=program,
        paths=(*captured.paths, *whole, MICROBATCH),
        avals=tuple(every),
        ties={o: i for o, i in captured.ties.items() if i not in staged.slices},
        donated=(),
    )


def place_submeshes(submeshes: Sequence[Mesh]) -> tuple[Mesh, ...]:
    """The submeshes over devices of this process, one after another.

    Raises `MeshError` if there are too few.
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


def make_pipeline(step: StagedStep) -> PipelineExecutable:
    """The staged step on the devices of this process."""
    placed = place_submeshes(step.submeshes)
    read: dict[Decided, LoweredStep] = {}
    stages: list[StageProgram] = []
    for number, (name, decided) in enumerate(
        zip(step.staged.cuts.names, step.decided, strict=True)
    ):
        if decided not in read:
            read[decided] = read_lowered(step.staged, decided.lowered)
        lowered = read[decided]
        mesh = placed[step.schedule.placement[number]]
        assert mesh.devices is not None
        devices = jax_mesh(lowered.lowered.mesh.over(mesh.devices))
        layout = Layout(devices, lowered.shardings)
        tasks = stage_tasks(lowered, number)
        stages.append(StageProgram(name, number, lowered, tasks, layout))
    return PipelineExecutable(
        step.staged, tuple(stages), step.schedule, _output_stages(step, stages)
    )


def _output_stages(step: StagedStep, stages: Sequence[StageProgram]) -> tuple[int, ...]:
    """The stage that has each output: the one that computes it, or the first."""
    found: list[int] = []
    for place, atom in enumerate(step.staged.program.outputs):
        owner = 0
        if not isinstance(atom, Literal):
            for program in stages:
                mine = program.step.lowered.program.outputs[place]
                tasks = program.tasks
                every = (
                    tasks.forward, tasks.backward, tasks.before, *tasks.updates.values()
                )  # fmt: skip
                if program.number and any(mine in task.outputs for task in every):
                    owner = program.number
        found.append(owner)
    if len(found) != len(step.staged.program.outputs):
        raise PlanError("an output belongs to no stage")
    return tuple(found)
