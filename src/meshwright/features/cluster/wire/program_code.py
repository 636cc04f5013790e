"""The code of a device program as plain data; reading it never executes any code.

A tenant's program consists of a serialised `jax.export` and JSON, nothing else.
"""

import json
from dataclasses import dataclass
from typing import Any

from meshwright.errors import ClusterError
from meshwright.program.ir import Sharding

_LENGTH_BYTES = 8
"""Bytes of the number before the JSON that gives the length of the JSON."""


@dataclass(frozen=True, slots=True)
class ProgramCode:
    """A device program with all that a worker needs to compile it.

    exported: the serialised `jax.export` of the program over a mesh of these `sizes`.
    inputs, outputs: the shardings of its arguments and results, none partial.
    name: what errors of the program begin with; "" for nothing.
    forbids: numbers that make a call fail if a result has them: "nan", "inf".
    """

    exported: bytes
    sizes: tuple[tuple[str, int], ...]
    inputs: tuple[Sharding, ...]
    outputs: tuple[Sharding, ...]
    name: str = ""
    forbids: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The code for a message; `from_bytes` is the inverse."""
        dims = [[s.dims for s in side] for side in (self.inputs, self.outputs)]
        text = json.dumps([self.sizes, *dims, self.name, self.forbids]).encode()
        return len(text).to_bytes(_LENGTH_BYTES) + text + self.exported

    @classmethod
    def from_bytes(cls, code: bytes) -> "ProgramCode":
        """The code that a client has sent; `ClusterError` if it is malformed."""
        end = _LENGTH_BYTES + int.from_bytes(code[:_LENGTH_BYTES])
        try:
            sizes, inputs, outputs, name, forbids = json.loads(code[_LENGTH_BYTES:end])
            return cls(
                code[end:],
                tuple((str(axis), int(size)) for axis, size in sizes),
                tuple(map(_sharding, inputs)),
                tuple(map(_sharding, outputs)),
                str(name),
                tuple(each for each in ("nan", "inf") if each in forbids),
            )
        except (TypeError, ValueError) as error:
            raise ClusterError(
                f"the code of a program is malformed ({error}); wanted what "
                "`ProgramCode.to_bytes` returns"
            ) from error


def program_name(code: bytes) -> str:
    """The name of a program in the code of its definition; "" for other bytes."""
    try:
        return ProgramCode.from_bytes(code).name
    except ClusterError:
        return ""


def _sharding(dims: Any) -> Sharding:
    return Sharding(tuple(tuple(str(axis) for axis in axes) for axes in dims))
