"""Admission: the checks that a request passes before the controller queues it.

A client may name only arrays, programs and slices of its own session, and hold no more
than its tenant may. A request that breaks this is refused, and reaches no worker.
"""

from collections.abc import Mapping, Sequence

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.island import Island
from meshwright.features.cluster.controller.limits import (
    MOST_ARRAYS,
    MOST_CODE_BYTES,
    MOST_PROGRAMS,
    MOST_REQUESTS,
)
from meshwright.features.cluster.controller.requests import QueuedRequest
from meshwright.features.cluster.controller.tenants import ArrayRecord, Session
from meshwright.features.cluster.wire.messages import (
    Call,
    Define,
    End,
    Free,
    Put,
    Request,
    Transfer,
    WorkerTask,
    complaint,
)


class Admission:
    """Checks the requests of all sessions, records their arrays, and queues the requests.

    sessions: the open sessions, by name.
    """

    def __init__(self, island: Island, sessions: Mapping[str, Session]) -> None:
        self._island = island
        self._sessions = sessions

    def admit_all(self, owner: Session, requests: Sequence[Request]) -> None:
        """Queue all requests but refused ones; raises the error of the first refusal.

        Arrays that a refused request would have made are recorded as nonexistent.
        """
        if type(requests) not in (list, tuple):
            raise ClusterError(
                f"requests are a {type(requests).__name__}; wanted a list"
            )
        if len(requests) > MOST_REQUESTS:
            raise ClusterError(
                f"{len(requests)} requests in one submission; wanted at most "
                f"{MOST_REQUESTS}"
            )
        refusals: list[ClusterError] = []
        for request in requests:
            try:
                self._admit(owner, request)
            except ClusterError as error:
                refusals.append(error)
                lost = () if complaint(request) else getattr(request, "outputs", ())
                owner.note_gone((n for n in lost if n not in owner.arrays), str(error))
        if refusals:
            raise refusals[0]

    def _admit(self, owner: Session, request: Request) -> None:
        """Check a request and queue it."""
        wrong = complaint(request)
        if wrong:
            raise ClusterError(wrong)
        match request:
            case Define():
                self._define(owner, request)
            case Put():
                self._put(owner, request)
            case Call():
                self._call(owner, request)
            case Transfer():
                self._transfer(owner, request)
            case WorkerTask():
                self._task(owner, request)
            case Free():
                self._free(owner, request)

    def _define(self, owner: Session, request: Define) -> None:
        if request.devices not in owner.slices.values():
            raise ClusterError(
                f"program {request.program} is for devices {request.devices}, which are "
                "no slice of this session"
            )
        num_inputs = len(request.input_bytes)
        if any(position >= num_inputs for position in request.donated):
            raise ClusterError(
                f"program {request.program} donates {request.donated}, and has "
                f"{num_inputs} arguments"
            )
        self._require_code(owner, request)
        owner.programs[request.program] = request
        self.queue(owner, request)

    def _put(self, owner: Session, request: Put) -> None:
        self._make(owner, request, (request.num_bytes,))

    def _call(self, owner: Session, request: Call) -> None:
        program = self._require_program(owner, request.program)
        for number in request.inputs:
            self.require_array(owner, number)
        wanted = len(program.input_bytes), len(program.output_bytes)
        if (len(request.inputs), len(request.outputs)) != wanted:
            raise ClusterError(
                f"program {request.program} has {wanted[0]} arguments and {wanted[1]} "
                f"results; named are {len(request.inputs)} and {len(request.outputs)}"
            )
        sizes, whole = program.output_bytes, frozenset(program.whole)
        self._make(owner, request, sizes, program.devices, whole)
        for position in program.donated:
            owner.arrays.pop(request.inputs[position], None)

    def _transfer(self, owner: Session, request: Transfer) -> None:
        program = self._require_program(owner, request.program)
        for number in request.inputs:
            self.require_array(owner, number)
        sizes, positions = program.input_bytes, request.positions
        if len({len(request.inputs), len(request.outputs), len(positions)}) > 1:
            raise ClusterError(
                f"{len(request.inputs)} arrays become {len(request.outputs)} for "
                f"{len(positions)} arguments; wanted as many of each"
            )
        if any(position >= len(sizes) for position in positions):
            raise ClusterError(
                f"arrays for arguments {positions} of program {request.program}, which "
                f"has {len(sizes)}"
            )
        wanted = [sizes[p] for p in positions]
        self._make(owner, request, wanted, program.devices)

    def _task(self, owner: Session, request: WorkerTask) -> None:
        if request.devices not in owner.slices.values():
            raise ClusterError(
                f"{request.kind} is for devices {request.devices}, which are no slice of "
                "this session"
            )
        self._require_present(owner, request.kind, request.devices)
        if not owner.tenant.may_write(request.folder):
            raise ClusterError(
                f"folder {request.folder!r:.200}; tenant {owner.tenant.name} has whole "
                f"paths below {owner.tenant.folder}"
            )
        sizes = request.output_bytes
        if len(request.outputs) != len(sizes):
            raise ClusterError(
                f"{request.kind} has {len(sizes)} results; named are "
                f"{len(request.outputs)}"
            )
        for number in request.inputs:
            self.require_array(owner, number)
        self._make(owner, request, sizes)

    def _free(self, owner: Session, request: Free) -> None:
        for number in request.arrays:
            owner.gone.pop(number, None)
        arrays = tuple(n for n in request.arrays if owner.arrays.pop(n, None))
        programs = [n for n in request.programs if owner.programs.pop(n, None)]
        if arrays or programs:
            self.queue(owner, Free(arrays, tuple(programs)))

    def _make(
        self,
        owner: Session,
        request: Put | Call | Transfer | WorkerTask,
        sizes: Sequence[int],
        devices: tuple[int, ...] | None = None,
        whole: frozenset[int] = frozenset(),
    ) -> None:
        """Queue a request that makes arrays, and record the arrays' bytes and devices.

        sizes: bytes of each array on one device.
        whole: positions among the results of arrays that every device holds completely.
        """
        numbers = request.outputs
        self._require_new(owner, numbers)
        self._require_bytes(owner, sum(sizes))
        if len(owner.arrays) + len(numbers) > MOST_ARRAYS:
            raise ClusterError(f"more than {MOST_ARRAYS} arrays; drop some first")
        made = self.queue(owner, request).completed
        for i, (number, size) in enumerate(zip(numbers, sizes, strict=True)):
            owner.arrays[number] = ArrayRecord(made, size, devices, i in whole)

    def queue(self, owner: Session, request: Request | End) -> QueuedRequest:
        """Queue a request that needs no check, such as the end of a session."""
        return self._island.add(owner.tenant.name, owner.name, request)

    def _require_program(self, owner: Session, number: int) -> Define:
        program = owner.programs.get(number)
        if program is None:
            raise ClusterError(f"program {number} is not defined")
        self._require_present(owner, f"program {number}", program.devices)
        return program

    def _require_present(
        self, owner: Session, name: str, devices: tuple[int, ...]
    ) -> None:
        if owner.present(devices) is None:
            raise ClusterError(
                f"{name} is for {len(devices)} devices, and there are fewer now "
                f"({self._island.size}); partition for a smaller slice, or wait for more "
                "workers"
            )

    def _require_code(self, owner: Session, request: Define) -> None:
        """Raise `ClusterError` if the controller has no room to keep one more program."""
        if len(owner.programs) >= MOST_PROGRAMS:
            raise ClusterError(
                f"more than {MOST_PROGRAMS} programs; let the workers forget some first"
            )
        taken = sum(
            len(define.code)
            for each in self._sessions.values()
            if each.tenant is owner.tenant
            for define in each.programs.values()
        )
        if taken + len(request.code) > MOST_CODE_BYTES:
            raise ClusterError(
                f"the programs of tenant {owner.tenant.name} take {taken} bytes, and "
                f"{len(request.code)} more do not fit in {MOST_CODE_BYTES}"
            )

    def require_array(self, owner: Session, number: int) -> ArrayRecord:
        """The record of an array of a session; `ClusterError` if it has none."""
        if type(number) is not int:
            raise ClusterError(f"array {number!r:.60}; wanted its number")
        record = owner.arrays.get(number)
        if record is None:
            known = "it was never made by this session, or it was freed or donated"
            why = owner.gone.get(number, known)
            raise ClusterError(f"array {number} is not there: {why}")
        return record

    def _require_new(self, owner: Session, numbers: Sequence[int]) -> None:
        if len(set(numbers)) < len(numbers):
            raise ClusterError("two results have the same number")
        for number in numbers:
            if number in owner.arrays:
                raise ClusterError(f"array {number} is there already")

    def _require_bytes(self, owner: Session, more: int) -> None:
        tenant = owner.tenant
        if tenant.max_bytes == float("inf"):
            return
        taken = sum(
            record.num_bytes
            for each in self._sessions.values()
            if each.tenant is tenant
            for record in each.arrays.values()
        )
        if taken + more > tenant.max_bytes:
            raise ClusterError(
                f"tenant {tenant.name} may hold {tenant.max_bytes:.3g} bytes on a device "
                f"and holds {taken:.3g}; {more:.3g} more do not fit; drop arrays first"
            )
