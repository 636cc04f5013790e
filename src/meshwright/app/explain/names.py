"""Names of nodes, values and axes, as the author of the program knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from meshwright.partitioner.propagate import Carrier, Node, State, user_axes
from meshwright.partitioner.tactics import Workspace
from meshwright.program.ir import Value


@dataclass
class ProgramNames:
    """Names of the parts of one program in messages to its author.

    out_paths: paths of the outputs, if they are known.
    """

    work: Workspace
    out_paths: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._sources: dict[int, str] = {}

    @property
    def state(self) -> State:
        """The state of the propagation."""
        return self.work.state

    @cached_property
    def carrier(self) -> Carrier:
        """The values that are partial, for a state that does not change any more."""
        return Carrier(self.state)

    def source(self, node: Node) -> str:
        """`file:line` of a node; "" if it is unknown."""
        known = self._sources.get(node.index)
        if known is None:
            known = self._sources[node.index] = str(node.source)
        return known

    def node(self, node: Node) -> str:
        """The path of an input, or the kind of an op with its source line."""
        if node.input_position is not None:
            return self.work.paths[node.input_position]
        if node.op is None:
            return "a constant"
        source = self.source(node)
        return f"{node.op.kind} ({source})" if source else node.op.kind

    def maker(self, value: int) -> Node:
        """The node that makes a value."""
        return self.work.graph.nodes[self.work.graph.producer[value]]

    def value(self, value: int) -> str:
        """The path of an input, or the op that makes the value, and the value's type."""
        maker = self.maker(value)
        name = self.node(maker)
        if maker.wire is not None:
            name = f"a value of {name}"
        elif maker.op is not None:
            name = f"the result of {name}"
        return f"{name}, {self.work.graph.values[value]},"

    def place(self, node: Node, factor: int) -> str:
        """The dim of a factor: `dim 0 of operand 1`, or `dim 2 of its result`."""
        if node.rule is None:
            return f"dim {factor}"
        for side, values in (
            ("operand", node.rule.operands),
            ("result", node.rule.results),
        ):
            for position, dims in enumerate(values):
                for dim, factors in enumerate(dims):
                    if factor in factors:
                        many = side == "operand" or len(values) > 1
                        owner = f"{side} {position}" if many else f"its {side}"
                        return f"dim {dim} of {owner}"
        return f"factor {factor}"

    def axes(self, axes: Sequence[str]) -> str:
        """Quoted names of the user's axes: `'batch'`, or `'batch', 'model'`."""
        return ", ".join(repr(axis) for axis in user_axes(axes))

    def output(self, value: int) -> int | None:
        """The position of the first output that is this value; `None` if there is none."""
        outputs = self.work.graph.program.outputs
        numbers = self.work.graph.number
        for position, atom in enumerate(outputs):
            if isinstance(atom, Value) and numbers[atom] == value:
                return position
        return None

    def output_path(self, position: int) -> str:
        """The path of an output."""
        known = position < len(self.out_paths)
        return self.out_paths[position] if known else f"out.{position}"


def shorten(text: str, longest: int = 100) -> str:
    """The text, without its middle part if it is longer than `longest` letters."""
    if len(text) <= longest:
        return text
    head = (longest - 5) * 2 // 3
    return f"{text[:head]} ... {text[head - longest + 5 :]}"
