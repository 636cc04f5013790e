"""A worker: executes the instructions of the controller on the devices of its process.

All workers of a gang get the same instructions in the same order, so that their
collectives match. A worker starts programs without waiting for their results; a thread
of its own waits for them and records when each ended.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from meshwright.errors import ClusterError
from meshwright.jax_private import is_key
from meshwright.run.checkpoint.tasks import CheckpointTasks
from meshwright.run.cluster.wire.messages import (
    ArrayKey,
    ArrayPart,
    Call,
    Completion,
    Define,
    End,
    Fetched,
    Free,
    HostArray,
    Put,
    Transfer,
    WorkerInstruction,
    WorkerTask,
)
from meshwright.run.cluster.worker.boxes import on_devices
from meshwright.run.cluster.worker.transfer import Delivery, TransferKey, Transfers
from meshwright.run.cluster.worker.worker_program import Elsewhere, WorkerProgram
from meshwright.run.local import find_devices

_POLL_S = 0.5
"""Seconds that `completions` waits at most for the next one."""

_GATHER_S = 0.03
"""Seconds in which completions are gathered; of 100 ms of work that is under way."""


class Failed:
    """An array that does not exist, because the program that should make it failed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Worker:
    """The programs and arrays of one process, and what it does with them.

    send: hands parts of an array to the worker of a number.
    """

    def __init__(self, send: Callable[[int, Delivery], None]) -> None:
        self._transfers = Transfers(send)
        self._programs: dict[tuple[str, int], WorkerProgram] = {}
        self._arrays: dict[ArrayKey, Any] = {}
        self._tasks: dict[str, CheckpointTasks] = {}
        self._changed = threading.Condition()
        self._running: queue.SimpleQueue[tuple[int, float, Any]] = queue.SimpleQueue()
        self._completions: list[Completion] = []
        self._under_way = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def execute(self, instructions: Sequence[WorkerInstruction]) -> None:
        """Start instructions, in order; `completions` tells when each ended."""
        for each in instructions:
            start_s = time.monotonic()
            with self._changed:
                self._under_way += 1
            handle = _HANDLERS[type(each.request)]
            try:
                results = handle(self, each)
            except Exception as error:  # noqa: BLE001  told with the completion
                results = self._fail(each.session, each.request, _text(error))
            self._running.put((each.number, start_s, results))

    def completions(self, after: int) -> list[Completion]:
        """The completions of instructions after number `after`, once there are any.

        Returns an empty list after half a second without one. While more instructions
        are under way, several completions are gathered.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._known(after), _POLL_S)
            self._changed.wait_for(lambda: not self._under_way, _GATHER_S)
            found = self._known(after)
            self._completions = found
            return list(found)

    def fetch(self, array: ArrayKey) -> Fetched | None:
        """This process's parts of an array; of replicated parts, only the first.

        Returns `None` if it has none. Raises `ClusterError` if the program that should
        have made the array failed.
        """
        value = self._arrays.get(array)
        if value is None or isinstance(value, Elsewhere):
            return None
        try:
            return _parts(_present(value))
        except jax.errors.JaxRuntimeError as error:
            raise ClusterError(_text(error)) from error

    def close(self) -> None:
        """End what tasks have begun."""
        while self._tasks:
            _, tasks = self._tasks.popitem()
            tasks.close()

    # -- instructions --------------------------------------------------------------------

    def deliver(self, delivery: Delivery) -> None:
        """Take in parts of an array that another worker sends."""
        self._transfers.mailbox.deliver(delivery)

    def define(self, each: Any) -> Any:
        """Keep a program."""
        program = WorkerProgram(each.request)
        self._programs[each.session, each.request.program] = program

    def put(self, each: Any) -> Any:
        """Keep an array of the client."""
        request = each.request
        value, stated = request.value, request.num_bytes
        if type(value) is not HostArray or type(value.data) is not np.ndarray:
            raise ClusterError(f"a {type(value).__name__} is no array of a host")
        if value.data.dtype.hasobject or value.data.nbytes > stated:
            raise ClusterError(
                f"an array of {value.data.nbytes} bytes and dtype {value.data.dtype}; "
                f"wanted numbers, of the {stated} bytes that were stated"
            )
        self._arrays[ArrayKey(each.session, request.array)] = value

    def free(self, each: Any) -> Any:
        """Forget arrays and programs."""
        for number in each.request.arrays:
            self._arrays.pop(ArrayKey(each.session, number), None)
        for number in each.request.programs:
            self._programs.pop((each.session, number), None)

    def call(self, each: Any) -> Any:
        """Start a program, and name its results."""
        request = each.request
        program = self._programs[each.session, request.program]
        inputs = [ArrayKey(each.session, number) for number in request.inputs]
        outputs = [ArrayKey(each.session, number) for number in request.outputs]
        if program.takes_part:
            return self._run(program, inputs, outputs)
        for position, key in enumerate(inputs):
            if position in program.donated:
                self._arrays.pop(key, None)
            elif isinstance(self._arrays.get(key), HostArray):
                self._arrays[key] = Elsewhere(program, False, position)
        for position, key in enumerate(outputs):
            self._arrays[key] = Elsewhere(program, True, position)
        return None

    def _run(
        self,
        program: WorkerProgram,
        keys: Sequence[ArrayKey],
        outputs: Sequence[ArrayKey],
    ) -> Any:
        """Start a program of which this process has devices."""
        # First, so that all workers know where the array is even if the program fails.
        for key, aval in zip(keys, program.inputs, strict=True):
            if isinstance(value := self._arrays[key], HostArray):
                self._arrays[key] = on_devices(value, aval)
        executable = program.executable
        placed = executable.place([_present(self._arrays[key]) for key in keys])
        for position in program.donated:
            self._arrays.pop(keys[position], None)
        results = executable.run(placed)
        self._arrays.update(zip(outputs, results, strict=True))
        return results

    def transfer(self, each: Any) -> Any:
        """Send the parts of arrays that this process has, and await those it needs."""
        request, session = each.request, each.session
        program = self._programs[session, request.program]
        results: list[Any] = []
        for i, position in enumerate(request.positions):
            value = self._arrays[ArrayKey(session, request.inputs[i])]
            target = Elsewhere(program, False, position)
            result = self._move(value, target, (each.number, i))
            self._arrays[ArrayKey(session, request.outputs[i])] = result
            results.append(result)
        return results

    def _move(self, value: Any, target: Elsewhere, key: TransferKey) -> Any:
        """What this process has of an array after its transfer."""
        if isinstance(value, HostArray):
            return value  # all workers have it
        try:
            source = value.aval if isinstance(value, Elsewhere) else _present(value)
            future = self._transfers.start(key, source, target.aval)
        except ClusterError as error:
            self._transfers.fail(key, target.aval, str(error))
            return Failed(str(error))
        return future or target

    def task(self, each: Any) -> Any:
        """Run a function by its name, and name its results."""
        request, session = each.request, each.session
        tasks = self._tasks.setdefault(session, CheckpointTasks())
        keys = [ArrayKey(session, number) for number in request.inputs]
        inputs = [_present(self._arrays[key]) for key in keys]
        devices = [find_devices()[i] for i in request.devices]
        argument = json.loads(request.argument)
        *arrays, step = tasks.run(
            request.kind, request.folder, argument, devices, inputs
        )
        results = [*arrays, HostArray(step)]
        for number, result in zip(request.outputs, results, strict=True):
            self._arrays[ArrayKey(session, number)] = result
        return arrays

    def end(self, each: Any) -> Any:
        """Forget all of a session, and end what its tasks have begun."""
        ended = each.session
        tasks = self._tasks.pop(ended, None)
        self._arrays = {k: v for k, v in self._arrays.items() if k.session != ended}
        self._programs = {k: v for k, v in self._programs.items() if k[0] != ended}
        if tasks is not None:
            tasks.close()

    def _fail(self, session: str, request: Any, reason: str) -> Failed:
        """Mark what a request should have made as failed."""
        for number in getattr(request, "outputs", ()):
            self._arrays[ArrayKey(session, number)] = Failed(reason)
        return Failed(reason)

    # -- completions ---------------------------------------------------------------------

    def _known(self, after: int) -> list[Completion]:
        return [each for each in self._completions if each.number > after]

    def _watch(self) -> None:
        """Wait for the results of each instruction, and record when it ended."""
        last_s = time.monotonic()
        while True:
            number, start_s, results = self._running.get()
            is_failed = isinstance(results, Failed)
            error = results.reason if is_failed else _wait(results)
            now_s = time.monotonic()
            del results  # it would keep the arrays until the next instruction
            with self._changed:
                self._under_way -= 1
                took_s = now_s - max(start_s, last_s)
                self._completions.append(Completion(number, took_s, error))
                self._changed.notify_all()
            last_s = now_s


_HANDLERS: dict[type, Callable[[Worker, Any], Any]] = {
    Define: Worker.define,
    Put: Worker.put,
    Call: Worker.call,
    Transfer: Worker.transfer,
    WorkerTask: Worker.task,
    Free: Worker.free,
    End: Worker.end,
}


def _present(value: Any) -> Any:
    """An array that this process has; waits for parts that are on their way.

    Raises `ClusterError` if it does not exist.
    """
    if isinstance(value, Failed):
        raise ClusterError(value.reason)
    return value.result() if isinstance(value, Future) else value


def _wait(results: Any) -> str:
    """Wait for the results of an instruction; returns its error, or "".

    Results that a later program has taken over are skipped: the others of the same
    program tell its end.
    """
    for result in results or ():
        try:
            array = _present(result)
        except ClusterError as error:
            return str(error)
        if not isinstance(array, jax.Array):
            continue
        try:
            array.block_until_ready()
        except RuntimeError as error:  # of the program, or since the array is deleted
            if not array.is_deleted():
                return _text(error)
    return ""


def _parts(value: Any) -> Fetched:
    """The first replica of each part of an array that is on this process's devices."""
    if isinstance(value, HostArray):
        data = np.asarray(value.data)
        whole = ArrayPart(tuple(slice(None) for _ in data.shape), data)
        shards = () if jax.process_index() else (whole,)
        return Fetched(data.shape, shards, value.key_type)
    key_type = ""
    if is_key(value.dtype):
        key_type, value = str(jax.random.key_impl(value)), jax.random.key_data(value)
    shards = tuple(
        ArrayPart(shard.index, np.asarray(shard.data))
        for shard in value.addressable_shards
        if shard.replica_id == 0
    )
    return Fetched(value.shape, shards, key_type)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
