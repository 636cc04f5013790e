"""The graph over which shardings are propagated.

Nodes are ops, inputs, and wires. A wire is one array that enters, runs through or
leaves a loop or branch. Each node has factors: dims of its operands and results that
are sharded together, such as `i` in the einsum `ik,kj->ij`. A value has one producing
node and any number of consuming nodes. Bodies of loops and branches are in the same
graph, so that propagation reaches one fixed point for a loop and its body.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from meshwright.program.ir import Atom, Op, Program, Value, Wire
from meshwright.program.ops import FactorRule, Trait, has_trait, rule_of
from meshwright.program.rules.rule import Dims

Port = tuple[int, Dims]
"""One operand or result of a node: the number of its value, and per dim its factors."""


@dataclass(slots=True, eq=False)
class Node:
    """One op, input, or wire (an array that enters or leaves a loop or branch).

    sizes: extent of each factor (dims that are sharded together).
    ins, outs: the operands and results, each with the factors of its dims.
    has_products: whether some dim is a product of factors, as after a reshape that
        merges dims.
    rule: the factor rule of the op; `None` for inputs and wires.
    signature: a number that ops of equal kind, shapes and parameters share; they also
        share one rule.
    """

    index: int
    sizes: tuple[int, ...]
    ins: tuple[Port, ...]
    outs: tuple[Port, ...]
    op: Op | None = None
    rule: FactorRule | None = None
    wire: Wire | None = None
    input_position: int | None = None
    has_products: bool = False
    signature: int | None = None

    @property
    def label(self) -> str:
        """The node's name in messages: "input", the op's kind, or "scan (wire)"."""
        if self.wire is not None and self.op is not None:
            return f"{self.op.kind} (wire)"
        return self.op.kind if self.op is not None else "input"

    @property
    def operand_places(self) -> list[int]:
        """Positions of the op's operands that are arrays.

        Literal scalars are left out.
        """
        assert self.op is not None
        return [i for i, a in enumerate(self.op.operands) if isinstance(a, Value)]

    @property
    def is_contraction(self) -> bool:
        """Whether the node is a matrix product or a convolution."""
        return self.op is not None and has_trait(self.op.kind, Trait.CONTRACTION)

    @property
    def is_loop_constant(self) -> bool:
        """Whether the node is a loop-invariant operand that enters a loop."""
        return (
            self._is_handed_in
            and self.op is not None
            and has_trait(self.op.kind, Trait.LOOP)
        )

    @property
    def is_remat_constant(self) -> bool:
        """Whether the node is an operand that enters a `jax.checkpoint` region."""
        return self._is_handed_in and self.op is not None and self.op.kind == "remat"

    @property
    def _is_handed_in(self) -> bool:
        wire = self.wire
        if wire is None or wire.operand is None or wire.is_stacked:
            return False
        return bool(self.ins) and bool(wire.inputs) and not wire.outputs

    @property
    def source(self) -> object:
        """The op's source line; the empty string for inputs."""
        return self.op.source if self.op is not None else ""


class Graph:
    """The nodes and values of a program and its loop bodies, in program order.

    ties: for each output that is the updated state of an input, such as a parameter,
        the position of the output and that of the input. The input's node then also
        consumes the output, so that both get the same sharding.
    """

    def __init__(self, program: Program, ties: Mapping[int, int] | None = None) -> None:
        self.program = program
        self.ties = dict(ties or {})
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.number: dict[Value, int] = {}
        self.producer: list[int] = []
        self.consumers: list[list[int]] = []
        self.op_node: dict[Op, Node] = {}
        self.wire_nodes: dict[Op, tuple[Node, ...]] = {}
        self.input_nodes: tuple[Node, ...] = ()
        self._rules: list[FactorRule] = []
        self._signatures: dict[object, int] = {}
        self.input_nodes = tuple([self._source_node(v) for v in program.inputs])
        for position, node in enumerate(self.input_nodes):
            node.input_position = position
        self._add_ops(program)
        for out, position in self.ties.items():
            value = program.outputs[out]
            if isinstance(value, Value):
                node = self.input_nodes[position]
                node.ins += ((self._number(value), node.outs[0][1]),)
        for node in self.nodes:
            for value, _ in node.outs:
                self.producer[value] = node.index
            for value in {value for value, _ in node.ins}:
                self.consumers[value].append(node.index)

    # -- building -------------------------------------------------------------------

    def _add_ops(self, program: Program) -> None:
        for value in program.constants:
            self._source_node(value)
        for op in program.ops:
            if op.bodies:
                self._add_region(op)
            else:
                self._add_op(op)

    def _source_node(self, value: Value) -> Node:
        """Add the node of an input or constant; each dim is a factor of its own."""
        return self._node(value.shape, (), self._ports([(value, False)]))

    def _add_op(self, op: Op) -> None:
        signature = self._signature(op)
        rule = self._rules[signature]
        ins = tuple(
            (self._number(a), dims)
            for a, dims in zip(op.operands, rule.operands, strict=True)
            if isinstance(a, Value)
        )
        outs = tuple(
            (self._number(r), dims)
            for r, dims in zip(op.results, rule.results, strict=True)
        )
        node = self._node(rule.sizes, ins, outs)
        node.op, node.rule, node.signature = op, rule, signature
        node.has_products = any(len(fs) > 1 for _, dims in (*ins, *outs) for fs in dims)
        self.op_node[op] = node

    def _signature(self, op: Op) -> int:
        """Index of the op's factor rule in `_rules`.

        Ops of equal kind, shapes and parameters share one rule, and so have the same
        index.
        """
        key = (
            op.kind,
            tuple((a.shape, a.dtype, getattr(a, "value", None)) for a in op.operands),
            tuple((r.shape, r.dtype) for r in op.results),
            tuple(op.params.items()),
        )
        try:
            number = self._signatures.setdefault(key, len(self._rules))
        except TypeError:  # some parameter cannot be hashed
            number = len(self._rules)
        if number == len(self._rules):
            self._rules.append(rule_of(op))
        return number

    def _add_region(self, op: Op) -> None:
        self.wire_nodes[op] = tuple([self._wire_node(op, wire) for wire in op.wires])
        for body in op.bodies:
            self._add_ops(body)

    def _wire_node(self, op: Op, wire: Wire) -> Node:
        ins: list[tuple[Atom, bool]] = []
        if wire.operand is not None:
            ins.append((op.operands[wire.operand], wire.is_stacked))
        ins += [(op.bodies[b].outputs[i], False) for b, i in wire.outputs]
        outs: list[tuple[Atom, bool]]
        outs = [(op.bodies[b].inputs[i], False) for b, i in wire.inputs]
        if wire.result is not None:
            outs.append((op.results[wire.result], wire.is_stacked))
        shapes = [v.shape[skip:] for v, skip in (*ins, *outs) if isinstance(v, Value)]
        node = self._node(
            shapes[0] if shapes else (), self._ports(ins), self._ports(outs)
        )
        node.op, node.wire = op, wire
        return node

    def _ports(self, values: Iterable[tuple[Atom, bool]]) -> tuple[Port, ...]:
        """The ports of a wire, of (value, whether it has a leading dim of iterations)."""
        return tuple(
            (self._number(v), ((),) * is_stacked + _own_dims(len(v.shape) - is_stacked))
            for v, is_stacked in values
            if isinstance(v, Value)
        )

    def _node(
        self, sizes: tuple[int, ...], ins: tuple[Port, ...], outs: tuple[Port, ...]
    ) -> Node:
        node = Node(len(self.nodes), tuple(sizes), ins, outs)
        self.nodes.append(node)
        return node

    def _number(self, value: Value) -> int:
        number = self.number.get(value)
        if number is None:
            number = self.number[value] = len(self.values)
            self.values.append(value)
            self.producer.append(-1)
            self.consumers.append([])
        return number


def _own_dims(rank: int) -> Dims:
    """Dims of a value that are a factor each."""
    return tuple((d,) for d in range(rank))
