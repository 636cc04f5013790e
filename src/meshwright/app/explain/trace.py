"""Names for nodes and values, and the way from a cut back to the tactic behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from meshwright.partitioner.propagate import Carrier, Node, State, user_axes
from meshwright.partitioner.tactics import Workspace
from meshwright.program.ir import Value

_NEAREST, _FARTHEST = 4, 3
"""Hops of a chain that are told at each end; what lies between is counted."""


@dataclass
class Names:
    """What to call the parts of one program when talking to its author."""

    work: Workspace
    out_paths: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._sources: dict[int, str] = {}

    @property
    def state(self) -> State:
        """The decisions so far."""
        return self.work.state

    @cached_property
    def carrier(self) -> Carrier:
        """Says which values are partial; for a state that changes no more."""
        return Carrier(self.state)

    def source(self, node: Node) -> str:
        """`file:line` of a node, "" where unknown."""
        known = self._sources.get(node.index)
        if known is None:
            known = self._sources[node.index] = str(node.source)
        return known

    def node(self, node: Node) -> str:
        """The leaf's path, or the op with its source line."""
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
        """An input's path, or the op that makes the value; with its type."""
        maker = self.maker(value)
        name = self.node(maker)
        if maker.wire is not None:
            name = f"a value of {name}"
        elif maker.op is not None:
            name = f"the result of {name}"
        return f"{name}, {self.work.graph.values[value]},"

    def place(self, node: Node, factor: int) -> str:
        """Where a factor stands: `dim 0 of operand 1`, `dim 2 of its result`."""
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
        """`'batch'` or `'batch', 'model'`: the user's axes, quoted."""
        return ", ".join(repr(axis) for axis in user_axes(axes))

    def output(self, value: int) -> int | None:
        """The position of the first output that is this value."""
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


def trace(names: Names, node: Node, axis: str) -> tuple[str, ...]:
    """Why an axis cuts a node, hop by hop, down to the tactic that began it.

    Ops of one source line are one hop; of a long chain the ends are told.
    """
    hops: list[tuple[str, str, list[str]]] = []  # how, source, kinds
    last = ""
    current: Node | None = node
    seen: set[int] = set()
    while current is not None and current.index not in seen:
        seen.add(current.index)
        cause = names.state.causes.get((current.index, axis))
        if cause is None:
            break
        if cause.how == "tactic":
            last = _seed(names, current, axis, cause.tactic)
            break
        how = "its operand is" if cause.how == "forward" else "a reader wants it"
        _add_hop(hops, how, names, current)
        graph = names.work.graph
        current = None if cause.node is None else graph.nodes[cause.node]
    lines = [_show_hop(names, hop, axis) for hop in hops]
    if len(lines) > _NEAREST + _FARTHEST + 1:
        left = len(lines) - _NEAREST - _FARTHEST
        lines[_NEAREST:-_FARTHEST] = [f"... {left} more lines of code ..."]
    return (*lines, last) if last else tuple(lines)


def origin_of(names: Names, node: Node, axis: str) -> str:
    """Where a cut began: `zero(...) cut state.params.w`; "" if there is none."""
    start = node
    seen: set[int] = set()
    while node.index not in seen:
        seen.add(node.index)
        cause = names.state.causes.get((node.index, axis))
        if cause is None:
            return ""
        if cause.how == "tactic" or cause.node is None:
            cut = "it" if node is start else names.node(node)
            return f"{_by(cause.tactic)} cut {cut}"
        node = names.work.graph.nodes[cause.node]
    return ""


def _by(tactic: str) -> str:
    return shorten(tactic, 60) if tactic else "a constraint in the code"


def shorten(text: str, longest: int = 100) -> str:
    """The text, with its middle left out where it is longer than `longest`."""
    if len(text) <= longest:
        return text
    head = (longest - 5) * 2 // 3
    return f"{text[:head]} ... {text[head - longest + 5 :]}"


def _add_hop(
    hops: list[tuple[str, str, list[str]]], how: str, names: Names, node: Node
) -> None:
    source = names.source(node)
    kind = "input" if node.op is None else node.op.kind
    if node.op is None:
        kind = names.node(node)
    if hops and hops[-1][:2] == (how, source):
        if hops[-1][2][-1] != kind:
            hops[-1][2].append(kind)
    else:
        hops.append((how, source, [kind]))


def _show_hop(names: Names, hop: tuple[str, str, list[str]], axis: str) -> str:
    how, source, kinds = hop
    listed = ", ".join(kinds if len(kinds) <= 4 else (*kinds[:3], "...", kinds[-1]))
    where = f" ({source})" if source else ""
    return f"{names.axes((axis,))} cuts {listed}{where}, as {how} cut"


def _seed(names: Names, node: Node, axis: str, tactic: str) -> str:
    factor = names.state.factor_of[node.index][axis]
    where = names.node(node)
    dim = f"dim {factor} of " if node.op is None else ""
    return f"{names.axes((axis,))} cuts {dim}{where}: {_by(tactic)}"
