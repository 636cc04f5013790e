"""A worker: executes the controller's instructions on the devices of its process.

All workers of a gang get the same instructions in the same order, so that their
collectives match. A worker starts programs without waiting for their results; a separate
thread waits for the results and records when each program ended.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from meshwright.errors import ClusterError
from meshwright.features.checkpoint.tasks import CheckpointTasks
from meshwright.features.cluster.wire.messages import (
    ArrayKey,
    Call,
    Completion,
    Define,
    End,
    Free,
    HostArray,
    Put,
    Transfer,
    WorkerInstruction,
    WorkerTask,
)
from meshwright.features.cluster.worker.boxes import BoxData, on_devices
from meshwright.features.cluster.worker.failed_arrays import FailedArrays
from meshwright.features.cluster.worker.fetched_parts import parts_of, why_not_read
from meshwright.features.cluster.worker.progress import (
    Failed,
    WorkerProgress,
    error_text,
    present,
)
from meshwright.features.cluster.worker.transfer import Delivery, TransferKey, Transfers
from meshwright.features.cluster.worker.worker_program import Elsewhere, WorkerProgram
from meshwright.run.local.devices import find_devices


class BrokenProgram(NamedTuple):
    """A program that cannot run, because its definition failed.

    donated: positions of arguments that a call frees nevertheless.
    """

    donated: frozenset[int]
    reason: str


class Worker:
    """The programs and arrays of one process, and the instructions that change them.

    send: a function that sends parts of an array to a worker, given its number.
    load: a function that returns the array behind a reference in a request; raises an
        exception if it is lost.
    """

    def __init__(
        self,
        send: Callable[[int, Delivery], None],
        load: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self._transfers = Transfers(send)
        self._load = load
        self._programs: dict[tuple[str, int], WorkerProgram | BrokenProgram] = {}
        self._arrays: dict[ArrayKey, Any] = {}
        self._failed = FailedArrays()
        self._tasks: dict[str, CheckpointTasks] = {}
        self._progress = WorkerProgress()

    def execute(self, instructions: Sequence[WorkerInstruction]) -> None:
        """Start instructions, in order; `completions` tells when each ended."""
        for each in instructions:
            start_s = self._progress.begin()
            explain = self._explain(each)
            try:
                results = _HANDLERS[type(each.request)](self, each)
            except Exception as error:  # noqa: BLE001  told with the completion
                results = self._fail(each.session, each.request, error_text(error))
            self._progress.await_results(each.number, start_s, results, explain)

    def completions(self, after: int) -> list[Completion]:
        """Completions of instructions after number `after`; waits half a second at most."""
        return self._progress.completions(after)

    def fetch(self, array: ArrayKey) -> tuple[BoxData, ...]:
        """This process's parts of an array; of replicated parts, only the first.

        Raises `ClusterError` if they cannot be read: the program that should have made
        the array failed, or the array was donated.
        """
        value = self._arrays.get(array)
        if value is None or isinstance(value, Elsewhere):
            return ()
        try:
            return parts_of(present(value))
        except ClusterError:
            raise
        except Exception as error:
            reason = self._failed.reason(array) or why_not_read(array, value, error)
            raise ClusterError(reason) from error

    def close(self) -> None:
        """Finish the instructions that have begun, and free all programs and arrays."""
        with ExitStack() as ends:
            ends.callback(self._arrays.clear)
            ends.callback(self._programs.clear)
            ends.callback(self._transfers.close)
            ends.callback(self._progress.close)
            for tasks in self._tasks.values():
                ends.callback(tasks.close)
            self._tasks = {}

    # -- instructions --------------------------------------------------------------------

    def deliver(self, delivery: Delivery) -> None:
        """Receive parts of an array that another worker sends."""
        self._transfers.mailbox.deliver(delivery)

    def define(self, each: Any) -> Any:
        """Store a program under its number."""
        program = WorkerProgram(each.request)
        self._programs[each.session, each.request.program] = program

    def put(self, each: Any) -> Any:
        """Store an array of the client under its number."""
        request = each.request
        value, stated = self._load(request.value), request.num_bytes
        if type(value) is not HostArray or type(value.data) is not np.ndarray:
            raise ClusterError(f"a {type(value).__name__} is no array of a host")
        if value.data.dtype.hasobject or value.data.nbytes > stated:
            raise ClusterError(
                f"an array of {value.data.nbytes} bytes and dtype {value.data.dtype}; "
                f"wanted numbers, of the {stated} bytes that were stated"
            )
        self._arrays[ArrayKey(each.session, request.array)] = value

    def free(self, each: Any) -> Any:
        """Free arrays and programs."""
        for number in each.request.arrays:
            self._arrays.pop(ArrayKey(each.session, number), None)
        for number in each.request.programs:
            self._programs.pop((each.session, number), None)

    def call(self, each: Any) -> Any:
        """Start a program, and store its results; donated arguments are always freed."""
        request = each.request
        program = self._programs[each.session, request.program]
        inputs = [ArrayKey(each.session, number) for number in request.inputs]
        outputs = [ArrayKey(each.session, number) for number in request.outputs]
        try:
            if isinstance(program, BrokenProgram):
                raise ClusterError(program.reason)
            if program.takes_part:
                return self._run(program, inputs, outputs)
            self._skip(program, inputs, outputs)
            return None
        finally:
            for position in program.donated:
                self._arrays.pop(inputs[position], None)

    def _skip(
        self,
        program: WorkerProgram,
        inputs: Sequence[ArrayKey],
        outputs: Sequence[ArrayKey],
    ) -> None:
        """Record where arrays are of a program that no device of this process runs."""
        for position, key in enumerate(inputs):
            if isinstance(self._arrays.get(key), HostArray):
                self._arrays[key] = Elsewhere(program, False, position)
        for position, key in enumerate(outputs):
            self._arrays[key] = Elsewhere(program, True, position)

    def _run(
        self,
        program: WorkerProgram,
        keys: Sequence[ArrayKey],
        outputs: Sequence[ArrayKey],
    ) -> Any:
        """Start a program that runs on devices of this process."""
        # First, so that all workers know where the array is even if the program fails.
        for key, aval in zip(keys, program.inputs, strict=True):
            if isinstance(value := self._arrays[key], HostArray):
                self._arrays[key] = on_devices(value, aval)
        given = [present(self._arrays[key]) for key in keys]
        try:
            results = program.run(given)
        except Exception as error:
            if program.name:
                raise ClusterError(f"{program.name}: {error_text(error)}") from error
            raise
        self._arrays.update(zip(outputs, results, strict=True))
        return results

    def transfer(self, each: Any) -> Any:
        """Send this process's parts of arrays, and receive the parts that it needs."""
        request, session = each.request, each.session
        program = self._programs[session, request.program]
        if isinstance(program, BrokenProgram):
            raise ClusterError(program.reason)
        results: list[Any] = []
        for i, position in enumerate(request.positions):
            source = ArrayKey(session, request.inputs[i])
            target = Elsewhere(program, False, position)
            result = self._move(source, target, (each.number, i))
            self._arrays[ArrayKey(session, request.outputs[i])] = result
            results.append(result)
        return results

    def _move(self, array: ArrayKey, target: Elsewhere, key: TransferKey) -> Any:
        """Transfer an array; returns what this process holds for the result.

        That is a future of its part; the array itself if all processes have it; or the
        result's placement (`Elsewhere`) if this process has no part of it.
        """
        value = self._arrays[array]

        def explain(error: str) -> str:
            self._progress.wait_until_ended(key[0] - 1)
            return self._failed.reason(array) or error

        if isinstance(value, HostArray):
            return value  # all workers have it
        try:
            source = value.aval if isinstance(value, Elsewhere) else present(value)
            future = self._transfers.start(key, source, target.aval, explain)
        except ClusterError as error:
            self._transfers.fail(key, target.aval, str(error))
            return Failed(str(error))
        return future or target

    def task(self, each: Any) -> Any:
        """Run a function that workers know by name, and store its results."""
        request, session = each.request, each.session
        tasks = self._tasks.setdefault(session, CheckpointTasks())
        keys = [ArrayKey(session, number) for number in request.inputs]
        inputs = [present(self._arrays[key]) for key in keys]
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
        """Free all arrays and programs of a session, and finish its running tasks."""
        ended = each.session
        tasks = self._tasks.pop(ended, None)
        self._arrays = {k: v for k, v in self._arrays.items() if k.session != ended}
        self._programs = {k: v for k, v in self._programs.items() if k[0] != ended}
        self._failed.forget(ended)
        if tasks is not None:
            tasks.close()

    def _explain(self, each: WorkerInstruction) -> Callable[[str], str]:
        """A function from an error of an instruction's results to the message."""
        request = each.request
        program = self._programs.get((each.session, getattr(request, "program", -1)))
        if not isinstance(request, Call) or not isinstance(program, WorkerProgram):
            return str
        inputs = [ArrayKey(each.session, number) for number in request.inputs]
        outputs = [ArrayKey(each.session, number) for number in request.outputs]
        return self._failed.of_call(program.name, inputs, outputs)

    def _fail(self, session: str, request: Any, reason: str) -> Failed:
        """Mark the results of a request as failed; returns the mark."""
        for number in getattr(request, "outputs", ()):
            self._arrays[ArrayKey(session, number)] = Failed(reason)
        if isinstance(request, Define):
            donated = frozenset(request.donated)
            self._programs[session, request.program] = BrokenProgram(donated, reason)
        return Failed(reason)


_HANDLERS: dict[type, Callable[[Worker, Any], Any]] = {
    Define: Worker.define,
    Put: Worker.put,
    Call: Worker.call,
    Transfer: Worker.transfer,
    WorkerTask: Worker.task,
    Free: Worker.free,
    End: Worker.end,
}
