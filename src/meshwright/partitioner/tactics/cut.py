"""The `cut` tactic, which shards ops that are named by their place in the source."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.sites import sites_of
from meshwright.partitioner.structure.workspace import Sum, Workspace
from meshwright.partitioner.tactics.primitives import Choice, show_dim
from meshwright.partitioner.tactics.tactic import TacticKind, as_code

Where = int | str | Choice
"""What to shard of an op: a dim of its first result, or a dim that it sums over.

The first is a number, the second "sum" or "sum 1". `REPLICATED` forbids sharding.
"""

_SUM = re.compile(r"sum(?: (\d+))?")


@dataclass(frozen=True, repr=False)
class CutOps:
    """Shard all ops of given places in the source along one axis, then propagate.

    before: y = x @ w, unsharded        after `{"mlp.py:7 dot_general": 1}`: its columns
    """

    sites: tuple[tuple[str, Where], ...]
    axis: str
    kind = TacticKind.PIN
    rewrite = None

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.axis,)

    def apply(self, work: Workspace) -> None:
        """Block ops that must stay unsharded, then shard all others together."""
        sites = sites_of(work.graph)
        seeds: list[tuple[str, Node, int | Sum]] = []
        for site, where in self.sites:
            nodes = sites.find(site)
            if where is Choice.REPLICATED:
                work.block([(site, node) for node in nodes], [self.axis])
                continue
            seeds += [(site, node, _seed(work, site, node, where)) for node in nodes]
        work.cut(seeds, self.axis, str(self))

    def __str__(self) -> str:
        sites = ", ".join(f"{site!r}: {show_dim(w)}" for site, w in self.sites)
        return f"cut({{{sites}}}, axis={self.axis!r})"

    def __repr__(self) -> str:
        return as_code(self)


def cut(sites: Mapping[str, Where], axis: str) -> CutOps:
    """Shard ops: `cut({"model.py:96 dot_general f32[16,2048,24,96]": 2}, "model")`.

    sites: from places to what to shard there. A place is `file:line kind`, as the plan
        prints it; the last components of the path suffice. If a line has several ops of
        a kind, the type of the first result selects one. If such ops have different
        neighbours, `#1`, `#2` and so on at the end selects. All ops of a place, such as
        those of all layers, are sharded together. What to shard is a dim of the first
        result (negative counts from the back), "sum" or "sum 1" for the first or second
        dim that the op sums over, or `REPLICATED`: the op must stay unsharded.
    When the tactic is applied, it raises `TacticError` for a place that names no ops or
    is ambiguous and for a dim out of range, and `MeshError` for an axis that is not in
    the mesh.
    """
    if not isinstance(sites, Mapping):
        raise TacticError(f"cut wants a mapping from places to dims, got {sites!r}")
    for site, where in sites.items():
        is_sum = isinstance(where, str) and _SUM.fullmatch(where)
        is_dim = isinstance(where, int) and not isinstance(where, bool)
        if not (is_sum or is_dim or where is Choice.REPLICATED):
            raise TacticError(
                f"what to cut of {site!r} is {where!r}; wanted an int, 'sum', 'sum 1' "
                "and so on, or REPLICATED"
            )
    return CutOps(tuple(sites.items()), axis)


def _seed(work: Workspace, site: str, node: Node, where: Where) -> int | Sum:
    """The dim or `Sum` of one op to shard, or `TacticError` if the op lacks it."""
    if isinstance(where, str):
        read = _SUM.fullmatch(where)
        place = Sum(int(read[1] or 0) if read else 0)
        sums = work.sums(node)
        if place.index >= len(sums):
            raise TacticError(
                f"{site} sums over {len(sums)} dims; there is no {where!r}"
            )
        return place
    assert isinstance(where, int)
    if not node.outs:
        raise TacticError(f"{site} makes nothing that could be cut")
    rank = len(work.value(node).shape)
    if not -rank <= where < rank:
        raise TacticError(
            f"dim {where} is out of range for {site}, which makes {work.value(node)} "
            f"with {rank} dims"
        )
    return where % rank
