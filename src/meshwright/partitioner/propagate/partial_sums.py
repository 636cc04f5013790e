"""Partial sums: which values are all-reduced later than computed, to save bytes.

A value is partial along a mesh axis if each device along the axis holds an addend of it, as
after a matrix product whose contracted dim is sharded. Its reduction can wait if all
consumers are linear in it and their results together are no larger: `a@W1 + b@W2` needs one
all-reduce. A value that a loop adds to an accumulator may also grow on the way, if one
reduction after the loop moves fewer bytes. `SumRoutes` says which delays a program allows;
`PartialSums` says which values are partial for given shardings.
"""

from meshwright.partitioner.propagate.graph import Node
from meshwright.partitioner.propagate.recurrence import recurrent_totals
from meshwright.partitioner.propagate.state import State
from meshwright.partitioner.propagate.sum_nodes import (
    is_carry,
    is_exit,
    is_total,
    linear_sets,
)
from meshwright.program.ir import Value

MAX_ADDENDS = 64
"""Largest number of chained additions that are searched for another partial addend."""


class PartialSums:
    """Answers which values are partial sums along an axis, given a state's shardings.

    A value that is not partial is complete ("whole").
    may_cut: whether later tactics may still shard the accumulators of loops. If so, an
        accumulator stays partial until after its loop only in an inner loop, where it
        saves a reduction in each iteration, and in a recurrent loop, which is one
        backward pass. Others are reduced within the loop, as ZeRO does.
    """

    def __init__(self, state: State, may_cut: bool = False) -> None:
        self.state = state
        self.graph = state.graph
        self.routes = state.routes
        self._loops: dict[tuple[int, str], bool] = {}
        self._trying: set[tuple[int, str]] = set()
        self._starts: set[tuple[int, str]] = set()
        self._partial: dict[tuple[int, str, bool], bool] = {}
        self._version = state.version
        self._totals = self._reduced_late() if may_cut else None

    def _reduced_late(self) -> frozenset[int]:
        return recurrent_totals(self.graph, self.routes) | {
            self.graph.number[result]
            for outer in self.graph.wire_nodes
            for body in outer.bodies
            for op in body.ops
            if op.bodies
            for result in op.results
        }

    def is_partial(self, value: int, axis: str, is_strict: bool = False) -> bool:
        """Whether devices along an axis hold addends of a value, not yet reduced.

        is_strict: answer no for a sum of partial and complete addends.
        """
        self._follow()
        key = (value, axis, is_strict)
        if key not in self._partial:
            for number in self._upstream(value, axis, is_strict):
                found = self._find_partial(number, axis, is_strict)
                self._partial[number, axis, is_strict] = found
        return self._partial[key]

    def _upstream(self, value: int, axis: str, is_strict: bool) -> list[int]:
        """The values on which `is_partial` of a value depends, producers first."""
        found: dict[int, None] = {}
        seen, todo = {value}, [value]
        while todo:
            last = todo[-1]
            node = self.graph.nodes[self.graph.producer[last]]
            is_cut = axis in self.state.factor_of[node.index]
            missing = [
                n
                for n in ([] if is_cut else self.routes.sources(node))
                if n not in seen and (n, axis, is_strict) not in self._partial
            ]
            if not missing:
                found[todo.pop()] = None
            seen.update(missing)
            todo += missing
        return [*found]

    def _find_partial(self, value: int, axis: str, is_strict: bool) -> bool:
        state = self.state
        if (value, axis) in self._starts:
            return True
        if (value, axis) in state.scattered or (value, axis) in state.settled:
            return False
        node = self.graph.nodes[self.graph.producer[value]]
        if axis not in state.factor_of[node.index] and is_exit(node):
            return self.leaves_partial(node, axis, is_strict)
        if is_carry(node) and not self.routes.is_start(value):
            is_late = self._totals is None or value in self._totals
            return is_late and self.loop_partial(node, axis)
        if axis in state.factor_of[node.index]:
            is_sum = node.rule is not None and node.rule.monoid == "sum"
            return is_sum and state.dim_on(value, axis) == -1
        return any(
            self._reads_partial(node, group, axis, is_strict)
            for group in linear_sets(node)
        )

    def _follow(self) -> None:
        """Clear the cached answers if the state has changed since then."""
        if self._version != self.state.version:
            self._version = self.state.version
            self._partial.clear()
            self._loops.clear()
            self._starts.clear()

    def is_passed_on(self, value: int, axis: str) -> bool:
        """Whether a partial value reaches its readers without being reduced before."""
        state, key = self.state, (value, axis)
        if key in state.scattered or key in state.settled or not self._may_pass(*key):
            return False
        return all(
            self._accepts(self.graph.nodes[c], value, axis)
            for c in self.graph.consumers[value]
        )

    def loop_partial(self, node: Node, axis: str) -> bool:
        """Whether a scan's carry stays a partial sum along an axis in all iterations.

        The body must only add to it. One all-reduce after the loop then replaces many.
        The same is asked of a `total`, which stays partial if no axis shards it.
        """
        if is_total(node):
            is_last = self._totals is None
            return is_last and axis not in self.state.factor_of[node.index]
        self._follow()
        key = (node.index, axis)
        if key in self._trying:
            return True
        if key not in self._loops:
            self._trying.add(key)
            found = self._try_loop(node, axis)
            self._trying.remove(key)
            self._loops[key] = found
            self._partial.clear()
        return self._loops[key]

    def leaves_partial(self, node: Node, axis: str, is_strict: bool = False) -> bool:
        """Whether a region's result is a partial sum when it leaves the region.

        node: the wire of the result, which a region returns or a scan stacks.
        """
        if not is_exit(node) or axis in self.state.factor_of[node.index]:
            return False
        return any(
            self._is_delayed(number, axis) and self.is_partial(number, axis, is_strict)
            for number in self.routes.sources(node)
        )

    def _is_delayed(self, value: int, axis: str) -> bool:
        """Whether a value is reduced only after the loop that accumulates it.

        A sum that a loop in time adds up may leave all loops of the program unreduced.
        """
        if self.routes.leaves_loops(value) and self._waits_in_time(value, axis):
            return True
        if not self.routes.is_delayed(value):
            return False
        loop = self.routes.accumulator_of(value)
        return loop is not None and self.loop_partial(loop, axis)

    def _waits_in_time(self, value: int, axis: str) -> bool:
        """Whether a loop in time adds a value up before it is reduced along an axis."""
        mesh = self.state.mesh
        return axis in mesh.sequential or any(
            self.is_partial(value, each)
            and self.routes.saves_in_time(value, mesh.size(each))
            for each in mesh.sequential
        )

    def _may_pass(self, value: int, axis: str) -> bool:
        return self.routes.is_cheap(value) or self._is_delayed(value, axis)

    # -- one op ---------------------------------------------------------------------

    def addends(self, node: Node, axis: str) -> frozenset[int]:
        """The positions of operands that an op adds up, if its result is a partial sum.

        One device keeps a complete operand among these, the others use zero in its place.
        """
        sets = (g for g in linear_sets(node) if self._reads_partial(node, g, axis))
        return next(sets, frozenset())

    def _reads_partial(
        self, node: Node, group: frozenset[int], axis: str, is_strict: bool = False
    ) -> bool:
        """Whether an op reads operands as partial sums, and so has a partial result.

        group: positions of operands in which the op is jointly linear; all other operands
            must be complete. Zeros count as partial. A complete addend is made partial if
            most operands are partial, or if the result is later added to a partial value.
        """
        assert node.op is not None
        partial: list[int] = []
        has_whole = False
        for position, number in enumerate(self.routes.numbers(node.op)):
            arrives = self._arrives_partial(number, axis, is_strict)
            if position not in group:
                if arrives:
                    return False
            elif arrives and number is not None:
                partial.append(number)
            elif not self.routes.is_zero(node.op.operands[position]):
                has_whole = True
        if has_whole and (is_strict or not partial or len(group) < 2):
            return False
        # One reduction of a concatenation replaces one of each of its partial operands.
        is_mostly_partial = len(partial) > 1 and 2 * len(partial) >= len(group)
        return bool(partial) and (
            not has_whole
            or is_mostly_partial
            or self._merges(node, axis)
            or self._is_accumulated(node, partial, axis)
        )

    def _is_accumulated(self, node: Node, partial: list[int], axis: str) -> bool:
        """Whether a loop accumulates the node's partial result, to reduce it later."""
        value = node.outs[0][0]
        loop = self.routes.accumulator_of(value)
        is_fed = any(map(self.routes.has_sum, partial))
        return loop is not None and is_fed and self.loop_partial(loop, axis)

    def _arrives_partial(self, number: int | None, axis: str, is_strict: bool) -> bool:
        """Whether a value is a partial sum and may be read without a reduction."""
        return (
            number is not None
            and self._may_pass(number, axis)
            and self.is_partial(number, axis, is_strict)
        )

    def _merges(self, node: Node, axis: str) -> bool:
        """Whether additions further on add the result to another partial value."""
        for _ in range(MAX_ADDENDS):
            value = node.outs[0][0]
            readers = self.graph.consumers[value]
            if len(node.outs) != 1 or len(readers) != 1 or value in self.routes.outputs:
                return False
            node = self.graph.nodes[readers[0]]
            if node.op is None or node.wire or axis in self.state.factor_of[node.index]:
                return False
            numbers = self.routes.numbers(node.op)
            if numbers.count(value) != 1:
                return False
            place = numbers.index(value)
            groups = [g for g in linear_sets(node) if place in g and len(g) > 1]
            others = [n for g in groups for p in g if (n := numbers[p]) != value]
            if any(self._arrives_partial(n, axis, is_strict=True) for n in others):
                return True
            if not groups:
                return False
        return False

    def _accepts(self, node: Node, value: int, axis: str) -> bool:
        if is_exit(node):
            return self.leaves_partial(node, axis)
        if node.wire is not None:
            return self.loop_partial(node, axis)
        if node.op is None or axis in self.state.factor_of[node.index]:
            return False
        numbers = self.routes.numbers(node.op)
        wanted = {p for p, n in enumerate(numbers) if n == value}
        return any(
            wanted <= group and self._reads_partial(node, group, axis)
            for group in linear_sets(node)
        )

    # -- loops ----------------------------------------------------------------------

    def _try_loop(self, node: Node, axis: str) -> bool:
        wire, op = node.wire, node.op
        if not is_carry(node) or axis in self.state.factor_of[node.index]:
            return False
        assert op is not None
        assert wire is not None
        assert wire.operand is not None
        start = self.graph.number[op.bodies[0].inputs[wire.inputs[0][1]]]
        last = op.bodies[0].outputs[wire.outputs[0][1]]
        init = self.routes.numbers(op)[wire.operand]
        if not isinstance(last, Value) or last is self.graph.values[start]:
            return False
        starts_partial = init is not None and self.is_partial(init, axis)
        if starts_partial or len(self.graph.consumers[start]) != 1:
            return False
        self._starts.add((start, axis))
        end = self.graph.number[last]
        is_handed_on = self.is_passed_on(start, axis)  # otherwise readers need the sum
        if is_handed_on and self.routes.is_cheap(end) and self.is_partial(end, axis):
            return True
        self._starts.discard((start, axis))
        return False
