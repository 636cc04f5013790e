"""A slice of a cluster as the devices of one stage: arrays are handles, tasks programs.

Calls return at once. A handle of another stage's slice is sent from worker to worker,
and of each array only the parts that the receiver needs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.errors import ClusterError
from meshwright.partitioner.stages import TaskProgram
from meshwright.program.ir import Atom, Sharding, Value, num_bytes
from meshwright.run.cluster.client import Slice
from meshwright.run.cluster.session import RemoteArray
from meshwright.run.cluster.wire.messages import Define
from meshwright.run.cluster.wire.program_code import ProgramCode
from meshwright.run.compilers.confirm import export_jitted, require_module
from meshwright.run.pipeline.task_function import TaskLayout, task_function


@dataclass(frozen=True, eq=False)
class SliceDevices:
    """The devices of a slice, over whose mesh a stage's arrays have a layout.

    layout: over a mesh of the slice's shape without devices.
    """

    on: Slice
    layout: TaskLayout

    def put(self, array: Any, value: Value) -> RemoteArray:
        """A handle to an array, which the first task that reads it shards."""
        del value
        return self.on.put(array)

    def function(
        self, task: TaskProgram, name: str
    ) -> Callable[..., Sequence[RemoteArray]]:
        """A task as a function of handles; the workers name it in messages of errors.

        Raises `ClusterError` for a task that calls Python.
        """
        if any("callback" in op.kind for op in task.program.walk()):
            raise ClusterError(
                "it calls Python, which only this process has; remove the call, or run on "
                "the devices of this process"
            )
        kinds = list(task.outputs)
        for output, given in task.totals.items():
            kinds[output] = task.inputs[given]
        program = _Program(
            task_function(task, self.layout),
            task.inputs,
            tuple(kinds),
            tuple(task.totals.values()),
            name,
        )
        return self._defined(program)

    def concatenate(
        self, arrays: Sequence[RemoteArray], dim: int, value: Value
    ) -> RemoteArray:
        """A handle to arrays joined along a dim, each sharded like `value`."""
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
        inputs = (value,) * len(arrays)
        program = _Program(joined, inputs, (whole,), (), "microbatches joined")
        (result,) = SliceDevices(self.on, layout)._defined(program)(*arrays)
        return result

    def _defined(self, program: "_Program") -> Callable[..., Sequence[RemoteArray]]:
        """A program, defined on the workers, as a function of handles."""
        number = self.on.define(lambda number: self._definition(number, program))
        types = [self._aval(atom) for atom in program.outputs]

        def run(*inputs: RemoteArray) -> list[RemoteArray]:
            return self.on.call(number, inputs, types, program.donated)

        return run

    def _definition(self, number: int, program: "_Program") -> Define:
        """A program in the form in which the controller takes it."""
        require_module("flatbuffers", "a pipeline on a cluster", "cluster")
        avals = [self._aval(atom) for atom in program.inputs]
        exported = export_jitted(program.jitted, avals, self.on.platform)
        inputs, outputs = (
            tuple(map(self._cut, atoms)) for atoms in (program.inputs, program.outputs)
        )
        sizes = self.on.mesh.sizes
        code = ProgramCode(exported, sizes, inputs, outputs, program.name)
        return Define(
            number,
            code.to_bytes(),
            self.on.devices,
            program.donated,
            tuple(map(num_bytes, program.inputs)),
            tuple(map(num_bytes, program.outputs)),
            tuple(i for i, each in enumerate(outputs) if not any(each.dims)),
        )

    def _cut(self, atom: Atom) -> Sharding:
        """The sharding of an array; one that is stacked has a part for each device."""
        if self.layout.is_stacked(atom):
            return Sharding((self.layout.mesh.axis_names, *((),) * len(atom.shape)))
        assert isinstance(atom, Value), "a literal has no sharding"
        return self.layout.shardings[atom]

    def _aval(self, atom: Atom) -> jax.ShapeDtypeStruct:
        """The type of an array on all devices together."""
        sizes = dict(self.on.mesh.sizes)
        stacked = (1,) if self.layout.is_stacked(atom) else ()
        shape = tuple(
            size * math.prod(sizes[axis] for axis in axes)
            for size, axes in zip(
                (*stacked, *atom.shape), self._cut(atom).dims, strict=True
            )
        )
        return jax.ShapeDtypeStruct(shape, jnp.dtype(atom.dtype))


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """A program of a stage before it is sent: its function and its arrays.

    donated: positions of inputs whose memory the outputs take over.
    """

    jitted: Any
    inputs: tuple[Value, ...]
    outputs: tuple[Atom, ...]
    donated: tuple[int, ...]
    name: str
