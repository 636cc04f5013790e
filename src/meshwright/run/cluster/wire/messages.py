"""The messages of a client to the controller, and of the controller to its workers.

All arrays are named by numbers that the client chooses, one for each logical array: no
message grows with the number of shards. A client names only its own arrays, so the
controller adds the session's name to each number before workers see it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class ArrayKey(NamedTuple):
    """The name of a logical array on the workers: its session, and its number there."""

    session: str
    number: int


class HostArray(NamedTuple):
    """The data of one array in the memory of a host.

    key_type: the implementation of the PRNG keys whose data this is; "" for numbers.
    """

    data: Any
    key_type: str = ""


@dataclass(frozen=True, slots=True)
class Define:
    """Keep a program under a number; it is compiled when it first runs.

    code: `ProgramCode.to_bytes`, which the controller passes on without reading it.
    devices: the position of each device of the mesh among those of the gang.
    donated: positions of donated arguments.
    input_bytes, output_bytes: bytes of each argument and result on one device.
    whole: positions of the results that each device has whole.
    """

    program: int
    code: bytes
    devices: tuple[int, ...]
    donated: tuple[int, ...]
    input_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]
    whole: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Put:
    """Keep an array of the client; devices get their parts when a program reads it.

    value: a `HostArray`, or a reference to one in the object store.
    num_bytes: of the whole array.
    """

    array: int
    value: Any
    num_bytes: int

    @property
    def outputs(self) -> tuple[int, ...]:
        """The one array."""
        return (self.array,)


@dataclass(frozen=True, slots=True)
class Call:
    """Run a program on arrays; the results are named at once, and computed later."""

    program: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Copy arrays from the devices of another slice to those of a program.

    positions: the arguments of the program that the copies will be, one for each array;
        the copies are sharded like them.
    """

    program: int
    positions: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Free:
    """Forget arrays that the client has dropped, and programs that it no longer calls."""

    arrays: tuple[int, ...]
    programs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """Run one of the functions that workers know by name, on arrays.

    kind: the name, such as "save". folder: the one that it reads and writes.
    argument: what else it needs besides arrays, as JSON.
    devices: those of the slice. output_bytes: bytes of each result on one device.
    """

    kind: str
    folder: str
    argument: str
    devices: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    output_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class End:
    """Forget all that a session has, which has ended."""


type Request = Define | Put | Call | Transfer | WorkerTask | Free
"""The messages that a client may submit."""


@dataclass(frozen=True, slots=True)
class WorkerInstruction:
    """A request as workers get it, with its place in the island's order.

    number: grows by one from instruction to instruction of a gang.
    session: of the client; programs and arrays are named within it.
    """

    number: int
    session: str
    request: Request | End


class Completion(NamedTuple):
    """The end of one instruction on one worker.

    seconds: from the end of the instruction before it, or from its own start if that is
        later. error: why it failed; "" if it did not.
    """

    number: int
    seconds: float
    error: str


class ArrayPart(NamedTuple):
    """One part of an array: the slices of the whole that it covers, and its data."""

    slices: tuple[slice, ...]
    data: Any


class Fetched(NamedTuple):
    """The parts of an array that one worker contributes.

    key_type: as in `HostArray`.
    """

    shape: tuple[int, ...]
    shards: tuple[ArrayPart, ...]
    key_type: str = ""


ATTRIBUTES: Mapping[type, Mapping[str, type]] = {
    Define: {
        "program": int,
        "code": bytes,
        "devices": tuple,
        "donated": tuple,
        "input_bytes": tuple,
        "output_bytes": tuple,
        "whole": tuple,
    },
    Put: {"array": int, "num_bytes": int},
    Call: {"program": int, "inputs": tuple, "outputs": tuple},
    Transfer: {
        "program": int,
        "positions": tuple,
        "inputs": tuple,
        "outputs": tuple,
    },
    WorkerTask: {
        "kind": str,
        "folder": str,
        "argument": str,
        "devices": tuple,
        "inputs": tuple,
        "outputs": tuple,
        "output_bytes": tuple,
    },
    Free: {"arrays": tuple, "programs": tuple},
}
"""The type of each field of a request that the controller checks."""  # fmt: skip


def complaint(request: object) -> str:
    """What is wrong with the form of a request; "" if nothing is."""
    wanted = ATTRIBUTES.get(type(request))
    if wanted is None:
        names = ", ".join(kind.__name__ for kind in ATTRIBUTES)
        return f"a {type(request).__name__} is no request; wanted one of {names}"
    for name, kind in wanted.items():
        value: Any = getattr(request, name, None)
        is_fine = type(value) is kind
        if is_fine and kind is tuple:
            is_fine = all(type(each) is int and each >= 0 for each in value)
        if is_fine and kind is int:
            is_fine = value >= 0
        if not is_fine:
            return f"{type(request).__name__}.{name} is {value!r:.60}; wanted {_FORM[kind]}"
    return ""


_FORM = {
    int: "a number >= 0",
    bytes: "bytes",
    str: "text",
    tuple: "a tuple of numbers >= 0",
}
