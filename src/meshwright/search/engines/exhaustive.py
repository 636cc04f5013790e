"""Exhaustive search: an engine that visits every state of the problem once."""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

from meshwright.search.loop.engine import Exploration
from meshwright.search.loop.problem import Prior, Problem
from meshwright.search.loop.walk import order


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """Breadth-first search; complete if the number of states is finite."""

    prior_fn: Prior | None = None
    patience: None = None

    def explore[S, A: Hashable](self, problem: Problem[S, A]) -> Exploration[S, A]:
        start = problem.start()
        frontier: deque[tuple[S, tuple[A, ...]]] = deque([(start, ())])
        seen = {problem.key(start)}
        while frontier:
            state, path = frontier.popleft()
            for action in order(self.prior_fn, state, problem.actions(state)):
                after = problem.apply(state, action)
                key, done = problem.key(after), (*path, action)
                yield key, after, done
                if key not in seen:
                    seen.add(key)
                    frontier.append((after, done))
        return True
