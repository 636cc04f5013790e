"""Beam search: the best few states at each depth."""

import math
from collections.abc import Hashable
from dataclasses import dataclass

from meshwright.errors import SearchError
from meshwright.search.loop.engine import Exploration
from meshwright.search.loop.problem import Prior, Problem
from meshwright.search.loop.walk import order


@dataclass(frozen=True, slots=True)
class Beam:
    """Beam search with a width that doubles until no state is dropped.

    A level consists of the `width` best states of one depth; all their successors are
    priced. When a search of one width has ended, it restarts with twice the width;
    states that were priced before cost nothing. Once no state is dropped, every state
    has been seen.

    slack: number of consecutive levels without a new best state that ends a width;
        doubles with the width. Levels before the first feasible state do not count.
    """

    width: int = 8
    slack: int = 4
    prior_fn: Prior | None = None
    patience: None = None

    def __post_init__(self) -> None:
        if self.width < 1:
            raise SearchError(f"a beam of width {self.width} keeps no state")

    def explore[S, A: Hashable](self, problem: Problem[S, A]) -> Exploration[S, A]:
        width, slack = self.width, self.slack
        while not (yield from self._sweep(problem, width, slack)):
            width, slack = 2 * width, 2 * slack
        return True

    def _sweep[S, A: Hashable](
        self, problem: Problem[S, A], width: int, slack: int
    ) -> Exploration[S, A]:
        """One search, level by level; returns whether every state was seen."""
        start = problem.start()
        seen = {problem.key(start)}
        beam: list[tuple[float, S, tuple[A, ...]]] = [(math.inf, start, ())]
        best, levels, is_whole = math.inf, 0, True
        while beam and levels < slack:
            level: list[tuple[float, S, tuple[A, ...]]] = []
            for _, state, path in beam:
                for action in order(self.prior_fn, state, problem.actions(state)):
                    after = problem.apply(state, action)
                    key, done = problem.key(after), (*path, action)
                    cost = yield key, after, done
                    if key not in seen:
                        seen.add(key)
                        level.append((cost, after, done))
            level.sort(key=lambda entry: entry[0])
            is_whole = is_whole and len(level) <= width
            beam = level[:width]
            if beam and beam[0][0] < best:
                best, levels = beam[0][0], 0
            elif best < math.inf:
                levels += 1
        return is_whole and not beam
