"""A program on a worker: its shardings on the gang's devices, and its compiled form."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.export
from jax.sharding import NamedSharding

from meshwright.errors import ClusterError
from meshwright.features.cluster.wire.messages import Define
from meshwright.features.cluster.wire.program_code import ProgramCode
from meshwright.features.cluster.worker.forbidden_numbers import require_allowed
from meshwright.machine import Mesh
from meshwright.program.ir import Sharding
from meshwright.run.local.devices import find_devices
from meshwright.run.local.spmd import Executable, jax_mesh, named_shardings


class WorkerProgram:
    """A program that a client has defined; it is compiled when it first runs.

    name: text with which its error messages begin; "" for nothing.
    takes_part: whether this process has a device that runs the program.
    """

    def __init__(self, request: Define) -> None:
        self.donated = frozenset(request.donated)
        self._request = request
        self._code = ProgramCode.from_bytes(request.code)
        self.name = self._code.name
        devices = find_devices()
        own = jax.process_index()
        self._devices = [devices[i] for i in request.devices]
        self.takes_part = any(device.process_index == own for device in self._devices)

    @cached_property
    def _exported(self) -> jax.export.Exported:
        return jax.export.deserialize(bytearray(self._code.exported))

    @cached_property
    def _mesh(self) -> jax.sharding.Mesh:
        return jax_mesh(Mesh(dict(self._code.sizes), self._devices))

    @cached_property
    def inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shape, dtype and sharding of each argument."""
        return self._placed(self._exported.in_avals, self._code.inputs)

    @cached_property
    def outputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shape, dtype and sharding of each result."""
        return self._placed(self._exported.out_avals, self._code.outputs)

    def _placed(
        self, avals: Sequence[Any], shardings: Sequence[Sharding]
    ) -> tuple[jax.ShapeDtypeStruct, ...]:
        pairs = zip(avals, named_shardings(self._mesh, shardings), strict=True)
        return tuple(
            jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)
            for aval, sharding in pairs
        )

    @cached_property
    def executable(self) -> Executable:
        """The program, jitted for its devices.

        Raises `ClusterError` if its results are larger than its definition says. The
        controller relies on the definition when it counts the bytes of a tenant.
        """
        for aval, stated in zip(self.outputs, self._request.output_bytes, strict=True):
            assert isinstance(aval.sharding, NamedSharding)
            shape = aval.sharding.shard_shape(aval.shape)
            if math.prod(shape, start=aval.dtype.itemsize) > stated:
                raise ClusterError(
                    f"a result {aval.dtype}{list(shape)} on each device takes more than "
                    f"the {stated} bytes that the program was defined with"
                )
        inputs, outputs = (
            tuple(aval.sharding for aval in avals)
            for avals in (self.inputs, self.outputs)
        )
        jitted = jax.jit(
            self._exported.call,
            in_shardings=inputs,
            out_shardings=outputs,
            donate_argnums=tuple(self.donated),
        )
        return Executable(jitted, self._mesh, inputs)

    def run(self, given: Sequence[Any]) -> Sequence[Any]:
        """The results for arguments on the program's devices.

        Raises `ClusterError` if a result has a number that the program forbids.
        """
        executable = self.executable
        results = executable.run(executable.place(given))
        require_allowed(results, self._code.forbids, self._mesh)
        return results


class Elsewhere(NamedTuple):
    """The placement of an array of which this process has no part.

    The array is an argument (`is_result` false) or a result of a program.
    """

    program: WorkerProgram
    is_result: bool
    position: int

    @property
    def aval(self) -> jax.ShapeDtypeStruct:
        """The shape, dtype and sharding of the array."""
        program = self.program
        return (program.outputs if self.is_result else program.inputs)[self.position]
