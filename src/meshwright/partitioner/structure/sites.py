"""Names of ops that a person can read and type: `gpt3.py:96 dot_general f32[8,24]`.

A site consists of all ops of one kind on one source line whose results have one type,
in all layers to which the line belongs. Ops of a site that have different neighbours in
the graph, such as a product and the gradient of another, are distinguished by `#1`,
`#2`, and so on. `@2-4,7` selects some of these, counted from 1 in program order. Values
that enter, run through or leave a loop or branch have the kinds `scan.in`,
`scan.carry`, `scan.out`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Graph, Node

_SITE = re.compile(
    r"(?P<file>\S.*?):(?P<line>\d+) (?P<kind>[^\s#]+)"
    r"(?: (?P<type>[^\s#@][^#@]*?))?(?: #(?P<number>\d+))?"
    r"(?: @(?P<some>\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*))?"
)
_ROUNDS = 2
"""Rounds of Weisfeiler-Lehman colour refinement, which tell similar ops apart.

Two suffice to tell a query from a key in attention. With more, ops of the first layer
would differ from those of the second.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A source line with the kind of an op that is written there and its result's type.

    An op without a source line is in file "?".
    """

    file: str
    line: int
    kind: str
    type: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind} {self.type}".rstrip()


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """The ops of a program by source line, kind and result type (`Place`).

    of: for each place its ops, in one tuple per kind of neighbourhood in the graph.
        Names tell these tuples apart as `#1`, `#2`.
    place_of: for each node's index its place, and the position of its tuple in `of`.
    on_line: places by line number and kind of op.
    """

    of: Mapping[Place, tuple[tuple[Node, ...], ...]]
    place_of: Mapping[int, tuple[Place, int]]
    on_line: Mapping[tuple[int, str], Sequence[Place]]

    def name(self, place: Place, number: int | None = None) -> str:
        """The name, for `find`, of a place's ops, or only of tuple `number` of them."""
        files = {p.file for p in self.of}
        short = Place(_short(place.file, files), place.line, place.kind, place.type)
        if number is None or len(self.of[place]) == 1:
            return str(short)
        return f"{short} #{number + 1}"

    def names(self, nodes: Collection[Node]) -> Iterator[str]:
        """Names that together select exactly the given ops, and that `find` reads."""
        wanted = {node.index for node in nodes}
        for place in dict.fromkeys(self.place_of[i][0] for i in sorted(wanted)):
            alike = self.of[place]
            if all(node.index in wanted for own in alike for node in own):
                yield self.name(place)
                continue
            for number, own in enumerate(alike):
                taken = [i for i, n in enumerate(own, 1) if n.index in wanted]
                if taken:
                    some = f" @{_ranges(taken)}" if len(taken) < len(own) else ""
                    yield self.name(place, number) + some

    def find(self, text: str) -> list[Node]:
        """The ops that a name such as `gpt3.py:96 dot_general` selects.

        Raises `TacticError` if the name fits no op, or several places in the source.
        """
        read = _SITE.fullmatch(" ".join(text.split()))
        if read is None:
            raise TacticError(
                f"{text!r} names no op; wanted 'file:line kind', then perhaps the type "
                "of its result, then perhaps '#1', then perhaps '@2-4', as in "
                "'model.py:96 dot_general f32[16,64] #2'"
            )
        near = self.on_line.get((int(read["line"]), read["kind"]), ())
        found = [p for p in near if _means(read, p)]
        if not found:
            raise TacticError(self._unknown(text, read))
        if len(found) > 1:
            names = ", ".join(repr(self.name(p)) for p in found[:8])
            raise TacticError(f"{text!r} could be any of {names}; give one of these")
        nodes = self._numbered(text, read["number"], self.of[found[0]])
        return nodes if read["some"] is None else self._some(text, read["some"], nodes)

    def _numbered(
        self, text: str, number: str | None, alike: tuple[tuple[Node, ...], ...]
    ) -> list[Node]:
        if number is None:
            return sorted((n for own in alike for n in own), key=lambda n: n.index)
        if not 1 <= int(number) <= len(alike):
            there = f"#1 to #{len(alike)}" if len(alike) > 1 else "#1 only"
            raise TacticError(f"there is no {text!r}; there are {there}")
        return list(alike[int(number) - 1])

    def _some(self, text: str, ranges: str, nodes: Sequence[Node]) -> list[Node]:
        taken: dict[int, None] = {}
        for part in ranges.split(","):
            start, _, end = part.partition("-")
            first, last = int(start), int(end or start)
            if not 1 <= first <= last <= len(nodes):
                raise TacticError(
                    f"there is no @{part} in {text!r}; there are @1 to @{len(nodes)}"
                )
            taken |= dict.fromkeys(range(first, last + 1))
        return [nodes[i - 1] for i in sorted(taken)]

    def _unknown(self, text: str, read: re.Match[str]) -> str:
        names = {self.name(p): p for p in self.of}
        line = int(read["line"])
        here = [n for n, p in names.items() if _is_file(read["file"], p.file)]
        near = sorted(here, key=lambda n: abs(names[n].line - line))[:12]
        best = get_close_matches(text, near or list(names), n=3, cutoff=0.0)
        return f"no op is at {text!r}; the nearest are: {', '.join(map(repr, best))}"


@lru_cache(maxsize=1)  # several tactics of one partitioning ask
def sites_of(graph: Graph) -> Sites:
    """The `Sites` of all ops of a program."""
    return _sites(graph, list(graph.op_node.values()))


@lru_cache(maxsize=1)
def all_sites_of(graph: Graph) -> Sites:
    """The `Sites` of all ops and constants, and of arrays that enter or leave loops."""
    return _sites(graph, [n for n in graph.nodes if n.input_position is None])


def _sites(graph: Graph, nodes: Sequence[Node]) -> Sites:
    places = [_place(graph, node) for node in graph.nodes]
    labels = refined_labels(graph, places, _ROUNDS)
    found: dict[Place, dict[int, list[Node]]] = {}
    for node in nodes:
        place = places[node.index]
        if node.op is None or node.wire is not None:
            place = replace(place, kind=_kind(node))
        found.setdefault(place, {}).setdefault(labels[node.index], []).append(node)
    of = {p: tuple(tuple(own) for own in alike.values()) for p, alike in found.items()}
    place_of = {
        node.index: (place, number)
        for place, alike in of.items()
        for number, own in enumerate(alike)
        for node in own
    }
    on_line: dict[tuple[int, str], list[Place]] = {}
    for place in of:
        on_line.setdefault((place.line, place.kind), []).append(place)
    return Sites(of, place_of, on_line)


def _kind(node: Node) -> str:
    """The kind of a constant, "constant", or of a loop's array, as "scan.carry"."""
    wire = node.wire
    if node.op is None or wire is None:
        return "constant"
    if wire.inputs and wire.outputs:
        return f"{node.op.kind}.carry"
    return f"{node.op.kind}.{'in' if wire.operand is not None else 'out'}"


def _place(graph: Graph, node: Node) -> Place:
    file, _, line = str(node.source).rpartition(":")
    made = str(graph.values[node.outs[0][0]]) if node.outs else ""
    made = made.replace(" ", "")
    if not line.isdigit():
        return Place("?", 0, node.label, made)
    return Place(file, int(line), node.label, made)


def refined_labels(
    graph: Graph, first: Sequence[object], rounds: int
) -> tuple[int, ...]:
    """A label for each node; equal if colour refinement cannot tell the nodes apart.

    first: each node's label before the first round. Each round adds the labels of
    neighbours (Weisfeiler and Lehman, 1968).
    """
    labels = numbered(first)[1]
    for _ in range(rounds):
        readers: list[set[tuple[int, int]]] = [set() for _ in graph.values]
        for node in graph.nodes:
            for position, (value, _) in enumerate(node.ins):
                readers[value].add((labels[node.index], position))
        around = [
            (
                labels[node.index],
                tuple(labels[graph.producer[v]] for v, _ in node.ins),
                tuple(frozenset(readers[v]) for v, _ in node.outs),
            )
            for node in graph.nodes
        ]
        labels = numbered(around)[1]
    return labels


def numbered[T](items: Iterable[T]) -> tuple[tuple[T, ...], tuple[int, ...]]:
    """The distinct items, and for each item its index among the distinct ones."""
    numbers: dict[T, int] = {}
    indices = tuple([numbers.setdefault(item, len(numbers)) for item in items])
    return tuple(numbers), indices


def _ranges(numbers: Sequence[int]) -> str:
    """Increasing numbers as ranges: `1-3,7` for 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _means(read: re.Match[str], place: Place) -> bool:
    made = read["type"]
    is_type = made is None or made.replace(" ", "") == place.type
    return is_type and _is_file(read["file"], place.file)


def _is_file(said: str, file: str) -> bool:
    return file == said or file.endswith(f"/{said}")


def _short(file: str, files: set[str]) -> str:
    """The shortest suffix of a file's path with which no other file ends."""
    parts = file.split("/")
    for start in range(len(parts) - 1, 0, -1):
        short = "/".join(parts[start:])
        if short and sum(_is_file(short, other) for other in files) == 1:
            return short
    return file
