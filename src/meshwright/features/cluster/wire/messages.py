"""The messages of a client to the controller, and of the controller to its workers.

The client chooses a number for each logical array, whatever its number of shards, so that
no message grows with the shards. A client names only its own arrays: the controller adds
the session's name to each number before workers see it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, get_args, get_origin

from meshwright.plain import hints_of


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
    """Register a program under a number; it is compiled when it first runs.

    code: bytes from `ProgramCode.to_bytes`, which the controller passes on unread.
    devices: the position of each device of the mesh among the gang's devices.
    donated: positions of donated arguments.
    input_bytes, output_bytes: bytes of each argument and result on one device.
    whole: positions of the results that each device holds completely.
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
    """Store an array of the client; devices get their parts when a program reads it.

    value: a `HostArray`, or a reference to one in the object store.
    num_bytes: bytes of the whole array.
    """

    array: int
    value: Any
    num_bytes: int

    @property
    def outputs(self) -> tuple[int, ...]:
        """The number of the stored array, as a tuple of one number."""
        return (self.array,)


@dataclass(frozen=True, slots=True)
class Call:
    """Run a program on arrays.

    The results have numbers at once, so that later requests can name them.
    """

    program: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Copy arrays from another slice to the devices on which a program runs.

    positions: for each array, the program's argument that the copy will be; copies are
        sharded like these arguments.
    """

    program: int
    positions: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Free:
    """Free arrays whose handles were dropped, and programs that are no longer called."""

    arrays: tuple[int, ...]
    programs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """Run a function that workers know by name, on arrays.

    kind: the function's name, such as "save".
    folder: folder that it reads and writes.
    argument: its further arguments, as JSON.
    devices: devices of the slice.
    output_bytes: bytes of each result on one device.
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
    """Free all arrays and programs of a session that has ended."""


type Request = Define | Put | Call | Transfer | WorkerTask | Free
"""Any message that a client may submit."""

_REQUESTS = get_args(Request.__value__)


@dataclass(frozen=True, slots=True)
class WorkerInstruction:
    """A request in the form that workers get, with its place in the island's order.

    number: grows by one from instruction to instruction of a gang.
    session: the client's session, within which programs and arrays are numbered.
    """

    number: int
    session: str
    request: Request | End


class Completion(NamedTuple):
    """The end of one instruction on one worker.

    seconds: seconds since the end of the instruction before it, or since its own start if
        that is later.
    error: the reason of its failure; "" if it succeeded.
    """

    number: int
    seconds: float
    error: str


def complaint(request: object) -> str:
    """What is wrong with the form of a request; "" if nothing is."""
    if type(request) not in _REQUESTS:
        names = ", ".join(kind.__name__ for kind in _REQUESTS)
        return f"a {type(request).__name__} is no request; wanted one of {names}"
    for name, hint in hints_of(type(request)).items():
        kind = get_origin(hint) or hint
        if kind is Any:  # the controller never looks at an array
            continue
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
