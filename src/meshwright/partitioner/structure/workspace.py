"""The workspace of a tactic: graph, decisions so far, and names of inputs.

Patterns select inputs by globs over their names, such as `params.**.kernel`, or values
by tags, such as `tag:hidden`. `Workspace.cut` shards dims and words the refusal of what
is not possible.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache

from meshwright.errors import TacticError
from meshwright.machine import Mesh
from meshwright.partitioner.propagate import Graph, Node, Propagator, State, why_not
from meshwright.partitioner.structure.named_roles import UNNAMED, NamedRoles
from meshwright.program.ir import Value
from meshwright.program.rewrite.even_dims import EvenDims


@dataclass(frozen=True, slots=True)
class Sum:
    """A dim that an op sums over, by its number, in place of a dim of the op's result.

    A matrix product has one: the contracted dim.
    """

    index: int

    def __str__(self) -> str:
        return f"sum {self.index}" if self.index else "sum"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A sharding that a tactic asked for and that is not possible.

    where: what was to be sharded, as a path or op. axis: the mesh axis. why: the
        reason.
    """

    where: str
    axis: str
    why: str

    def __str__(self) -> str:
        return f"{self.where} along {self.axis!r}: {self.why}"


@dataclass
class Workspace:
    """The partitioning of one program while tactics are applied.

    paths: names of the input leaves.
    mesh: the user's mesh.
    sub_axes: the sub-axes of each axis of the mesh, which is the axis itself unless a
        reshape splits it over two dims.
    refusals: shardings that tactics asked for and that are not possible.
    warnings: messages that the user gets even without reading the plan.
    named_roles: inputs that tactics were told to be parameters, or data.
    even: how dims of the program were made even before the tactics (`EvenDims`), if so.
    """

    propagator: Propagator
    paths: Sequence[str]
    mesh: Mesh
    sub_axes: Mapping[str, tuple[str, ...]]
    refusals: list[Refusal] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    named_roles: NamedRoles = UNNAMED
    even: EvenDims | None = None

    @property
    def graph(self) -> Graph:
        """The graph of the program."""
        return self.propagator.graph

    @property
    def state(self) -> State:
        """The decisions so far."""
        return self.propagator.state

    @property
    def tags(self) -> list[tuple[str, Node]]:
        """(name, node) of every value that the program tags, in program order."""
        return [
            (str(op.params["name"]), node)
            for op, node in self.graph.op_node.items()
            if op.kind == "tag"
        ]

    def leaves(self, positions: Iterable[int]) -> list[tuple[str, Node]]:
        """(path, node) of the inputs at some positions."""
        return [(self.paths[i], self.graph.input_nodes[i]) for i in positions]

    def value(self, node: Node) -> Value:
        """The value that a node computes."""
        return self.graph.values[node.outs[0][0]]

    def cut(
        self, seeds: Iterable[tuple[str, Node, int | Sum]], axis: str, tactic: str
    ) -> None:
        """Shard dims of nodes' results, or dims that nodes sum over; propagate once.

        seeds: (path, node, dim or sum). What cannot be sharded is added to `refusals`.
        """
        sub_axes = self.sub_axes[self.mesh.require(axis)]
        if len(sub_axes) > 1:  # all sub-axes of the axis or none
            seeds = [seed for seed in seeds if self._takes_all(*seed, axis)]
        seeds = list(seeds)
        for sub_axis in sub_axes:
            accepted: list[tuple[Node, int]] = []
            for path, node, dim in seeds:
                factors = self._factors(node, dim)
                if not factors:
                    what = dim if isinstance(dim, Sum) else f"dim {dim}"
                    why = f"{what} of this {node.label} cannot be cut"
                    self.refusals.append(Refusal(path, axis, why))
                    continue
                if self.state.factor_of[node.index].get(sub_axis) in factors:
                    continue
                splittable = self.state.next_factor(node, factors)
                factor = factors[0] if splittable is None else splittable
                why = why_not(self.state, node, sub_axis, factor)
                if why is None:
                    accepted.append((node, factor))
                else:
                    self.refusals.append(Refusal(path, axis, why))
            self.propagator.cut_all(accepted, sub_axis, tactic)

    def _takes_all(self, path: str, node: Node, dim: int | Sum, axis: str) -> bool:
        factors, size = self._factors(node, dim), self.mesh.size(axis)
        extent = math.prod(node.sizes[f] // self.state.parts(node, f) for f in factors)
        if not self.is_cut(node, axis) and factors and extent % size:
            why = f"{size} parts do not divide extent {extent}"
            self.refusals.append(Refusal(path, axis, why))
            return False
        return True

    def block(self, nodes: Iterable[tuple[str, Node]], axes: Iterable[str]) -> None:
        """Forbid that axes shard the results of nodes, for all later tactics too.

        A result that an axis shards already becomes a refusal.
        """
        for axis in axes:
            for sub_axis in self.sub_axes[self.mesh.require(axis)]:
                for path, node in nodes:
                    if sub_axis in self.state.factor_of[node.index]:
                        why = "it is cut already, and no tactic undoes another"
                        self.refusals.append(Refusal(path, axis, why))
                    else:
                        self.state.block(node, sub_axis)

    def name_roles(self, params: Iterable[int], inputs: Iterable[int]) -> None:
        """Add positions of inputs that are parameters, or data."""
        named = self.named_roles
        self.named_roles = NamedRoles(
            named.params | {*params}, named.inputs | {*inputs}
        )

    def mark(self) -> tuple[int, int, int]:
        """The point in the sequence of decisions, to which `rollback` can return."""
        return self.state.mark(), len(self.refusals), len(self.warnings)

    def rollback(self, mark: tuple[int, int, int]) -> None:
        """Undo all decisions, refusals and warnings since `mark`."""
        decisions, refusals, warnings = mark
        self.state.rollback(decisions)
        del self.refusals[refusals:], self.warnings[warnings:]

    def is_cut(self, node: Node, axis: str) -> bool:
        """Whether an axis, or one of its sub-axes, shards a node."""
        return any(u in self.state.factor_of[node.index] for u in self.sub_axes[axis])

    def local_extent(self, node: Node, dim: int) -> int:
        """Extent of a dim of a node's result on one device, as sharded so far."""
        parts = (self.state.parts(node, factor) for factor in node.outs[0][1][dim])
        return self.value(node).shape[dim] // math.prod(parts)

    def divisible_dims(self, node: Node, axis: str) -> list[int]:
        """The dims of a node's result that an axis can divide evenly.

        Empty if the axis shards the node already.
        """
        if self.is_cut(node, axis):
            return []
        size, dims = self.mesh.size(axis), range(len(self.value(node).shape))
        extents = [self.local_extent(node, d) for d in dims]
        return [d for d, n in enumerate(extents) if n >= size and n % size == 0]

    def sums(self, node: Node) -> tuple[int, ...]:
        """The factors over which a node sums, in order of its operands' dims."""
        rule = node.rule
        if rule is None:
            return ()
        read = dict.fromkeys(f for dims in rule.operands for fs in dims for f in fs)
        return tuple(f for f in read if f in rule.reductions)

    def _factors(self, node: Node, dim: int | Sum) -> tuple[int, ...]:
        if isinstance(dim, Sum):
            return self.sums(node)[dim.index : dim.index + 1]
        return node.outs[0][1][dim]


@cache
def _pattern_regex(pattern: str) -> re.Pattern[str]:
    """The regular expression of a glob pattern over dotted paths.

    `*` stands for anything within one component, `**` for any number of components.
    """
    parts: list[str] = []
    for component in pattern.split("."):
        if component == "**":
            parts.append(r"(?:[^.]+(?:\.|$))*")
        else:
            text = re.escape(component).replace(r"\*", "[^.]*").replace(r"\?", "[^.]")
            parts.append(text + r"(?:\.|$)")
    return re.compile("".join(parts) + "$")


def matches(pattern: str, path: str) -> bool:
    """Whether a pattern matches a complete path."""
    return _pattern_regex(pattern).match(path) is not None


def without_indices(path: str) -> str:
    """A path with `*` for each index: `blocks.*.up` for `blocks.3.up`."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", path)


def require_patterns(tactic: str, patterns: Iterable[object]) -> None:
    """Raise `TacticError` for a pattern that is not a string."""
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TacticError(
                f"{tactic}: {pattern!r:.60} is no pattern; wanted a text such as "
                "'batch.**', over the paths of the function's arguments"
            )


def find_nodes(work: Workspace, pattern: str) -> list[tuple[str, Node]]:
    """(path, node) of each input leaf or tagged value that a pattern matches.

    Raises `TacticError` if it matches none.
    """
    if pattern.startswith("tag:"):
        named = [(f"tag:{name}", node) for name, node in work.tags]
        nodes = [each for each in named if each[0] == pattern]
        known = sorted({name for name, _ in named})
    else:
        named = zip(work.paths, work.graph.input_nodes, strict=True)
        nodes = [(path, node) for path, node in named if matches(pattern, path)]
        known = list(work.paths)
    if not nodes:
        raise TacticError(_no_match(pattern, known))
    return nodes


def _no_match(pattern: str, known: list[str]) -> str:
    near = get_close_matches(pattern, known, n=3, cutoff=0.3)
    sample = near or known[:8]
    more = f" and {len(known) - len(sample)} more" if len(known) > len(sample) else ""
    there = ", ".join(sample) + more if known else "none"
    what = "tags" if pattern.startswith("tag:") else "leaves"
    if not pattern:
        return f"a pattern is empty; the program's {what} are: {there}; '**' is all of them"
    wider = (f"{pattern}.**", f"**.{pattern}")
    hints = [w for w in wider if any(matches(w, path) for path in known)]
    hint = f"; did you mean {hints[0]!r}?" if hints else ""
    return (
        f"pattern {pattern!r} matches nothing; the program's {what} are: {there}{hint}"
    )


def list_groups(work: Workspace, most: int = 6) -> str:
    """A line that lists patterns over the inputs, with numbers of elements.

    There is one pattern for each argument and first component of a path, such as
    `params.blocks.**`. Only the `most` patterns with most elements are listed.
    """
    elements: Counter[str] = Counter()
    for path, node in zip(work.paths, work.graph.input_nodes, strict=True):
        parts = path.split(".")
        few = {1: path, 2: f"{parts[0]}.*"}
        name = few.get(len(parts), ".".join([*parts[:2], "**"]))
        elements[name] += math.prod(work.value(node).shape)
    shown = [f"{name!r} ({n:,} elements)" for name, n in elements.most_common(most)]
    more = f" and {len(elements) - most} more" if len(elements) > most else ""
    return ", ".join(shown) + more
