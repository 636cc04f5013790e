"""A slice of a cluster as the devices of one stage of a pipeline.

Arrays are handles to arrays on the workers, and tasks are programs there. Calls return
at once. If a task reads an array on another stage's slice, the workers send each other
only the parts that they need.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.errors import ClusterError
from meshwright.features.cluster.client import Slice
from meshwright.features.cluster.remote_array import RemoteArray
from meshwright.features.cluster.wire.program_code import ProgramCode
from meshwright.features.pipeline.running.task_function import TaskLayout, task_function
from meshwright.features.pipeline.stages.tasks import TaskProgram
from meshwright.program.analysis.python_calls import python_calls
from meshwright.program.capture import jax_dtype
from meshwright.program.ir import Atom, Sharding, Value, num_bytes
from meshwright.run.compilers.confirm import export_jitted, require_module


@dataclass(frozen=True, eq=False)
class SliceDevices:
    """The devices of a cluster's slice, on which one stage keeps arrays and runs tasks.

    on: the slice. layout: shardings of the stage's arrays, over a JAX mesh of the
        slice's shape that has no devices.
    """

    on: Slice
    layout: TaskLayout

    def put(self, array: Any, value: Value) -> RemoteArray:
        """A handle to an array, which is sharded when the first task reads it."""
        del value
        return self.on.put(array)

    def function(
        self, task: TaskProgram, name: str
    ) -> Callable[..., Sequence[RemoteArray]]:
        """A task as a function of handles.

        name: what error messages of the workers call the task.
        Raises `ClusterError` for a task that calls Python.
        """
        if python_calls(task.program):
            raise ClusterError(
                "it calls Python, which only this process has; remove the call, or run on "
                "the devices of this process"
            )
        return self._defined(
            task_function(task, self.layout),
            task.inputs,
            task.sharded_like,
            name,
            donated=tuple(task.totals.values()),
        )

    def concatenate(
        self, arrays: Sequence[RemoteArray], dim: int, value: Value
    ) -> RemoteArray:
        """A handle to the concatenation of arrays along `dim`.

        value: value of the stage whose sharding the arrays and the result have.
        """
        sharding = self.layout.sharding(value)
        joined = jax.jit(
            lambda *parts: (jnp.concatenate(parts, dim),),
            in_shardings=(sharding,) * len(arrays),
            out_shardings=(sharding,),
        )
        shape = list(value.shape)
        shape[dim] *= len(arrays)
        whole = Value(tuple(shape), value.dtype)
        layout = TaskLayout(
            self.layout.mesh, {**self.layout.shardings, whole: self._cut(value)}
        )
        devices = SliceDevices(self.on, layout)
        inputs = (value,) * len(arrays)
        run = devices._defined(joined, inputs, (whole,), "microbatches joined")
        (result,) = run(*arrays)
        return result

    def _defined(
        self,
        jitted: Any,
        inputs: Sequence[Value],
        outputs: Sequence[Atom],
        name: str,
        donated: tuple[int, ...] = (),
    ) -> Callable[..., Sequence[RemoteArray]]:
        """Define a program on the workers; returns a function of handles.

        donated: positions of inputs whose memory the outputs take over.
        name: what error messages call the program.
        """
        require_module("flatbuffers", "a pipeline on a cluster", "cluster")
        exported = export_jitted(
            jitted, [self._aval(atom) for atom in inputs], self.on.platform
        )
        cuts, out_cuts = (tuple(map(self._cut, atoms)) for atoms in (inputs, outputs))
        number = self.on.define(
            ProgramCode(exported, self.on.mesh.sizes, cuts, out_cuts, name),
            map(num_bytes, inputs),
            map(num_bytes, outputs),
            donated,
        )
        types = [self._aval(atom) for atom in outputs]
        return lambda *arrays: self.on.call(number, arrays, types, donated)

    def _cut(self, atom: Atom) -> Sharding:
        """The sharding of an array that stands for a value of the stage.

        A value that differs on every device is stacked along a leading dim, split over
        all axes.
        """
        if self.layout.is_stacked(atom):
            return Sharding((self.layout.mesh.axis_names, *((),) * len(atom.shape)))
        assert isinstance(atom, Value), "a literal has no sharding"
        return self.layout.shardings[atom]

    def _aval(self, atom: Atom) -> jax.ShapeDtypeStruct:
        """Global shape and dtype of the array that stands for a value of the stage."""
        sizes = dict(self.on.mesh.sizes)
        stacked = (1,) if self.layout.is_stacked(atom) else ()
        shape = tuple(
            size * math.prod(sizes[axis] for axis in axes)
            for size, axes in zip(
                (*stacked, *atom.shape), self._cut(atom).dims, strict=True
            )
        )
        return jax.ShapeDtypeStruct(shape, jax_dtype(atom.dtype))
