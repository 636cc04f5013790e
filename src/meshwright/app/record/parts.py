"""The parts of a plan's record, each of plain data: collectives, arrays and tactics."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from jax.sharding import PartitionSpec

from meshwright.program.ir import Sharding, itemsize_bytes, show_type


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective op of the device program, and the reason for it.

    bytes: size on one device of the operand or the result, whichever is larger.
    executions: number of executions per step; each iteration of a loop counts.
    source: `file:line` of the user's code.
    value: type of the operand on one device.
    reason: one sentence. chain: the decisions that led to the collective, the nearest
        first.
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int
    executions: int
    reason: str
    source: str
    value: str
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """An input or output array of the program (a pytree leaf) with its sharding.

    spec: for each dim the mesh axes that split it, major to minor.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    spec: tuple[tuple[str, ...], ...]

    @property
    def partition_spec(self) -> PartitionSpec:
        """The sharding as JAX's `PartitionSpec`."""
        return PartitionSpec(*(a[0] if len(a) == 1 else (a or None) for a in self.spec))

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole array, before it is sharded."""
        return math.prod(self.shape) * itemsize_bytes(self.dtype)

    def __str__(self) -> str:
        return f"{self.path}: {show_type(self.shape, self.dtype)} {Sharding(self.spec)}"


@dataclass(frozen=True, slots=True)
class TacticEffect:
    """The effect of one tactic and of the propagation that follows it.

    cut: inputs that it sharded, with their shardings.
    refused: requests of the tactic that were not possible, with the reason.
    conflicts: messages about ops of which two dims asked for the same axis.
    indivisible: messages about dims at which propagation stopped, because the number of
        parts does not divide their size or does not line up with it.
    counts: executions of each kind of collective per step, after this tactic.
    """

    tactic: str
    cut: tuple[str, ...]
    refused: tuple[str, ...]
    conflicts: tuple[str, ...]
    indivisible: tuple[str, ...]
    counts: Mapping[str, int]

    @property
    def is_idle(self) -> bool:
        """Whether the tactic left no sharding, message or collective.

        It sharded no input, no request was refused, and the program has no collective after
        it.
        """
        messages = (self.cut, self.refused, self.conflicts, self.indivisible)
        return not any(messages) and not any(self.counts.values())


@dataclass(frozen=True, slots=True)
class FixedSharding:
    """A sharding that the user's own code sets, which no tactic can change.

    kind: "with_sharding_constraint" or "shard_map". source: `file:line` of the code.
    value: type of the first result.
    spec: for each dim of the first result the mesh axes that split it.
    whole: mesh axes that the code keeps from splitting the result.
    """

    kind: str
    source: str
    value: str
    spec: tuple[tuple[str, ...], ...]
    whole: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnknownLoop:
    """A loop whose number of iterations depends on values.

    source: `file:line` of the user's code.
    iterations: the number with which all counts and figures are computed.
    is_stated: whether the user stated the number; otherwise it is assumed.
    """

    source: str
    iterations: int
    is_stated: bool


@dataclass(frozen=True, slots=True)
class UncutWork:
    """Ops of one kind and source line that a mesh axis does not split.

    All devices along the axis repeat these ops.
    share: FLOPs of these ops as a share of all FLOPs of the program.
    why: the reason as text, with relevant sizes.
    """

    axis: str
    kind: str
    source: str
    share: float
    why: str
