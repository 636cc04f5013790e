"""Beam search: at each depth, only the states of lowest cost are continued."""

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

    Of all states at one depth (number of actions), the search keeps the `width` states
    of lowest cost and computes the costs of all their successors. When a search of one
    width has ended, it restarts with twice the width; costs that are known are not
    computed again. Once no state is dropped, every state has been seen.
    width: number of states that the first search keeps at each depth.
    slack: number of consecutive depths without a new lowest cost that ends the search
        of one width. It doubles with the width. Depths before the first feasible state
        do not count.
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
        """Search once with one width, depth by depth.

        Return whether every state was seen.
        """
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
