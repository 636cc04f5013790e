"""Order of ops in which collectives wait for each other, to be combined into one.

Going forward, a reduction waits for later ones, and ops that read it wait with it. Going
backward, a gather waits for earlier ones, and so do the ops that compute its operand.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from meshwright.program.ir import Atom, Op, num_bytes


class Direction(Enum):
    """Whether collectives wait for those after or before them in the program."""

    FORWARD = "the last one decides when all are run"
    BACKWARD = "the first one decides when all are run"


@dataclass(frozen=True, slots=True)
class Combination:
    """Which collectives may be combined, and how.

    key_fn: collectives with equal keys may be combined; `None` for all other ops.
    may_wait_fn: whether an op may wait with the collective that it depends on.
    join_fn: the ops that take the place of several collectives.
    most_bytes: bytes of the values that are combined at most, by key.
    """

    key_fn: Callable[[Op], object]
    may_wait_fn: Callable[[Op], bool]
    join_fn: Callable[[Sequence[Op]], Sequence[Op]]
    most_bytes_fn: Callable[[Op], float]


def combine(
    ops: Iterable[Op], how: Combination, direction: Direction = Direction.FORWARD
) -> tuple[Op, ...]:
    """The ops, with collectives combined that do not depend on each other.

    Only ops that may wait change their place. An op that depends on a waiting op and may
    not wait itself ends the wait of all.
    """
    waiting = _Waiting(how, direction)
    ordered = list(ops)
    if direction is Direction.BACKWARD:
        ordered.reverse()
    for op in ordered:
        waiting.take(op)
    waiting.flush()
    done = waiting.done
    if direction is Direction.BACKWARD:
        done.reverse()
    return tuple(done)


@dataclass
class _Waiting:
    """Ops in their new order, and ops that wait to be written.

    values: those through which ops depend on waiting ops. groups: waiting collectives by
    key. others: ops that depend on them, in order.
    """

    how: Combination
    direction: Direction
    done: list[Op] = field(default_factory=list)
    values: set[Atom] = field(default_factory=set)
    groups: dict[object, list[Op]] = field(default_factory=dict)
    others: list[Op] = field(default_factory=list)

    def take(self, op: Op) -> None:
        """Write an op, or let it wait."""
        key, dependent = self.how.key_fn(op), self._depends(op)
        if dependent and (key is not None or not self.how.may_wait_fn(op)):
            self.flush()
            dependent = False
        if key is not None:
            group = self.groups.get(key, [])
            if group and _bytes([*group, op]) > self.how.most_bytes_fn(op):
                self.flush()
            self.groups.setdefault(key, []).append(op)
        elif dependent:
            self.others.append(op)
        else:
            self.done.append(op)
            return
        self.values.update(self._after(op))

    def flush(self) -> None:
        """Write all waiting ops."""
        is_backward = self.direction is Direction.BACKWARD
        for group in self.groups.values():
            if len(group) > 1:
                made = list(self.how.join_fn(group[::-1] if is_backward else group))
                group = made[::-1] if is_backward else made
            self.done += group
        self.done += self.others
        self.values.clear()
        self.groups.clear()
        self.others.clear()

    def _depends(self, op: Op) -> bool:
        before = op.results if self.direction is Direction.BACKWARD else op.operands
        return not self.values.isdisjoint(before)

    def _after(self, op: Op) -> Sequence[Atom]:
        return op.operands if self.direction is Direction.BACKWARD else op.results


def _bytes(group: Sequence[Op]) -> int:
    """Bytes of the whole values of collectives on one device: operands or results."""
    sides = ((v for op in group for v in side(op)) for side in (_operands, _results))
    return max(sum(map(num_bytes, side)) for side in sides)


def _operands(op: Op) -> Sequence[Atom]:
    return op.operands


def _results(op: Op) -> Sequence[Atom]:
    return op.results
