"""The programs of a captured step's stages, each partitioned on its submesh.

A stage is a part of the forward pass with its backward pass and update; a submesh is the
part of the mesh on which it runs. A task is one pass of a stage over one microbatch. A mark
is `mw.stage` in the user's code, where a stage begins.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from meshwright.app.output.notices import warn_each
from meshwright.errors import StageError, TacticError
from meshwright.features.pipeline.pipeline_options import Options
from meshwright.features.pipeline.running.primitives import as_primitives
from meshwright.features.pipeline.stages.cuts import (
    Cuts,
    cuts_at,
    even_cuts,
    has_marks,
    marked_cuts,
    planned_cuts,
)
from meshwright.features.pipeline.stages.layer_weights import (
    OpenedStep,
    unopened,
    with_own_weights,
)
from meshwright.features.pipeline.stages.marks import (
    StagePoint,
    marks_between,
    names_of,
    with_marks,
)
from meshwright.features.pipeline.stages.microbatches import (
    MICROBATCH,
    Microbatches,
    find_microbatches,
    flops_of,
)
from meshwright.features.pipeline.stages.staged import Staged, stage_step
from meshwright.features.pipeline.stages.staged_step import StagedStep
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided, apply_tactics, decide
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.lower.lowering import lower_unrolled
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics import Tactic, data_parallel
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.program.capture import Captured
from meshwright.program.ir import Value
from meshwright.program.rewrite.loops.unroll import unroll_scans


def microbatch_axis(options: Options) -> Mesh:
    """A mesh of one axis, whose positions are microbatches, one after another."""
    return Mesh({}, sequential={MICROBATCH: options.microbatches})


def divided_batch(captured: Captured, axis: Mesh, batch: tuple[str, ...]) -> Workspace:
    """A captured step whose batch the axis `MICROBATCH` of a mesh divides.

    batch: patterns of the inputs with a batch; () for all data.
    Raises `StageError` if the batch cannot be divided.
    """
    try:
        return apply_tactics(captured, axis, [data_parallel(MICROBATCH, batch or None)])
    except TacticError as error:
        raise StageError(
            f"the batch cannot be divided into {axis.size(MICROBATCH)} microbatches: "
            f"{error}"
        ) from error


def find_step(captured: Captured, options: Options) -> Microbatches:
    """Split a captured step into microbatches: the ops of one, and the sums over all."""
    work = divided_batch(captured, microbatch_axis(options), options.batch)
    warn_each(work.warnings)
    return find_microbatches(lower_unrolled(work.state), options.has_own_statistics)


def with_layers(captured: Captured, options: Options) -> OpenedStep:
    """The step with large loops over layers unrolled, so that stages can begin inside.

    A loop stays if it has less than `_LITTLE` of the work of a stage. All loops stay if the
    user marks stages, or if there is one stage. No loop stays if microbatches have
    statistics of their own, since such a sum cannot be in a loop. Each layer of an unrolled
    loop has its own weights.
    """
    program, stages = captured.program, options.stages
    is_own = options.has_own_statistics
    if stages is None and has_marks(program.ops) and not is_own:
        return unopened(captured)
    points = stages if isinstance(stages, tuple) else ()
    planned = [point for point in points if isinstance(point, StagePoint)]
    chosen = len(stages) + 1 if isinstance(stages, tuple) else stages
    count = chosen or options.default_stages
    flops = {op: flops_of(op) for op in program.ops}
    share = 0.0 if is_own else sum(flops.values()) * _LITTLE / count
    large = [op for op in program.ops if op.kind == "scan" and flops[op] > share]
    if not (large or planned) or (count == 1 and _fits_loops(captured, options)):
        return unopened(captured)
    work = divided_batch(captured, microbatch_axis(options), options.batch)
    values, state = work.graph.values, work.state
    divided = {
        v for i, v in enumerate(values) if state.dim_on(i, MICROBATCH) is not None
    }
    inside: dict[tuple[Value, ...], dict[int, str]] = {}
    for point, name in names_of(planned).items():
        if point.iteration:
            loop = program.ops[point.op].results
            inside.setdefault(loop, {})[point.iteration] = name
    # Marks keep the results of ops, though not the ops.
    marked = with_marks(program, planned, divided) if planned else program
    wanted = {op.results for op in large} | inside.keys()
    scans = {
        op: marks_between(inside.get(op.results, {}))
        for op in marked.ops
        if op.results in wanted
    }
    unrolled = as_primitives(unroll_scans(marked, scans))
    weights = [i for i, value in enumerate(program.inputs) if value not in divided]
    opened = with_own_weights(replace(captured, program=unrolled), weights)
    written = as_primitives(opened.captured.program)
    return replace(opened, captured=replace(opened.captured, program=written))


def _fits_loops(captured: Captured, options: Options) -> bool:
    """Whether one stage can run the step with its loops as they are.

    A single microbatch can, unless a sum over the batch is in a loop.
    """
    if not options.has_own_statistics:
        return True
    if options.microbatches > 1:
        return False
    try:
        find_step(captured, options)
    except StageError:
        return False
    return True


_LITTLE = 0.25
"""Largest work of a loop that is not unrolled, as a share of the work of a stage."""


def choose_cuts(step: Microbatches, options: Options) -> Cuts:
    """The positions in the step's forward pass where stages begin, as the options ask."""
    stages = options.stages
    if isinstance(stages, int):
        return even_cuts(step, stages)
    if stages is not None and any(isinstance(each, StagePoint) for each in stages):
        return planned_cuts(step, len(stages) + 1)
    if stages is not None:
        return cuts_at(step, [each for each in stages if isinstance(each, int)])
    if has_marks((*step.before, *step.body, *step.after)):
        return marked_cuts(step)
    return even_cuts(step, options.default_stages)


def stage(captured: Captured, options: Options) -> StagedStep:
    """Divide a captured step into stages, and partition each on its submesh."""
    opened = with_layers(captured, options)
    source, captured = captured, opened.captured
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
            known[mesh, tactics] = _decided(micro, mesh, tactics)
        decided.append(known[mesh, tactics])
    return StagedStep(
        source, opened, staged, micro, schedule, tuple(decided), options.submeshes
    )


class StageTacticError(TacticError):
    """Tactics that do not suit the step of one microbatch as stages divide it.

    tactics: those of the stage.
    """

    def __init__(self, tactics: tuple[Tactic, ...], words: str) -> None:
        super().__init__(words)
        self.tactics = tactics


def _decided(micro: Captured, mesh: Mesh, tactics: tuple[Tactic, ...]) -> Decided:
    """The step of one microbatch, partitioned on a submesh."""
    try:
        return decide(micro, mesh, tactics, Gather.SHARED, workarounds=XLA_WORKAROUNDS)
    except TacticError as error:
        raise StageTacticError(tactics, str(error)) from error


def _captured(captured: Captured, staged: Staged) -> Captured:
    """The step of one microbatch in the form of a captured program.

    Its inputs are the step's inputs, with the batch cut to one microbatch, then the batch
    inputs that are needed as a whole, and the number of the microbatch.
    """
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
        donated=tuple(i for i in captured.donated if i not in staged.slices),
    )
