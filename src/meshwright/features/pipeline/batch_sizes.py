"""Capturing a step with other batch sizes, which planning of microbatches needs.

The dims of the arguments that count the batch are found by propagating data parallelism.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax

from meshwright.app.partition import partition
from meshwright.errors import MeshwrightError, PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.decide import apply_tactics
from meshwright.partitioner.tactics import data_parallel
from meshwright.program.capture import Captured

_AXIS = "data"


@dataclass(frozen=True)
class ResizableStep:
    """A function with example arguments, which can be captured with any batch size.

    The batch dims are the dims that the tactic `data_parallel` over two devices cuts.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]

    @cached_property
    def captured(self) -> Captured:
        """The step captured with the arguments as given."""
        return partition(self.fn, Mesh({_AXIS: 2})).capture(*self.args)

    @cached_property
    def batch_dims(self) -> tuple[tuple[int, int], ...]:
        """Pairs (index of an argument leaf, its dim that counts the batch).

        Leaves of state, which the step returns updated, are left out.
        """
        mesh = Mesh({_AXIS: 2})
        work = apply_tactics(self.captured, mesh, (data_parallel(_AXIS),))
        state = set(self.captured.ties.values())
        found: list[tuple[int, int]] = []
        for position, node in enumerate(work.graph.input_nodes):
            dim = work.state.sharding_at(node, node.outs[0]).dim_of(_AXIS)
            if dim is not None and position not in state:
                found.append((position, dim))
        if not found:
            raise PlanError(
                "no dim of the arguments counts the batch, so that the step cannot be cut"
                " into microbatches; pass data as an argument of its own"
            )
        return tuple(found)

    @property
    def batch(self) -> int:
        """The batch size of the given arguments."""
        leaf, dim = self.batch_dims[0]
        return int(self.captured.avals[leaf].shape[dim])

    def capture(self, batch: int) -> Captured:
        """The step captured with this batch size instead of the given one."""
        if batch == self.batch:
            return self.captured
        leaves, tree = jax.tree_util.tree_flatten(self.args)
        shapes = [
            jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type)
            for a in self.captured.avals
        ]
        assert len(leaves) == len(shapes), "arguments and captured leaves differ"
        for leaf, dim in self.batch_dims:
            shape = list(shapes[leaf].shape)
            extent, rest = divmod(shape[dim] * batch, self.batch)
            if rest:
                raise PlanError(
                    f"{self.captured.paths[leaf]} has {shape[dim]} rows for a batch of"
                    f" {self.batch}, which leaves no whole number for a batch of {batch}"
                )
            shape[dim] = extent
            shapes[leaf] = jax.ShapeDtypeStruct(tuple(shape), shapes[leaf].dtype)
        args: Sequence[Any] = jax.tree_util.tree_unflatten(tree, shapes)
        try:
            return partition(self.fn, Mesh({_AXIS: 2})).capture(*args)
        except MeshwrightError:
            raise
        except Exception as error:
            raise PlanError(
                f"the step cannot be traced with a batch of {batch} instead of"
                f" {self.batch}: {error}; a pipeline runs it with microbatches, so that it"
                " has to take the batch's size from its arguments"
            ) from error
