"""A task of a pipeline stage as a jitted function over the devices of its submesh."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from meshwright.features.pipeline.stages.tasks import TaskProgram
from meshwright.program.ir import Atom, Sharding
from meshwright.run.local.execute import run_program
from meshwright.run.local.spmd import partition_spec


@dataclass(frozen=True, eq=False)
class TaskLayout:
    """The sharding of the array that stands for each value of a stage, over a submesh.

    A value with a sharding is one array with this sharding. A value without one, such
    as the part that a microbatch adds to a gradient, differs on every device: the
    devices' values are stacked along a new leading dim.
    """

    mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh
    shardings: Mapping[Atom, Sharding]

    def spec(self, atom: Atom) -> PartitionSpec:
        """The `PartitionSpec` of the array that stands for a value."""
        if self.is_stacked(atom):
            return PartitionSpec(self.mesh.axis_names)
        return partition_spec(self.shardings[atom])

    def sharding(self, atom: Atom) -> NamedSharding:
        """The sharding of the array that stands for a value."""
        return NamedSharding(self.mesh, self.spec(atom))

    def is_stacked(self, atom: Atom) -> bool:
        """Whether the devices' values are stacked along a leading dim."""
        return atom not in self.shardings


def task_function(
    task: TaskProgram, layout: TaskLayout
) -> Callable[..., tuple[Any, ...]]:
    """A jitted function from a task's inputs to its outputs.

    Inputs that are sums over microbatches so far are donated, and the task's own.
    """
    inputs = [layout.is_stacked(v) for v in task.inputs]
    outputs = [layout.is_stacked(a) for a in task.sharded_like]

    def on_device(*given: Any) -> tuple[Any, ...]:
        local = [x[0] if s else x for x, s in zip(given, inputs, strict=True)]
        results = run_program(task.program, local)
        return tuple(x[None] if s else x for x, s in zip(results, outputs, strict=True))

    specs = tuple(map(layout.spec, task.sharded_like))
    mapped = jax.shard_map(
        on_device,
        mesh=layout.mesh,
        in_specs=tuple(map(layout.spec, task.inputs)),
        out_specs=specs,
        check_vma=False,
    )
    return jax.jit(
        mapped,
        in_shardings=tuple(map(layout.sharding, task.inputs)),
        out_shardings=tuple(map(layout.sharding, task.sharded_like)),
        donate_argnums=(*task.totals.values(), *task.donated),
    )
