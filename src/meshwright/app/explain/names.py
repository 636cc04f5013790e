"""Names of ops, values and axes for messages to the program's author, and causes of cuts.

Names are input paths, source lines and axis names. A cause is why an axis splits an op.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from meshwright.partitioner.propagate import (
    Cause,
    Conflict,
    Node,
    PartialSums,
    State,
    user_axes,
)
from meshwright.partitioner.tactics import Workspace
from meshwright.program.ir import Value


@dataclass
class ProgramNames:
    """Names for the ops and values of one program that its author can recognize.

    work: the program with its propagation graph and state. A node of the graph is an op, an
        input, or a wire: how an array enters, runs through and leaves a loop or branch.
    out_paths: paths of the outputs, if they are known.
    """

    work: Workspace
    out_paths: Sequence[str] = ()

    @property
    def state(self) -> State:
        """The propagation state: which axis splits which node, and why."""
        return self.work.state

    @cached_property
    def partial_sums(self) -> PartialSums:
        """The values that are partial sums, in the final propagation state."""
        return PartialSums(self.state)

    def node(self, node: Node) -> str:
        """The name of a node: an input's path, or an op's kind with its source line."""
        if node.input_position is not None:
            return self.work.paths[node.input_position]
        if node.op is None:
            return "a constant"
        source = str(node.source)
        return f"{node.op.kind} ({source})" if source else node.op.kind

    def maker(self, value: int) -> Node:
        """The node that computes a value, which is given by its number in the graph."""
        return self.work.graph.nodes[self.work.graph.producer[value]]

    def value(self, value: int) -> str:
        """Text about a value: the input's path or the op that computes it, and its type."""
        maker = self.maker(value)
        name = self.node(maker)
        if maker.wire is not None:
            name = f"a value of {name}"
        elif maker.op is not None:
            name = f"the result of {name}"
        return f"{name}, {self.work.graph.values[value]},"

    def place(self, node: Node, factor: int) -> str:
        """Text for the dim that a factor stands for, such as `dim 0 of operand 1`.

        A factor is a set of dims of an op's operands and results that are split together.
        The first of these dims is named; for an op with one result, `dim 2 of its result`.
        """
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
        """The position of the first program output that is the value with this number.

        `None` if the value is no output.
        """
        outputs = self.work.graph.program.outputs
        numbers = self.work.graph.number
        for position, atom in enumerate(outputs):
            if isinstance(atom, Value) and numbers[atom] == value:
                return position
        return None

    def output_path(self, position: int) -> str:
        """The path of the output at this position; `out.N` if paths are unknown."""
        known = position < len(self.out_paths)
        return self.out_paths[position] if known else f"out.{position}"


def shorten(text: str, longest: int = 100) -> str:
    """The text, without its middle part if it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    head = (longest - 5) * 2 // 3
    return f"{text[:head]} ... {text[head - longest + 5 :]}"


# -- causes -----------------------------------------------------------------------------

_NEAREST = 4
"""Lines shown at the near end of a long cause chain; those in the middle are counted."""

_FARTHEST = 3
"""Lines shown at the far end of a long cause chain."""

_HOW = {
    "forward": "its operand is cut",
    "backward": "a reader wants it cut",
    "scatter": "another reader wants its operand, a partial sum, cut",
}
"""Why propagation cut a node, by the kind of its cause."""


def cause_chain(names: ProgramNames, node: Node, axis: str) -> tuple[str, ...]:
    """Lines that say why an axis splits a node, followed back to the tactic.

    Each line is one step of propagation; the last line names the tactic. Ops of one source
    line share a line, and the middle of a long chain is left out.
    """
    hops: list[tuple[str, str, str]] = []
    last = ""
    for current, cause in _causes(names, node, axis):
        if cause.how == "tactic":
            last = _seed(names, current, axis, cause.tactic)
        else:
            kind = names.node(current) if current.op is None else current.op.kind
            hops.append((_HOW[cause.how], str(current.source), kind))
    quoted = names.axes((axis,))
    lines: list[str] = []
    for (how, source), group in groupby(hops, lambda hop: hop[:2]):
        where = f" ({source})" if source else ""
        kinds = _kinds(kind for *_, kind in group)
        lines.append(f"{quoted} cuts {kinds}{where}, as {how}")
    if len(lines) > _NEAREST + _FARTHEST + 1:
        left = len(lines) - _NEAREST - _FARTHEST
        lines[_NEAREST:-_FARTHEST] = [f"... {left} more lines of code ..."]
    return (*lines, last) if last else tuple(lines)


def origin_of(names: ProgramNames, node: Node, axis: str) -> str:
    """Text for the tactic and the node with which the split of a node along an axis began.

    An example is `zero(...) cut state.params.w`. The text is "" if the axis does not split
    the node.
    """
    for current, cause in _causes(names, node, axis):
        if cause.how == "tactic" or cause.node is None:
            cut = "it" if current is node else names.node(current)
            return f"{_by(cause.tactic)} cut {cut}"
    return ""


def _causes(names: ProgramNames, node: Node, axis: str) -> Iterator[tuple[Node, Cause]]:
    """Pairs of a node and why an axis splits it, from `node` back to the tactic."""
    seen: set[int] = set()
    current = node
    while current.index not in seen:
        seen.add(current.index)
        cause = names.state.causes.get((current.index, axis))
        if cause is None:
            return
        yield current, cause
        if cause.how == "tactic" or cause.node is None:
            return
        current = names.work.graph.nodes[cause.node]


def _by(tactic: str) -> str:
    return shorten(tactic, 60) if tactic else "a constraint in the code"


def _kinds(kinds: Iterable[str]) -> str:
    """Text that lists at most five op kinds; equal neighbours are listed once."""
    listed = [kind for kind, _ in groupby(kinds)]
    return ", ".join(listed if len(listed) <= 4 else (*listed[:3], "...", listed[-1]))


def _seed(names: ProgramNames, node: Node, axis: str, tactic: str) -> str:
    factor = names.state.factor_of[node.index][axis]
    where = names.node(node)
    dim = f"dim {factor} of " if node.op is None else ""
    return f"{names.axes((axis,))} cuts {dim}{where}: {_by(tactic)}"


# -- conflicts -------------------------------------------------------------------------


def describe_conflict(names: ProgramNames, conflict: Conflict) -> str:
    """One line on the dims of a node that ask for the same axis, and on their tactics."""
    node = names.work.graph.nodes[conflict.node]
    sides = " and ".join(
        _describe_side(names, node, conflict.axis, side) for side in conflict.sides
    )
    quoted = names.axes((conflict.axis,))
    return f"{names.node(node)} stays whole along {quoted}, which {sides} both want"


def _describe_side(
    names: ProgramNames, node: Node, axis: str, side: tuple[int, int, str]
) -> str:
    factor, value, which = side
    place = names.place(node, factor)
    if which == "operand":
        maker = names.maker(value)
        origin = origin_of(names, maker, axis)
        since = f", since {origin}" if origin else ""
        return f"{place} ({names.node(maker)}{since})"
    wanted = names.state.requests.get((value, axis), {})
    readers = (names.work.graph.nodes[index] for index in wanted.values())
    reader = next(map(names.node, readers), "a reader")
    return f"{place} (so read by {reader})"
