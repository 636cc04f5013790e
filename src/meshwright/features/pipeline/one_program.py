"""A pipelined step as one program, whose stages are an axis of the mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from meshwright.app.check.report import CheckReport
from meshwright.app.partitioned import Partitioned
from meshwright.app.plan import Plan
from meshwright.app.step.specialized import Specialized
from meshwright.errors import PlanError
from meshwright.features.pipeline.build import divided_batch
from meshwright.features.pipeline.pipeline_options import STAGE, Options
from meshwright.features.pipeline.running.single_program import (
    pipelined_layers,
    stacked_weights,
)
from meshwright.features.pipeline.stages.microbatches import MICROBATCH
from meshwright.machine import Mesh
from meshwright.partitioner.lower.lowering import lower_unrolled
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics import TacticKind, shard
from meshwright.program.capture import Captured
from meshwright.program.capture.mesh import as_mesh
from meshwright.program.ir import Program


@dataclass(frozen=True)
class LayerStages:
    """The tactic that turns loops over layers into pipelines; it cuts nothing itself."""

    rewrite: Callable[[Program], Program]
    kind = TacticKind.PIN
    axes = (STAGE,)

    def apply(self, work: Workspace) -> None:
        """Nothing: what follows from the program is cut by other tactics."""

    def __str__(self) -> str:
        return "pipeline(form='single')"


def single_program(alone: Partitioned, mesh: Any, options: Options) -> SinglePipelined:
    """The function in one program over a mesh with an axis `stage`.

    Raises `PlanError` for choices that only a pipeline of several programs has.
    """
    if not isinstance(mesh, Mesh | Mapping):
        raise PlanError(
            f"form='single' wants one mesh with an axis {STAGE!r}, such as "
            f"{{'{STAGE}': 2, 'data': 4}}; got {mesh!r:.60}"
        )
    if isinstance(options.tactics, Mapping):
        raise PlanError(
            "form='single' has the same tactics for all stages; got some by the names of "
            "stages"
        )
    chosen = {
        "stages": options.stages is not None,
        "schedule": options.schedule != "1f1b",
        "statistics": options.statistics != "whole",
        "memory": options.memory_bytes is not None,
    }
    for name, is_chosen in chosen.items():
        if is_chosen:
            raise PlanError(
                f"form='single' has no {name}=: its stages have equal numbers of layers, "
                "and all forward passes run before the backward passes"
            )
    if options.microbatches < 2:
        raise PlanError("form='single' wants at least 2 microbatches; got 1")
    return SinglePipelined(alone, as_mesh(mesh), options)


@dataclass(eq=False, repr=False)
class SinglePipelined:
    """A function whose loops over layers run as a pipeline, in one program.

    alone: the function on one device. options: their tactics are those of all stages, on
        the axes besides `stage`.
    """

    alone: Partitioned
    mesh: Mesh
    options: Options
    _steps: dict[Specialized, Partitioned] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.__name__ = self.alone.__name__
        self.__doc__ = self.alone.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the devices of the mesh."""
        return self._step(args, kwargs)(*args, **kwargs)

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for these arguments; see `Partitioned.plan`."""
        return self._step(args, kwargs).plan(*args, **kwargs)

    def check(self, *args: Any, **kwargs: Any) -> CheckReport:
        """Compare all outputs with those of the original on one device."""
        return self._step(args, kwargs).check(*args, **kwargs)

    def _step(self, args: Any, kwargs: Any) -> Partitioned:
        specialized, _ = self.alone.specialize(args, kwargs)
        if specialized not in self._steps:
            self._steps[specialized] = self._partitioned(specialized.captured)
        return self._steps[specialized]

    def _partitioned(self, captured: Captured) -> Partitioned:
        """The step on the mesh, after its loops have become pipelines."""
        program = captured.program
        local = self._of_one_microbatch(captured)
        stages = self.mesh.size(STAGE)
        changed = pipelined_layers(program, local, stages, self.options.microbatches)
        number = {value: i for i, value in enumerate(program.inputs)}
        stacks = [captured.paths[number[v]] for v in stacked_weights(program)]
        tactics = (
            LayerStages(lambda _: changed),
            shard(dict.fromkeys(stacks, 0), axis=STAGE),
            *self.options.tactics_of(""),
        )
        return replace(self.alone, mesh=self.mesh, tactics=tactics, _specialized={})

    def _of_one_microbatch(self, captured: Captured) -> Program:
        """The program of one microbatch, with sums over all of them."""
        axis = Mesh({MICROBATCH: self.options.microbatches})
        work = divided_batch(captured, axis, self.options.batch)
        return lower_unrolled(work.state).program
