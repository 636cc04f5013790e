"""The chain of causes from a node that an axis cuts back to the tactic behind it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from meshwright.app.explain.names import ProgramNames, shorten
from meshwright.partitioner.propagate import Node

_NEAREST, _FARTHEST = 4, 3
"""Hops shown at each end of a long chain; the hops between them are counted."""


def cause_chain(names: ProgramNames, node: Node, axis: str) -> tuple[str, ...]:
    """Lines that say why an axis cuts a node, the last one naming the tactic.

    Ops of one source line are one line; the middle of a long chain is left out.
    """
    hops: list[tuple[str, str, str]] = []
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
        kind = names.node(current) if current.op is None else current.op.kind
        hops.append((how, names.source(current), kind))
        graph = names.work.graph
        current = None if cause.node is None else graph.nodes[cause.node]
    quoted = names.axes((axis,))
    lines: list[str] = []
    for (how, source), group in groupby(hops, lambda hop: hop[:2]):
        where = f" ({source})" if source else ""
        kinds = _kinds(kind for *_, kind in group)
        lines.append(f"{quoted} cuts {kinds}{where}, as {how} cut")
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


def _kinds(kinds: Iterable[str]) -> str:
    """At most five kinds of ops; neighbours alike are listed once."""
    listed = [kind for kind, _ in groupby(kinds)]
    return ", ".join(listed if len(listed) <= 4 else (*listed[:3], "...", listed[-1]))


def _seed(names: ProgramNames, node: Node, axis: str, tactic: str) -> str:
    factor = names.state.factor_of[node.index][axis]
    where = names.node(node)
    dim = f"dim {factor} of " if node.op is None else ""
    return f"{names.axes((axis,))} cuts {dim}{where}: {_by(tactic)}"
