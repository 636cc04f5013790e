"""LLVM's interactive channel: observations of a compiler and advice, over two fifos.

The compiler writes a JSON line with the features and the advice that it wants. For each
decision a line `{"observation": n}`, the raw tensors in the order of the header, and a
newline follow; the answer is the raw tensor of the advice
(LLVM: InteractiveModelRunner.h).
"""

import json
import os
import select
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError

_DTYPES = {"int64_t": "<i8", "int32_t": "<i4", "float": "<f4", "double": "<f8"}


@dataclass(frozen=True, slots=True)
class Observation:
    """Features of one decision, as a compiler sends them.

    features: arrays by name. context: the module whose calls are decided, or the function
        whose registers are allocated. number: decisions before it in this context. default:
        the decision of the compiler's own heuristic; `None` if it does not tell.
    """

    features: Mapping[str, NDArray[Any]]
    context: str = ""
    number: int = 0

    @property
    def default(self) -> int | None:
        """The heuristic's decision, of inlining only."""
        value = self.features.get("inlining_default")
        return None if value is None else int(value[0])


Advise = Callable[[Observation], float | None]
"""A policy: from an observation to its advice."""


@runtime_checkable
class KnownPolicy(Protocol):
    """A policy that says what it decides about."""

    kind: ClassVar[str]

    def __call__(self, call: Observation, /) -> float | None:
        """The advice."""
        ...


def check_kinds(policies: Mapping[str, Advise]) -> None:
    """Refuse a learned policy in the place of one of another kind."""
    for kind, policy in policies.items():
        if isinstance(policy, KnownPolicy) and policy.kind != kind:
            raise PolicyError(
                f"a policy of {policy.kind} cannot decide about {kind}; pass it as"
                f" {policy.kind}=policy"
            )


@dataclass(slots=True)
class Channel:
    """One end of the two fifos `base`.in and `base`.out; `converse` with a compiler.

    decisions: the answers so far. fault: what ended the conversation early.
    """

    base: Path
    advise: Advise
    decisions: list[float] = field(default_factory=list[float])
    fault: BaseException | None = None
    _in: int = -1
    _out: int = -1
    _rest: bytes = b""

    def open(self) -> None:
        """Make the fifos and open both without waiting for the compiler."""
        for end in ("in", "out"):
            os.mkfifo(f"{self.base}.{end}")
        self._in = os.open(f"{self.base}.in", os.O_RDWR)
        # With a writer of its own, the fifo has no end before and after the compiler's,
        # so that nothing has to be done while the compiler asks nothing.
        self._out = os.open(f"{self.base}.out", os.O_RDWR | os.O_NONBLOCK)

    def close(self) -> None:
        """Close both fifos, upon which a compiler that waits for advice fails."""
        os.close(self._in)
        os.close(self._out)

    def converse(self, end: int) -> None:
        """Answer until the compiler has ended, or the policy fails, which is a `fault`.

        end: an open file that has something to read as soon as the compiler has ended.
        """
        try:
            header = self._line(end)
            if header is None:
                return
            layout = json.loads(header)
            tensors = [_tensor(spec) for spec in layout["features"]]
            advice = np.dtype(_tensor(layout["advice"])[1])
            total = sum(dtype.itemsize * count for _, dtype, count in tensors)
            context, number = "", 0
            while (line := self._line(end)) is not None:
                if not line.startswith(b'{"observation"'):
                    context, number = json.loads(line).get("context", context), 0
                    continue
                raw = self._take(end, total + 1)
                if raw is None:
                    return
                observed = Observation(_arrays(raw, tensors), context, number)
                decision = self.advise(observed)
                number += 1
                self.decisions.append(float(decision or 0))
                os.write(self._in, np.asarray(decision or 0, advice).tobytes())
        except Exception as fault:  # noqa: BLE001  any fault of the user's policy
            self.fault = fault

    def _line(self, end: int) -> bytes | None:
        while b"\n" not in self._rest:
            if not self._read(end):
                return None
        line, self._rest = self._rest.split(b"\n", 1)
        return line

    def _take(self, end: int, size: int) -> bytes | None:
        while len(self._rest) < size:
            if not self._read(end):
                return None
        raw, self._rest = self._rest[:size], self._rest[size:]
        return raw

    def _read(self, end: int) -> bool:
        """Wait for more, and read it; `False` if the compiler has ended and sent none."""
        waiting = select.poll()
        waiting.register(self._out, select.POLLIN)
        waiting.register(end, select.POLLIN)
        waiting.poll()
        try:
            self._rest += os.read(self._out, 1 << 16)
        except BlockingIOError:
            return False
        return True


def _tensor(spec: Mapping[str, Any]) -> tuple[str, np.dtype[Any], int]:
    """Name, dtype and number of elements of a tensor in the header."""
    return (
        spec["name"],
        np.dtype(_DTYPES[spec["type"]]),
        int(np.prod(spec["shape"], dtype=np.int64)),
    )


def _arrays(
    raw: bytes, tensors: list[tuple[str, np.dtype[Any], int]]
) -> dict[str, NDArray[Any]]:
    """The tensors of an observation by name."""
    arrays: dict[str, NDArray[Any]] = {}
    offset = 0
    if len({dtype for _, dtype, _ in tensors}) == 1:  # slices cost less
        whole = np.frombuffer(raw, tensors[0][1], len(raw) // tensors[0][1].itemsize)
        for name, _, count in tensors:
            arrays[name] = whole[offset : offset + count]
            offset += count
        return arrays
    for name, dtype, count in tensors:
        arrays[name] = np.frombuffer(raw, dtype, count, offset)
        offset += dtype.itemsize * count
    return arrays
