"""The chain of causes from a node that an axis cuts back to the tactic behind it."""

from __future__ import annotations

from typing import NamedTuple

from meshwright.app.explain.names import ProgramNames, shorten
from meshwright.partitioner.propagate import Node

_NEAREST, _FARTHEST = 4, 3
"""Hops shown at each end of a long chain; the hops between them are counted."""


class _Hop(NamedTuple):
    """Consecutive ops of a chain with one source line, each cut because of the next."""

    how: str
    source: str
    kinds: list[str]


def cause_chain(names: ProgramNames, node: Node, axis: str) -> tuple[str, ...]:
    """Lines that say why an axis cuts a node, the last one naming the tactic.

    Ops of one source line are one line; the middle of a long chain is left out.
    """
    hops: list[_Hop] = []
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


def origin_of(names: ProgramNames, node: Node, axis: str) -> str:
    """The tactic and the node that a cut goes back to: `zero(...) cut state.params.w`.

    "" if the axis does not cut the node.
    """
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


def _add_hop(hops: list[_Hop], how: str, names: ProgramNames, node: Node) -> None:
    source = names.source(node)
    kind = "input" if node.op is None else node.op.kind
    if node.op is None:
        kind = names.node(node)
    if hops and (hops[-1].how, hops[-1].source) == (how, source):
        if hops[-1].kinds[-1] != kind:
            hops[-1].kinds.append(kind)
    else:
        hops.append(_Hop(how, source, [kind]))


def _show_hop(names: ProgramNames, hop: _Hop, axis: str) -> str:
    how, source, kinds = hop
    listed = ", ".join(kinds if len(kinds) <= 4 else (*kinds[:3], "...", kinds[-1]))
    where = f" ({source})" if source else ""
    return f"{names.axes((axis,))} cuts {listed}{where}, as {how} cut"


def _seed(names: ProgramNames, node: Node, axis: str, tactic: str) -> str:
    factor = names.state.factor_of[node.index][axis]
    where = names.node(node)
    dim = f"dim {factor} of " if node.op is None else ""
    return f"{names.axes((axis,))} cuts {dim}{where}: {_by(tactic)}"
