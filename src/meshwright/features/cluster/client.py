"""The client's side of a cluster: virtual slices, and calls that return at once."""

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import jax
import numpy as np

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.events import Event
from meshwright.features.cluster.controller.tenants import Status
from meshwright.features.cluster.remote_array import RemoteArray, host_array
from meshwright.features.cluster.session import (
    ClientSession,
    Connection,
)
from meshwright.features.cluster.wire.messages import (
    Call,
    Define,
    Free,
    Put,
    Transfer,
    WorkerTask,
)
from meshwright.features.cluster.wire.program_code import ProgramCode
from meshwright.machine import Mesh
from meshwright.run.local.layer_stack import (
    LayerStack,
    join_stacks,
    split_stacks,
    whole_array,
)

_POLL_S = 0.1
"""Seconds between two looks at workers that start."""


class Slice:
    """Some devices of a cluster in the shape of a mesh; usable wherever a mesh is.

    number: the slice's number at the controller.
    mesh: its shape.
    devices: positions of its devices at first. They identify the slice for good, even
        if the controller moves it to other devices when workers come and go.
    platform: the devices' name in JAX, such as "cpu".
    """

    def __init__(self, session: ClientSession, sizes: Mapping[str, int]) -> None:
        self.session = session
        self.mesh = Mesh(sizes)
        self.number, self.devices, self.platform = session.ask(
            "slice", self.mesh.num_devices
        )
        self._is_released = False

    def put(self, tree: Any) -> Any:
        """Handles to the arrays of a pytree, each of which is sent to the workers once.

        Each device gets its part when the first step reads the array. Later writes to an
        array in this process do not change what was sent. A leaf that is a handle already
        stays the same handle. If its array is on another slice, workers
        send it to each other when the first step reads it; an array of another session
        goes through this process. Raises `ClusterError` after `release`.
        """
        self._require_devices()
        return jax.tree.map(self._put, tree)

    def _put(self, leaf: Any) -> Any:
        if isinstance(leaf, LayerStack):
            return LayerStack([self._put(each) for each in leaf.elements])
        if isinstance(leaf, RemoteArray):
            if leaf.session is self.session:
                return leaf
            leaf = leaf.result()
        connection = self.session.connection
        value, aval = host_array(leaf, copy=connection.shares_memory)
        (number,) = self.session.new_numbers(1)
        stored = connection.store(value)
        self.session.submit(Put(number, stored, value.data.nbytes))
        return RemoteArray(self.session, number, aval)

    def fetch(self, tree: Any) -> Any:
        """The arrays behind a pytree of handles, all fetched at the same time."""
        leaves, structure = jax.tree.flatten(tree)
        counts = [len(leaf) if isinstance(leaf, LayerStack) else 0 for leaf in leaves]
        handles = split_stacks(leaves, counts)
        sessions: dict[ClientSession, list[RemoteArray]] = {}
        for each in dict.fromkeys(handles):
            each.require_kept()
            sessions.setdefault(each.session, []).append(each)
        begun = {
            session: session.fetch_all([each.number for each in wanted])
            for session, wanted in sessions.items()
        }
        arrays = {
            each: each.assemble(parts)
            for session, wanted in sessions.items()
            for each, parts in zip(wanted, begun[session].result(), strict=True)
        }
        fetched = join_stacks([arrays[each] for each in handles], counts)
        return jax.tree.unflatten(structure, map(whole_array, fetched))

    def define(
        self,
        code: ProgramCode,
        input_bytes: Iterable[int] = (),
        output_bytes: Iterable[int] = (),
        donated: Iterable[int] = (),
    ) -> int:
        """Define a new program in the cluster, and return its number.

        input_bytes, output_bytes: bytes of each argument and result on one device.
        donated: positions of donated arguments.
        """
        self._require_devices()
        (number,) = self.session.new_numbers(1)
        program = Define(
            program=number,
            code=replace(code, forbids=forbidden_numbers()).to_bytes(),
            devices=self.devices,
            donated=tuple(donated),
            input_bytes=tuple(input_bytes),
            output_bytes=tuple(output_bytes),
            whole=tuple(i for i, s in enumerate(code.outputs) if not any(s.dims)),
        )
        self.session.submit(program)
        return number

    def call(
        self,
        program: int,
        inputs: Sequence[RemoteArray],
        out_avals: Sequence[Any],
        donated: Iterable[int] = (),
    ) -> list[RemoteArray]:
        """Handles to the results of a program, which runs later.

        Raises `ClusterError` for an argument that was donated before.
        """
        self._require_devices()
        for each in inputs:
            each.require_kept()
        transfers = self._transfers(program, inputs)
        near = [each.copies.get(self.devices, each) for each in inputs]
        numbers = self.session.new_numbers(len(out_avals))
        named = tuple(each.number for each in near)
        self.session.submit(*transfers, Call(program, named, numbers))
        for each in near:
            each.devices = self.devices
        for position in donated:
            inputs[position].donate()
            near[position].donate()
        pairs = zip(numbers, out_avals, strict=True)
        return [RemoteArray(self.session, n, aval, self.devices) for n, aval in pairs]

    def forget(self, program: int) -> None:
        """Let the workers forget a program, once its calls so far have run."""
        self.session.submit(Free((), (program,)))

    def task(
        self,
        kind: str,
        folder: str,
        argument: Mapping[str, Any],
        inputs: Sequence[RemoteArray] = (),
        out_avals: Sequence[Any] = (),
    ) -> list[RemoteArray]:
        """Handles to the results of a function that workers know by name, such as "save".

        argument: any JSON value.
        out_avals: shapes, dtypes and shardings of all results but the last, which is a
            number.
        See `CheckpointTasks`.
        """
        self._require_devices()
        near = [each.copies.get(self.devices, each) for each in inputs]
        for each in near:
            each.require_kept()
            if each.devices not in (None, self.devices):
                raise ClusterError(
                    f"{kind}: an array is on {each.devices}, not on {self}"
                )
        avals = [*out_avals, jax.ShapeDtypeStruct((), np.int32)]
        numbers = self.session.new_numbers(len(avals))
        named = tuple(each.number for each in near)
        sizes = tuple(_bytes_on_device(aval) for aval in avals)
        self.session.submit(
            WorkerTask(
                kind, folder, json.dumps(argument), self.devices, named, numbers, sizes
            )
        )
        *arrays, step = zip(numbers, avals, strict=True)
        made = [RemoteArray(self.session, n, aval, self.devices) for n, aval in arrays]
        return [*made, RemoteArray(self.session, *step)]

    def _transfers(self, program: int, inputs: Sequence[RemoteArray]) -> list[Transfer]:
        """Requests that copy arrays of other slices to this slice, unless it has a copy.

        The handles keep their copies.
        """
        positions = {each: position for position, each in enumerate(inputs)}
        far = {
            each: position
            for each, position in positions.items()
            if each.devices not in (None, self.devices)
            and self.devices not in each.copies
        }
        if not far:
            return []
        numbers = self.session.new_numbers(len(far))
        for each, number in zip(far, numbers, strict=True):
            copy = RemoteArray(self.session, number, each, self.devices)
            each.copies[self.devices] = copy
            self.session.copied.add(each)
        named = tuple(each.number for each in far)
        return [Transfer(program, tuple(far.values()), named, numbers)]

    def release(self) -> None:
        """Give the devices back; the programs that were defined for them are forgotten.

        A second release does nothing.
        """
        if self._is_released:
            return
        self.session.wait_taken()  # a release would overtake calls that still wait
        self.session.ask("release", self.number)
        self._is_released = True

    def _require_devices(self) -> None:
        self.session.require_open()
        if self._is_released:
            raise ClusterError(
                f"{self} was released; take another with cluster.slice, and partition "
                "the step for it"
            )

    def __repr__(self) -> str:
        return f"Slice({self.mesh}, devices {self.devices[0]} to {self.devices[-1]})"


def forbidden_numbers() -> tuple[str, ...]:
    """The kinds of numbers that JAX's options in this process forbid in results."""
    asked = {"nan": jax.config.jax_debug_nans, "inf": jax.config.jax_debug_infs}
    return tuple(kind for kind, is_asked in asked.items() if is_asked)


def _bytes_on_device(aval: Any) -> int:
    sharding = getattr(aval, "sharding", None)
    shape = aval.shape if sharding is None else sharding.shard_shape(aval.shape)
    return int(np.dtype(aval.dtype).itemsize * math.prod(shape))


class Cluster:
    """A client's connection to workers; several clients may share one controller."""

    def __init__(self, connection: Connection, token: str = "") -> None:
        self._connection = connection
        self._session = ClientSession(connection, token)

    def slice(self, sizes: Mapping[str, int]) -> Slice:
        """Devices in the shape of a mesh, such as {"data": 4, "model": 2}.

        Waits until the workers have started.
        """
        return Slice(self._session, sizes)

    def status(self) -> Status:
        """The state of the workers and the tenants."""
        return self._session.ask("status")

    def events(self) -> list[Event]:
        """The last events of the cluster, in order."""
        return self._session.ask("events")

    def skip_refused(self) -> None:
        """Continue after a loss of workers: forget requests refused for lost arrays."""
        self._session.skip_refused()

    def resize(self, workers: int) -> None:
        """Change the number of workers; arrays on the present workers are lost."""
        self._session.ask("resize", workers)

    def wait_until_ready(self) -> Status:
        """Wait until the workers run, and return the state of the cluster.

        Raises `ClusterError` if they have failed to start several times.
        """
        while not (status := self.status()).places:
            if status.failure:
                raise ClusterError(f"the workers do not start: {status.failure}")
            time.sleep(_POLL_S)
        return status

    def stop(self) -> None:
        """End all sessions and all workers; only an operator may."""
        self._session.stop()
        self._connection.owned = True

    @property
    def address(self) -> str:
        """The address at which other clients find the cluster; "" if there is none."""
        return self._connection.address

    def close(self) -> None:
        """End the session, and the cluster if this process started it."""
        try:
            self._session.close()
        finally:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
