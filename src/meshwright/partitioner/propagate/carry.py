"""Which values stay partial sums: a sum is delayed through linear ops if that is no dearer.

A partial value is passed on to its consumers if all of them are linear in it and their
results together are no larger than it is. Otherwise it is reduced where it is made. So
`a@W1 + b@W2` needs one all-reduce, and three gradients of one input need one.
"""

from meshwright.partitioner.propagate.graph import Node
from meshwright.partitioner.propagate.state import State
from meshwright.program.ir import Atom, Literal, Op, Value, num_bytes


class Carrier:
    """Tells which values of a state are partial sums, for its latest decisions."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.graph = state.graph
        self._carries: dict[int, bool] = {}
        self._loops: dict[tuple[int, str], bool] = {}
        self._assumed: set[tuple[int, str]] = set()
        self._partial: dict[tuple[int, str, bool], bool] = {}
        self._version = state.version
        outputs = self.graph.program.outputs
        self._outputs = {self.graph.number[v] for v in outputs if isinstance(v, Value)}
        # Results of loops inside loops: their sums may be delayed into the outer loop. At
        # the top level only one sum could be saved, and the result's readers decide how
        # it is cut.
        self._inner = {
            self.graph.number[result]
            for outer in self.graph.wire_nodes
            for body in outer.bodies
            for op in body.ops
            if op.bodies
            for result in op.results
        }

    def is_partial(self, value: int, axis: str, is_strict: bool = False) -> bool:
        """Whether a value, as made, holds one addend per device of a sum along an axis.

        is_strict: answer yes only if no whole addend has to be made partial for it.
        """
        self._follow()
        key = (value, axis, is_strict)
        if key not in self._partial:
            for number in self._upstream(value, axis, is_strict):
                found = self._find_partial(number, axis, is_strict)
                self._partial[number, axis, is_strict] = found
        return self._partial[key]

    def _upstream(self, value: int, axis: str, is_strict: bool) -> list[int]:
        """The value, and all that may decide whether it is partial, in program order.

        Chains of additions are long; answering in this order avoids deep recursion.
        """
        found, todo = {value}, [value]
        while todo:
            node = self.graph.nodes[self.graph.producer[todo.pop()]]
            if not _groups(node) or axis in self.state.factor_of[node.index]:
                continue
            assert node.op is not None
            for number in self._numbers(node.op):
                if number is None or number in found or not self.is_cheap(number):
                    continue
                if (number, axis, is_strict) not in self._partial:
                    found.add(number)
                    todo.append(number)
        return sorted(found)

    def _find_partial(self, value: int, axis: str, is_strict: bool) -> bool:
        state = self.state
        if (value, axis) in self._assumed:
            return True
        if (value, axis) in state.scattered or (value, axis) in state.settled:
            return False
        node = self.graph.nodes[self.graph.producer[value]]
        if value in self._inner:
            return self.loop_partial(node, axis)
        if axis in state.factor_of[node.index]:
            is_sum = node.rule is not None and node.rule.monoid == "sum"
            return is_sum and state.dim_on(value, axis) == -1
        return any(
            self._is_carried(node, group, axis, is_strict) for group in _groups(node)
        )

    def _follow(self) -> None:
        """Forget the answers of an older state."""
        if self._version != self.state.version:
            self._version = self.state.version
            self._partial.clear()
            self._loops.clear()
            self._assumed.clear()

    def can_carry(self, value: int, axis: str) -> bool:
        """Whether a partial value is passed on, rather than reduced where it is made."""
        state = self.state
        if (value, axis) in state.scattered or (value, axis) in state.settled:
            return False
        if not self.is_cheap(value):
            return False
        return all(
            self._accepts(self.graph.nodes[c], value, axis)
            for c in self.graph.consumers[value]
        )

    def loop_partial(self, node: Node, axis: str) -> bool:
        """Whether a scan's carry may stay a partial sum along an axis in all iterations.

        The body may only add to the carry, so that one all-reduce after the loop
        replaces one in each iteration.
        """
        self._follow()
        key = (node.index, axis)
        if key not in self._loops:
            self._loops[key] = False
            self._loops[key] = self._try_loop(node, axis)
            self._partial.clear()
        return self._loops[key]

    # -- one op ---------------------------------------------------------------------

    def addends(self, node: Node, axis: str) -> frozenset[int]:
        """The operand positions that an op adds up, if its result is a partial sum.

        Whole operands among them must be made partial: kept on one device, zero elsewhere.
        """
        carried = (g for g in _groups(node) if self._is_carried(node, g, axis))
        return next(carried, frozenset())

    def _is_carried(
        self, node: Node, group: frozenset[int], axis: str, is_strict: bool = False
    ) -> bool:
        """Whether the operands of a linear group are partial, and no other operand is.

        A zero is a partial sum of zero, on every device. A whole addend is made partial
        if the result is added to another partial value later, so that the order of
        additions does not matter.
        """
        assert node.op is not None
        has_partial = has_whole = False
        for position, number in enumerate(self._numbers(node.op)):
            arrives = self._arrives_partial(number, axis, is_strict)
            if position not in group:
                if arrives:
                    return False
            elif arrives:
                has_partial = True
            elif not self.is_zero(node.op.operands[position]):
                has_whole = True
        if has_whole and (is_strict or not has_partial or len(group) < 2):
            return False
        return has_partial and (not has_whole or self._merges(node, axis))

    def _arrives_partial(self, number: int | None, axis: str, is_strict: bool) -> bool:
        """Whether a value is partial and stays so; if not cheap, it is reduced at once."""
        return (
            number is not None
            and self.is_cheap(number)
            and self.is_partial(number, axis, is_strict)
        )

    def _merges(self, node: Node, axis: str) -> bool:
        """Whether the only result is read by additions only, one with a partial addend."""
        for _ in range(MAX_ADDENDS):
            value = node.outs[0][0]
            readers = self.graph.consumers[value]
            if len(node.outs) != 1 or len(readers) != 1 or value in self._outputs:
                return False
            node = self.graph.nodes[readers[0]]
            if node.op is None or node.wire or axis in self.state.factor_of[node.index]:
                return False
            numbers = self._numbers(node.op)
            if numbers.count(value) != 1:
                return False
            place = numbers.index(value)
            groups = [g for g in _groups(node) if place in g and len(g) > 1]
            if any(self._has_other(numbers, g, value, axis) for g in groups):
                return True
            if not groups:
                return False
        return False

    def _has_other(
        self, numbers: list[int | None], group: frozenset[int], value: int, axis: str
    ) -> bool:
        others = [n for p, n in enumerate(numbers) if p in group and n != value]
        return any(self._arrives_partial(n, axis, is_strict=True) for n in others)

    def is_zero(self, atom: Atom) -> bool:
        """Whether a value is known to be zero everywhere."""
        if isinstance(atom, Literal):
            return bool(atom.value == 0)
        node = self.graph.nodes[self.graph.producer[self.graph.number[atom]]]
        return node.rule is not None and node.rule.is_zero

    def _accepts(self, node: Node, value: int, axis: str) -> bool:
        if node.wire is not None:
            return self.loop_partial(node, axis)
        if node.op is None or axis in self.state.factor_of[node.index]:
            return False
        wanted = {p for p, n in enumerate(self._numbers(node.op)) if n == value}
        return any(
            wanted <= group and self._is_carried(node, group, axis)
            for group in _groups(node)
        )

    def is_cheap(self, value: int) -> bool:
        """Whether all uses of a value are linear, and their results together no larger."""
        known = self._carries.get(value)
        if known is None:
            known = self._carries[value] = self._weigh(value)
        return known

    def _weigh(self, value: int) -> bool:
        consumers = self.graph.consumers[value]
        if not consumers or value in self._outputs:
            return False
        made = 0.0
        for index in consumers:
            node = self.graph.nodes[index]
            if node.wire is not None:
                if len(consumers) > 1 or node.op is None or node.op.kind != "scan":
                    return False
                continue
            share = self._share(node, value, len(consumers))
            if share is None or node.op is None:
                return False
            made += share * sum(num_bytes(r) for r in node.op.results)
        return made <= num_bytes(self.graph.values[value])

    def _share(self, node: Node, value: int, num_consumers: int) -> float | None:
        """The share of a linear op's result bytes that counts for one operand value."""
        if node.op is None:
            return None
        wanted = {p for p, n in enumerate(self._numbers(node.op)) if n == value}
        for group in _groups(node):
            if wanted <= group and (len(group) == 1 or num_consumers == 1):
                return len(wanted) / len(group)
        return None

    def _numbers(self, op: Op) -> list[int | None]:
        """The number of each operand; `None` for a literal."""
        known = self.graph.number
        return [known[a] if isinstance(a, Value) else None for a in op.operands]

    # -- loops ----------------------------------------------------------------------

    def _try_loop(self, node: Node, axis: str) -> bool:
        wire, op = node.wire, node.op
        if wire is None or op is None or op.kind != "scan" or wire.is_stacked:
            return False
        if (
            not wire.outputs
            or wire.operand is None
            or axis in self.state.factor_of[node.index]
        ):
            return False
        start = self.graph.number[op.bodies[0].inputs[wire.inputs[0][1]]]
        last = op.bodies[0].outputs[wire.outputs[0][1]]
        init = self._numbers(op)[wire.operand]
        if not isinstance(last, Value) or last is self.graph.values[start]:
            return False
        if init is not None and self.is_partial(init, axis):
            return False
        if len(self.graph.consumers[start]) != 1:
            return False
        self._assumed.add((start, axis))
        end = self.graph.number[last]
        is_handed_on = self.can_carry(start, axis)  # otherwise readers need the sum
        if is_handed_on and self.is_cheap(end) and self.is_partial(end, axis):
            if wire.result is not None:
                self._assumed.add((self.graph.number[op.results[wire.result]], axis))
            return True
        self._assumed.discard((start, axis))
        return False


MAX_ADDENDS = 64
"""Additions that are followed to find another partial addend of a long sum."""


def _groups(node: Node) -> tuple[frozenset[int], ...]:
    return node.rule.linear if node.rule is not None and node.op is not None else ()
