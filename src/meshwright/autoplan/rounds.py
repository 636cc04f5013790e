"""A search, and again with ever less kept for the backward pass where nothing fits."""

from __future__ import annotations

from meshwright.autoplan.keep import recompute_within
from meshwright.autoplan.search import Searcher
from meshwright.autoplan.space import Space
from meshwright.errors import MeshwrightError

_MOST = 4
"""Times that less is kept."""

_STRETCH = 1 / 32
"""Share of the memory that may be made again at once."""

_SPARE = 0.97
"""Share of the memory that a plan is aimed at; what is made again takes some as well."""


def search(searcher: Searcher, with_experts: bool) -> Searcher:
    """Run a search; the last one, if others had to follow. All share their candidates."""
    searcher.run(with_experts)
    first, last = searcher, searcher
    spared = 0.0
    for _ in range(_MOST):
        smallest = last.smallest()
        is_over = last.is_interrupted or last.clock() >= last.until
        if smallest is None or last.has_fitting or is_over:
            break
        mesh, num_bytes = smallest
        spared += num_bytes - _SPARE * last.limit
        last.on_progress(f"keeping {spared / 2**30:.1f} GiB less")
        space, proposal = first.space, first.own[mesh]
        try:
            tactic = recompute_within(
                first.priced[mesh], proposal.choices, space.stores, spared,
                _STRETCH * last.limit,
            )  # fmt: skip
            if tactic is None:
                break
            less = Space(space.original, space.machine, space.seed, (tactic,))
        except MeshwrightError:  # no value waits, or sites cannot be told apart
            break
        before = first.priced[mesh].model, proposal.choices
        last = Searcher(
            less, first.beside, (mesh,), first.limit, first.until, first.value_of,
            first.clock, first.on_progress, first.gather, first.candidates, before=before,
        )  # fmt: skip
        last.run(with_experts)
    return last
