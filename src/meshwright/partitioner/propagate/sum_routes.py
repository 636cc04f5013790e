"""Routes of partial sums: which ops may read a sum before it is reduced.

A partial sum is a value of which each device holds an addend. The answers depend only
on the program, not on its shardings. Its reduction may wait for two reasons. It is
*cheap* to wait if all readers are linear in the value and their results together are no
larger. It is *delayed* if its only route leads to an accumulator of a loop, or to a
`total`, which adds up repeated runs of the program, and one reduction after them moves
fewer bytes than one each time that the value is computed. A delayed sum may be
converted to a wider dtype, be padded or stacked, and leave a `jax.checkpoint` region or
a branch. A sequential axis is a loop in time: a sum that can leave the program's loops
does.
"""

from collections.abc import Iterator

from meshwright.partitioner.propagate.graph import Graph, Node
from meshwright.partitioner.propagate.sum_nodes import (
    is_carry,
    is_exit,
    is_scan,
    is_total,
    linear_sets,
)
from meshwright.program.analysis.executions import repeated_executions
from meshwright.program.ir import Atom, Literal, Op, Value, num_bytes


class SumRoutes:
    """Answers, with a cache, which ops may read a partial sum before it is reduced.

    in_time: whether an axis of the mesh is sequential, that is a loop in time.
    """

    def __init__(self, graph: Graph, in_time: bool = False) -> None:
        self.graph = graph
        self.in_time = in_time
        self.top = {v for op in graph.program.ops for v in op.results}
        self.outputs = {
            graph.number[v] for v in graph.program.outputs if isinstance(v, Value)
        }
        self._cheap: dict[int, bool] = {}
        self._accumulators: dict[int, Node | None] = {}
        self._upstream: dict[int, float] = {}
        self._downstream: dict[int, float] = {}
        self._delayed: dict[int, bool] = {}
        self._numbers: dict[Op, list[int | None]] = {}
        self._sources: dict[int, list[int]] = {}
        self._executions = {
            graph.number[result]: times
            for op, times in repeated_executions(graph.program)
            for result in op.results
        }

    def numbers(self, op: Op) -> list[int | None]:
        """The value number of each operand of an op; `None` for a literal."""
        if op not in self._numbers:
            number = self.graph.number
            numbers = [number[a] if isinstance(a, Value) else None for a in op.operands]
            self._numbers[op] = numbers
        return self._numbers[op]

    def is_zero(self, atom: Atom) -> bool:
        """Whether a value is known to be zero everywhere."""
        if isinstance(atom, Literal):
            return bool(atom.value == 0)
        node = self.graph.nodes[self.graph.producer[self.graph.number[atom]]]
        return node.rule is not None and node.rule.is_zero

    # -- cheap ----------------------------------------------------------------------

    def is_cheap(self, value: int) -> bool:
        """Whether all readers of a value are linear in it, with results no larger."""
        if value not in self._cheap:
            self._cheap[value] = self._has_cheap_readers(value)
        return self._cheap[value]

    def _has_cheap_readers(self, value: int) -> bool:
        consumers = self.graph.consumers[value]
        if not consumers or value in self.outputs:
            return False
        made = 0.0
        for index in consumers:
            node = self.graph.nodes[index]
            if node.wire is not None:
                if len(consumers) > 1 or not is_scan(node):
                    return False
                continue
            share = self._equal_share(node, value, len(consumers))
            if share is None or node.op is None:
                return False
            made += share * sum(num_bytes(r) for r in node.op.results)
        return made <= num_bytes(self.graph.values[value])

    def _equal_share(self, node: Node, value: int, num_consumers: int) -> float | None:
        """The share of a linear op's result bytes that is charged to one operand value.

        `None` if the op is not linear in the value, or adds it while others read it.
        """
        group = self._group_of(node, value)
        if group is None or (len(group) > 1 and num_consumers > 1):
            return None
        assert node.op is not None
        return self.numbers(node.op).count(value) / len(group)

    def _group_of(self, node: Node, value: int) -> frozenset[int] | None:
        """Positions of jointly linear operands with all uses of a value, if any."""
        if node.op is None:
            return None
        places = {p for p, n in enumerate(self.numbers(node.op)) if n == value}
        if not places:  # a node of several ops, whose first does not read the value
            return None
        return next((g for g in linear_sets(node) if places <= g), None)

    # -- delayed --------------------------------------------------------------------

    def accumulator_of(self, value: int) -> Node | None:
        """The node of the scan's carry or `total` to which a value is added in the end.

        Between the value and the addition are only linear ops and exits of regions,
        each with one reader. `None` if there is no such route.
        """
        passed: list[int] = []
        found: Node | None = None
        while value not in self._accumulators:
            passed.append(value)
            step = self._step(value)
            if step is None or is_carry(step[0]) or is_total(step[0]):
                found = step[0] if step else None
                break
            value = step[1]
        else:
            found = self._accumulators[value]
        self._accumulators.update(dict.fromkeys(passed, found))
        return found

    def is_delayed(self, value: int) -> bool:
        """Whether reducing a sum after its accumulator's loop moves fewer bytes."""
        if value not in self._delayed:
            self._delayed[value] = self._saves_bytes(value)
        return self._delayed[value]

    def _saves_bytes(self, value: int) -> bool:
        step = self._step(value)
        if step is None or self.accumulator_of(value) is None:
            return False
        self._record_downstream(value)
        return self._bytes_later(value, *step) < self._bytes_here(value) * (1 - 1e-9)

    def _outside(self, value: int) -> int | None:
        """The value outside of all loops and branches to which linear ops lead, if any."""
        while self.graph.values[value] not in self.top:
            step = self._step(value)
            if step is None or is_carry(step[0]):
                return None
            value = step[1]
        return value

    def leaves_loops(self, value: int) -> bool:
        """Whether linear ops alone take a value out of the loops that it is in."""
        return self._outside(value) not in (None, value)

    def saves_in_time(self, value: int, times: int) -> bool:
        """Whether reducing a sum outside of all loops moves fewer bytes.

        times: iterations of the loop in time, after which it would be reduced.
        """
        end, inside = self._outside(value), times * self._bytes_here(value)
        return end is not None and self._bytes_here(end) < inside

    def has_sum(self, value: int) -> bool:
        """Whether a value may contain the unreduced sum of some op upstream."""
        return self._bytes_upstream(value) > 0

    def sources(self, node: Node) -> list[int]:
        """Values whose partial sums make a node's results partial; cached."""
        if node.index not in self._sources:
            self._sources[node.index] = self._find_sources(node)
        return self._sources[node.index]

    def _find_sources(self, node: Node) -> list[int]:
        if node.wire is not None:
            return list(self._ends(node)) if is_exit(node) else []
        if node.op is None or not linear_sets(node):
            return []
        numbers = self.numbers(node.op)
        return [n for n in numbers if n is not None and self._may_pass(n)]

    def _may_pass(self, value: int) -> bool:
        if self.in_time and self.graph.values[value] not in self.top:
            return True
        return self.is_cheap(value) or self.is_delayed(value)

    def _step(self, value: int) -> tuple[Node, int] | None:
        """The only reader of a value, and that reader's result.

        `None` if there are several, or if the reader is neither linear in the value nor
        the exit by which the value leaves a region or becomes a scan's carry.
        """
        readers = self.graph.consumers[value]
        if len(readers) != 1 or value in self.outputs:
            return None
        node = self.graph.nodes[readers[0]]
        op, wire = node.op, node.wire
        if op is None:
            return None
        if wire is None:
            is_read = len(op.results) == 1 and self._group_of(node, value) is not None
            return (node, node.outs[0][0]) if is_read else None
        if wire.result is None or not (is_exit(node) or is_carry(node)):
            return None
        if is_carry(node) and value not in self._ends(node):
            return None
        return node, self.graph.number[op.results[wire.result]]

    def _ends(self, node: Node) -> Iterator[int]:
        """Numbers of the values that a region's bodies return as the node's array."""
        op, wire = node.op, node.wire
        assert op is not None
        assert wire is not None
        for body, i in wire.outputs:
            atom = op.bodies[body].outputs[i]
            if isinstance(atom, Value):
                yield self.graph.number[atom]

    def _bytes_here(self, value: int) -> float:
        """Bytes of a value, times the number of times per step that it is computed."""
        times = self._executions.get(value, 1)
        return float(num_bytes(self.graph.values[value]) * times)

    def _bytes_later(self, value: int, reader: Node, result: int) -> float:
        """Bytes charged to a value if it is reduced at or downstream of `result`.

        `reader` computes the result; its addends share the bytes in proportion.
        """
        addends = self._summed_values(reader, result, value)
        total = sum(map(self._bytes_upstream, addends))
        own = addends.count(value) * self._bytes_upstream(value)
        return self._downstream[result] * (own / total if total else 1 / len(addends))

    def _record_downstream(self, value: int) -> None:
        """Record the fewest bytes to reduce a value, there or further downstream."""
        passed: list[int] = []
        while value not in self._downstream:
            passed.append(value)
            step = self._step(value)
            if step is None:
                break
            value = step[1]
        for each in reversed(passed):
            self._downstream[each] = self._bytes_here(each)
            if (step := self._step(each)) is not None:
                later = self._bytes_later(each, *step)
                self._downstream[each] = min(self._downstream[each], later)

    def _summed_values(
        self, node: Node, result: int, value: int | None = None
    ) -> list[int]:
        """The operands that a node adds up, or that it passes on, to compute a result.

        value: if given, only operands that are added to this value, and itself.
        """
        if node.wire is not None:
            is_handed_on = is_exit(node) or (
                is_carry(node) and not self.is_start(result)
            )
            return list(self._ends(node)) if is_handed_on else []
        if node.op is None:
            return []
        numbers = self.numbers(node.op)
        groups = linear_sets(node)
        if value is not None:
            groups = tuple(g for g in groups if value in [numbers[p] for p in g])[:1]
        return [n for g in groups for p in g if (n := numbers[p]) is not None]

    def is_start(self, value: int) -> bool:
        """Whether a value is an input of a loop's body, and not a result of the loop."""
        node = self.graph.nodes[self.graph.producer[value]]
        assert node.op is not None
        return self.graph.values[value] not in node.op.results

    def _bytes_upstream(self, value: int) -> float:
        """The fewest bytes to reduce a value, there or at addends upstream."""
        waiting = [] if value in self._upstream else [value]
        while waiting:
            last = waiting[-1]
            node = self.graph.nodes[self.graph.producer[last]]
            is_sum = node.rule is not None and node.rule.reductions
            addends = [] if is_sum else self._summed_values(node, last)
            missing = [n for n in addends if n not in self._upstream]
            if missing and last not in self._upstream:
                waiting += missing
                continue
            waiting.pop()
            here = self._bytes_here(last)
            before = here if is_sum else sum(self._upstream[n] for n in addends)
            self._upstream[last] = min(here, before)
        return self._upstream[value]
