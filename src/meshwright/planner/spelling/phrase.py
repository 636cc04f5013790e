"""From cuts of single leaves and ops to tactics with few, general patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.patterns import matches
from meshwright.partitioner.structure.sites import sites_of
from meshwright.partitioner.structure.workspace import Sum
from meshwright.partitioner.tactics import (
    FIRST_DIVISIBLE,
    REPLICATED,
    CutOps,
    Shard,
    Tactic,
    cut,
    first_divisible,
    shard,
)
from meshwright.partitioner.tactics.cut import Where
from meshwright.partitioner.tactics.primitives import Choice, Dim
from meshwright.planner.spelling.imitate import Entry, Imitation, Step
from meshwright.planner.spelling.reduced_graph import without_indices


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A line that may stand in a tactic: what it cuts, and all that it matches."""

    text: str
    dim: Dim
    cuts: frozenset[str]
    num_matched: int

    @property
    def merit(self) -> tuple[int, ...]:
        """The more it cuts the better; then numbers before names, then what is narrow."""
        is_plain = isinstance(self.dim, int) and self.dim >= 0
        return -len(self.cuts), not is_plain, self.num_matched, len(self.text)


def phrase(imitation: Imitation, steps: Sequence[Step]) -> tuple[Tactic, ...]:
    """The steps as tactics; what a step cuts besides is what the target cuts so, too."""
    imitation.run(())
    tactics: list[Tactic] = []
    for step in steps:
        is_leaf = step.entries[0].is_leaf
        tactics.append(_shard(imitation, step) if is_leaf else _cut(imitation, step))
        imitation.apply(step)
    return tuple(tactics)


def code_of(tactics: Sequence[Tactic]) -> str:
    """One tactic a line, as typed where `import meshwright as mw` stands above."""
    lines: list[str] = []
    for tactic in tactics:
        text = f"mw.{tactic}"
        for choice in Choice:
            text = text.replace(f": {choice.name}", f": mw.{choice.name}")
        lines.append(f"{text},")
    return "\n".join(lines)


# -- ops ------------------------------------------------------------------------------


def _cut(imitation: Imitation, step: Step) -> CutOps:
    known = sites_of(imitation.found.graph)
    sites: dict[str, Where] = {}
    for entry in step.entries:
        assert not isinstance(entry.key, str)
        where = str(entry.where) if isinstance(entry.where, Sum) else entry.where
        sites[known.name(*entry.key)] = where
    return cut(sites, step.axis)


# -- leaves ---------------------------------------------------------------------------


def _shard(imitation: Imitation, step: Step) -> Shard:
    """Patterns that cover what a step cuts, each as general as the target allows."""
    leaves = dict(
        zip(imitation.found.paths, imitation.quotient.graph.input_nodes, strict=True)
    )
    left = {path: dim for entry in step.entries for path, dim in _dims(entry, leaves)}
    families: dict[str, list[str]] = {}
    for path in leaves:
        families.setdefault(without_indices(path), []).append(path)
    patterns = list(_patterns(imitation, step.axis, leaves, families, left))
    chosen: dict[str, Dim] = {}
    while left:
        best = min(
            (
                _Pattern(p.text, p.dim, p.cuts & left.keys(), p.num_matched)
                for p in patterns
                if p.text not in chosen and p.cuts & left.keys()
            ),
            key=lambda p: p.merit,
        )
        chosen[best.text] = best.dim
        for path in best.cuts:
            del left[path]
    return shard(chosen, step.axis)


def _dims(
    entry: Entry, leaves: Mapping[str, Node]
) -> Iterator[tuple[str, int | Choice]]:
    """The leaves of an entry, with the dim to cut."""
    for path, node in leaves.items():
        if node.index in entry.nodes and without_indices(path) == entry.key:
            assert not isinstance(entry.where, Sum), "inputs sum nothing"
            yield path, entry.where


def _patterns(
    imitation: Imitation,
    axis: str,
    leaves: Mapping[str, Node],
    families: Mapping[str, Sequence[str]],
    wanted: Mapping[str, int | Choice],
) -> Iterator[_Pattern]:
    """All lines that cut some of what is wanted, and nothing but what the target cuts."""
    back = [
        dim - len(imitation.work.value(leaves[path]).shape)
        for path, dim in wanted.items()
        if isinstance(dim, int)
    ]
    places = dict.fromkeys([*wanted.values(), *back, *[FIRST_DIVISIBLE][: len(back)]])
    made = {
        (path, place): _made(imitation, axis, node, place)
        for path, node in leaves.items()
        for place in places
    }
    for text in _texts(families, wanted):
        found = [
            path
            for family, paths in families.items()
            for path in (paths if matches(text, family) else ())
        ] or [text]
        for place in places:
            results = {path: made[path, place] for path in found}
            if "wrong" in results.values():
                continue
            is_whole = place is REPLICATED
            right = {p for p, made in results.items() if made == "right"}
            cuts = {
                p for p in right & wanted.keys() if _is_whole(wanted[p]) == is_whole
            }
            if cuts:
                yield _Pattern(text, place, frozenset(cuts), len(found))


def _texts(
    families: Mapping[str, Sequence[str]], wanted: Mapping[str, int | Choice]
) -> Iterator[str]:
    """Globs over leaves that are wanted: names, beginnings and ends of families.

    Leaves of a family that are not all wanted alike are named one by one as well.
    """
    found: dict[str, None] = {}
    for path in wanted:
        family = without_indices(path)
        parts = family.split(".")
        found[family] = None
        for end in range(1, len(parts)):
            found[".".join((*parts[:end], "**"))] = None
            found[".".join((*parts[:end], "**", parts[-1]))] = None
        if len({wanted.get(p) for p in families[family]}) > 1:
            found[path] = None
    yield from found


def _made(imitation: Imitation, axis: str, node: Node, place: int | Choice) -> str:
    """What a line makes of a leaf: "right" as the target has it, "wrong", or nothing."""
    wanted = dict(imitation.wanted(node)).get(axis)
    work = imitation.work
    if place is REPLICATED:
        return "right" if wanted is None and not work.is_cut(node, axis) else "wrong"
    if isinstance(place, Choice):
        dim = first_divisible(work, node, axis)
        if dim is None:
            return ""
    else:
        rank = len(work.value(node).shape)
        if not -rank <= place < rank:
            return "wrong"
        dim = place % rank
    return "right" if dim == wanted else "wrong"


def _is_whole(dim: int | Choice) -> bool:
    return dim is REPLICATED
