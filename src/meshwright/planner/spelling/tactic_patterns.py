"""Tactics with few, general path patterns, written from shardings of single leaves.

Steps on ops become `cut` tactics, which name source sites.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.sites import sites_of
from meshwright.partitioner.structure.workspace import Sum, matches, without_indices
from meshwright.partitioner.tactics import (
    FIRST_DIVISIBLE,
    REPLICATED,
    CutOps,
    Shard,
    Tactic,
    as_code,
    cut,
    shard,
)
from meshwright.partitioner.tactics.cut import Where
from meshwright.partitioner.tactics.primitives import Choice, Dim
from meshwright.planner.spelling.plan_matcher import CutStep, PlanMatcher


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A possible line of a `shard` tactic: a pattern of input paths, and a dim.

    cuts: the paths that the line shards as wanted.
    num_matched: the number of paths that the pattern matches.
    """

    text: str
    dim: Dim
    cuts: frozenset[str]
    num_matched: int

    @property
    def merit(self) -> tuple[int, ...]:
        """A sort key, best first.

        The best line shards most leaves, has a plain dim, matches fewest paths and is
        short.
        """
        is_plain = isinstance(self.dim, int) and self.dim >= 0
        return -len(self.cuts), not is_plain, self.num_matched, len(self.text)


def write_tactics(matcher: PlanMatcher, steps: Sequence[CutStep]) -> tuple[Tactic, ...]:
    """The steps of a spelling as tactics, one per step.

    A general pattern may shard more leaves than its step, if the plan shards these,
    too.
    """
    matcher.score_list(())
    tactics: list[Tactic] = []
    for step in steps:
        is_leaf = step.entries[0].is_leaf
        tactics.append(_shard(matcher, step) if is_leaf else _cut(matcher, step))
        matcher.apply(step)
    return tuple(tactics)


def tactics_as_code(tactics: Sequence[Tactic]) -> str:
    """Python code of tactics, one per line, after `import meshwright as mw`."""
    return "\n".join(f"{as_code(tactic)}," for tactic in tactics)


# -- ops ------------------------------------------------------------------------------


def _cut(matcher: PlanMatcher, step: CutStep) -> CutOps:
    known = sites_of(matcher.found.graph)
    sites: dict[str, Where] = {}
    for entry in step.entries:
        assert not isinstance(entry.key, str)
        where = str(entry.where) if isinstance(entry.where, Sum) else entry.where
        sites[known.name(*entry.key)] = where
    return cut(sites, step.axis)


# -- leaves ---------------------------------------------------------------------------


def _shard(matcher: PlanMatcher, step: CutStep) -> Shard:
    """A `shard` tactic for the leaves of a step, with patterns that are general."""
    left: dict[str, int | Choice] = {}  # leaves to shard, each with its dim
    for entry in step.entries:
        assert not isinstance(entry.where, Sum), "inputs have no reduced dims"
        for path, node in matcher.leaves.items():
            if node.index in entry.nodes and without_indices(path) == entry.key:
                left[path] = entry.where
    patterns = list(_patterns(matcher, step.axis, left))
    chosen: dict[str, Dim] = {}
    while left:
        more = [p for p in patterns if p.text not in chosen and p.cuts & left.keys()]
        useful = [replace(p, cuts=p.cuts & left.keys()) for p in more]
        best = min(useful, key=lambda p: p.merit)
        chosen[best.text] = best.dim
        for path in best.cuts:
            del left[path]
    return shard(chosen, step.axis)


def _patterns(
    matcher: PlanMatcher, axis: str, wanted: Mapping[str, int | Choice]
) -> Iterator[_Pattern]:
    """All lines that shard a wanted leaf, and shard no leaf otherwise than the plan.

    wanted: for each leaf's path, the dim to shard.
    """
    families: dict[str, list[str]] = {}
    for path in matcher.leaves:
        families.setdefault(without_indices(path), []).append(path)
    from_back = [
        dim - len(matcher.work.value(matcher.leaves[path]).shape)
        for path, dim in wanted.items()
        if isinstance(dim, int)
    ]
    general = [FIRST_DIVISIBLE][: len(from_back)]
    dims = dict.fromkeys([*wanted.values(), *from_back, *general])
    effects = {
        (path, dim): _effect(matcher, axis, node, dim)
        for path, node in matcher.leaves.items()
        for dim in dims
    }
    for text in _texts(families, wanted):
        found = [
            path
            for family, paths in families.items()
            for path in (paths if matches(text, family) else ())
        ] or [text]
        for dim in dims:
            results = {path: effects[path, dim] for path in found}
            if "wrong" in results.values():
                continue
            right = {p for p, effect in results.items() if effect == "right"}
            cuts = {
                p
                for p in right & wanted.keys()
                if (wanted[p] is REPLICATED) == (dim is REPLICATED)
            }
            if cuts:
                yield _Pattern(text, dim, frozenset(cuts), len(found))


def _texts(
    families: Mapping[str, Sequence[str]], wanted: Mapping[str, int | Choice]
) -> Iterator[str]:
    """Globs that match wanted leaves: families of paths, their prefixes and suffixes.

    A family has paths that differ only in indices. If its members are sharded
    differently, their own paths are included.
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


def _effect(matcher: PlanMatcher, axis: str, node: Node, where: int | Choice) -> str:
    """The effect of sharding a leaf on `where`, compared with the plan.

    "right" if the plan does the same, "wrong" if it does not, "" if there is no effect.
    """
    planned = dict(matcher.planned_cuts(node)).get(axis)
    work = matcher.work
    if where is REPLICATED:
        return "right" if planned is None and not work.is_cut(node, axis) else "wrong"
    if isinstance(where, Choice):
        dim = next(iter(work.divisible_dims(node, axis)), None)
        if dim is None:
            return ""
    else:
        rank = len(work.value(node).shape)
        if not -rank <= where < rank:
            return "wrong"
        dim = where % rank
    return "right" if dim == planned else "wrong"
