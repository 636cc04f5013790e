"""Combination of collectives, for which some of them are delayed in the order of ops.

Going forward, a reduction waits for later ones, and ops that read it wait with it.
Going backward, a gather waits for earlier ones, and the ops that compute its operand
wait with it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from meshwright.program.ir import Atom, Op, num_bytes


class Direction(Enum):
    """Whether collectives wait for collectives after or before them in the program."""

    FORWARD = "the last one decides when all are run"
    BACKWARD = "the first one decides when all are run"


@dataclass(frozen=True, slots=True)
class Combination:
    """Functions that decide which collectives are combined, and into what.

    key_fn: a key of a collective, equal for those that may be combined; `None` for
        other ops.
    may_wait_fn: whether an op may be delayed with the collective that it depends on.
    join_fn: the ops that replace several collectives.
    most_bytes_fn: largest number of bytes of the values that may be combined with an
        op.
    """

    key_fn: Callable[[Op], object]
    may_wait_fn: Callable[[Op], bool]
    join_fn: Callable[[Sequence[Op]], Sequence[Op]]
    most_bytes_fn: Callable[[Op], float]


def combine(
    ops: Iterable[Op], how: Combination, direction: Direction = Direction.FORWARD
) -> tuple[Op, ...]:
    """The ops, with collectives combined that do not depend on each other.

    Only ops that may be delayed change their place. An op that depends on a waiting op
    and may not be delayed itself ends the wait of all.
    """
    waiting = _Waiting(how, direction)
    ordered = list(ops)
    if direction is Direction.BACKWARD:
        ordered.reverse()
    for op in ordered:
        key = how.key_fn(op)
        if key is None and not waiting.values:
            waiting.done.append(op)
        else:
            waiting.take(op, key)
    waiting.flush()
    done = waiting.done
    if direction is Direction.BACKWARD:
        done.reverse()
    return tuple(done)


@dataclass
class _Waiting:
    """The ops in their new order so far, and the ops that still wait to be written.

    done: ops that have been written.
    values: values through which an op would depend on a waiting op.
    groups: waiting collectives, by their key.
    others: other ops that depend on waiting collectives, in order.
    """

    how: Combination
    direction: Direction
    done: list[Op] = field(default_factory=list)
    values: set[Atom] = field(default_factory=set)
    groups: dict[object, list[Op]] = field(default_factory=dict)
    others: list[Op] = field(default_factory=list)

    def take(self, op: Op, key: object) -> None:
        """Write the next op, whose key is given, or let it wait."""
        dependent = self._depends(op)
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
        """Write all waiting ops, collectives with equal keys combined."""
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
    """Bytes on one device of a group of collectives: of all operands or of all results.

    The larger sum of the two counts.
    """
    of_operands = sum(num_bytes(v) for op in group for v in op.operands)
    of_results = sum(num_bytes(v) for op in group for v in op.results)
    return max(of_operands, of_results)
