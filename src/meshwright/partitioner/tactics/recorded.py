"""The sharding decisions of a finished plan as data, and a tactic that repeats them.

Decisions are stored by number of node and value of the program's graph, so that they
fit only the program for which they were made. A fingerprint of the graph shows whether
a program is that one, and where it first differs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Graph, Node, State
from meshwright.partitioner.propagate.state import Cause
from meshwright.partitioner.structure.sites import numbered
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics.tactic import TacticKind
from meshwright.program.ir import show_type
from meshwright.program.rewrite.even_dims import EvenDims

type Cut = tuple[tuple[str, int], ...]
"""(axis, factor) for each sharded factor of a node, by factor, major to minor."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """All sharding decisions about one program on one mesh, as plain data.

    kinds: the distinct kinds of nodes, with the types of their results.
    nodes: for each node, the index of its kind. digest: a hash of all nodes.
    cuts: the distinct shardings of nodes. cut_of: for each node, the index of its own.
    scattered, settled, kept, overlapped, ahead, combined: as in `State`.
    sub_axes: the sub-axes of each mesh axis, with their sizes.
    even: how dims of the program were made even before the tactics, if they were.
    """

    kinds: tuple[str, ...]
    nodes: tuple[int, ...]
    digest: str
    cuts: tuple[Cut, ...]
    cut_of: tuple[int, ...]
    scattered: tuple[tuple[int, str, int], ...]
    settled: tuple[tuple[int, str], ...]
    kept: tuple[tuple[int, tuple[tuple[str, ...], ...]], ...]
    sub_axes: Mapping[str, tuple[tuple[str, int], ...]]
    overlapped: tuple[tuple[int, tuple[str, ...]], ...] = ()
    ahead: tuple[tuple[int, tuple[str, ...]], ...] = ()
    combined: tuple[tuple[tuple[str, ...], int], ...] = ()
    even: EvenDims | None = None

    def __post_init__(self) -> None:
        for name, numbers, count in (
            ("nodes", self.nodes, len(self.kinds)),
            ("cut_of", self.cut_of, len(self.cuts)),
        ):
            if not all(0 <= number < count for number in numbers):
                raise TacticError(
                    f"{name} of the decisions has a number not below {count}"
                )
        if len(self.nodes) != len(self.cut_of):
            raise TacticError(
                f"the decisions have {len(self.nodes)} nodes, but cuts of "
                f"{len(self.cut_of)}"
            )

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values; each long list of numbers becomes one text."""
        fields = asdict(self)
        for name in LONG:
            fields[name] = " ".join(map(str, fields[name]))
        return fields


LONG = ("nodes", "cut_of")
"""The fields of `Decisions` that become one string of numbers each in JSON."""


def decisions_of(work: Workspace) -> Decisions:
    """All sharding decisions in a workspace."""
    state = work.state
    kinds, nodes, digest = _fingerprint(work.graph)
    cuts, cut_of = numbered(map(_cut, state.axes_of))
    return Decisions(
        kinds,
        nodes,
        digest,
        cuts,
        cut_of,
        scattered=tuple(
            (v, axis, d) for (v, axis), d in sorted(state.scattered.items())
        ),
        settled=tuple(sorted(state.settled)),
        kept=tuple(sorted(state.kept.items())),
        sub_axes=_sized(work),
        overlapped=tuple(sorted(state.overlapped)),
        ahead=tuple(sorted(state.ahead)),
        combined=tuple(sorted(state.combined.items())),
        even=work.even,
    )


def _cut(axes_of: Mapping[int, tuple[str, ...]]) -> Cut:
    return tuple((axis, f) for f, axes in sorted(axes_of.items()) for axis in axes)


def _sized(work: Workspace) -> dict[str, tuple[tuple[str, int], ...]]:
    return {
        axis: tuple((name, work.state.size[name]) for name in names)
        for axis, names in work.sub_axes.items()
    }


def _fingerprint(graph: Graph) -> tuple[tuple[str, ...], tuple[int, ...], str]:
    """The distinct kinds of nodes, each node's index of its kind, and a hash of all."""
    kinds, numbers = numbered(_kind(graph, node) for node in graph.nodes)
    digest = hashlib.sha256()
    for node in graph.nodes:
        digest.update(repr((node.ins, node.outs, node.sizes)).encode())
    return kinds, numbers, digest.hexdigest()


def _kind(graph: Graph, node: Node) -> str:
    made = (graph.values[value] for value, _ in node.outs)
    return " ".join([node.label, *(show_type(v.shape, v.dtype) for v in made)])


@dataclass(frozen=True, slots=True, repr=False)
class Recorded:
    """A tactic that repeats the decisions of an earlier plan for the same program.

    any_types: whether to accept a program with other dtypes, but the same ops.
    """

    decisions: Decisions
    any_types: bool = False
    axes = None
    kind = TacticKind.SEARCH

    @property
    def rewrite(self) -> EvenDims | None:
        """The rewrite after which the decisions were made."""
        return self.decisions.even

    def apply(self, work: Workspace) -> None:
        """Write all decisions; `TacticError` if the program or mesh is not theirs."""
        if not self.any_types:
            _require_same(self.decisions, work)
        _require_known(self.decisions, work.state)
        _write(self.decisions, work.state, Cause("tactic", str(self)))

    def __str__(self) -> str:
        return f"recorded({len(self.decisions.nodes)} decisions)"

    def __repr__(self) -> str:
        return f"<{self}>"


def _write(decisions: Decisions, state: State, cause: Cause) -> None:
    for node, number in zip(state.graph.nodes, decisions.cut_of, strict=True):
        decided = state.factor_of[node.index]
        for axis, factor in decisions.cuts[number]:
            if axis not in decided:
                state.assign(node, axis, factor, cause)
    for value, axis, dim in decisions.scattered:
        state.scatter(value, axis, dim)
    for value, axis in decisions.settled:
        state.settle(value, axis)
    for value, form in decisions.kept:
        state.keep(value, form)
    for node, axes in decisions.overlapped:
        state.overlap(node, axes)
    for node, axes in decisions.ahead:
        state.gather_ahead(node, axes)
    for axes, most_bytes in decisions.combined:
        state.combine(axes, most_bytes)


def _require_known(decisions: Decisions, state: State) -> None:
    """Raise `TacticError` for a decision on an axis, factor or value that is absent."""
    for what, is_there, axes in _subjects(decisions, state.graph):
        if not is_there or not state.size.keys() >= set(axes):
            raise TacticError(
                f"the decisions {what} along {', '.join(axes)}, which the program and the "
                f"mesh of axes {', '.join(state.size)} do not have"
            )


def _subjects(
    decisions: Decisions, graph: Graph
) -> Iterator[tuple[str, bool, Sequence[str]]]:
    """What each decision does, whether the program has what it is about, and its axes."""
    for node, number in zip(graph.nodes, decisions.cut_of, strict=True):
        for axis, factor in decisions.cuts[number]:
            is_there = 0 <= factor < len(node.sizes)
            yield f"cut factor {factor} of a {node.label}", is_there, (axis,)
    for number, axes in (*decisions.overlapped, *decisions.ahead):
        is_there = 0 <= number < len(graph.nodes)
        yield f"overlap collectives of node {number}", is_there, axes
    for axes, _ in decisions.combined:
        yield "combine collectives", True, axes
    sharded = [(value, (axis,), dim + 1) for value, axis, dim in decisions.scattered]
    sharded += [(value, (axis,), 0) for value, axis in decisions.settled]
    sharded += [(value, sum(form, ()), len(form)) for value, form in decisions.kept]
    for value, axes, rank in sharded:
        is_there = 0 <= value < len(graph.values)
        is_there = is_there and 0 <= rank <= len(graph.values[value].shape)
        yield f"shard {rank} dims of value {value}", is_there, axes


def _require_same(decisions: Decisions, work: Workspace) -> None:
    """Raise `TacticError` with the first difference from a plan's program or mesh."""
    kinds, nodes, digest = _fingerprint(work.graph)
    for position, (old, new) in enumerate(zip(decisions.nodes, nodes, strict=False)):
        if decisions.kinds[old] != kinds[new]:
            raise TacticError(
                "the plan was made for another program: "
                f"{_named(work, position)} is {kinds[new]!r}, and was "
                f"{decisions.kinds[old]!r} when the plan was made; "
                "make the plan again"
            )
    if len(decisions.nodes) != len(nodes):
        raise TacticError(
            f"the plan was made for a program of {len(decisions.nodes)} nodes, but this "
            f"one has {len(nodes)}; make the plan again"
        )
    if decisions.digest != digest:
        raise TacticError(
            "the plan was made for another program: all ops have the same types, but they "
            "read other values or work on other dims; make the plan again"
        )
    sizes = _sized(work)  # they depend on the program as well
    if sizes != dict(decisions.sub_axes):
        raise TacticError(
            f"the plan was made for the mesh axes {_shown(decisions.sub_axes)}, "
            f"but here they are {_shown(sizes)}"
        )


def _named(work: Workspace, position: int) -> str:
    """A node as an error names it: an input by its path, an op by its source line."""
    node = work.graph.nodes[position]
    if node.input_position is not None:
        return work.paths[node.input_position]
    return f"op {position} ({node.source})" if node.source else f"op {position}"


def _shown(sub_axes: Mapping[str, tuple[tuple[str, int], ...]]) -> str:
    """Axes with their sizes, and sizes of sub-axes, as `data=4 (2 x 2), model=2`."""
    shown: list[str] = []
    for axis, parts in sub_axes.items():
        sizes = [size for _, size in parts]
        split = f" ({' x '.join(map(str, sizes))})" if len(sizes) > 1 else ""
        shown.append(f"{axis}={math.prod(sizes)}{split}")
    return ", ".join(shown)
