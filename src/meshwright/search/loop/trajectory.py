"""Trajectories: sequences of actions with the states between them, and their mutation."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from meshwright.search.loop.problem import Problem
from meshwright.search.loop.walk import Walker


@dataclass(frozen=True, slots=True)
class Trajectory[S, A]:
    """A sequence of actions, where action `i` leads from state `i` to state `i + 1`."""

    states: tuple[S, ...]
    actions: tuple[A, ...]

    def before(self, index: int) -> Trajectory[S, A]:
        """The trajectory of the first `index` actions."""
        return Trajectory(self.states[: index + 1], self.actions[:index])


def replay[S, A: Hashable](
    problem: Problem[S, A], begin: Trajectory[S, A], actions: Iterable[A]
) -> Trajectory[S, A]:
    """A trajectory continued by a list of actions, without those that are impossible."""
    states, done = list(begin.states), list(begin.actions)
    for action in actions:
        if action in problem.actions(states[-1]):
            states.append(problem.apply(states[-1], action))
            done.append(action)
    return Trajectory(tuple(states), tuple(done))


@dataclass(frozen=True, slots=True)
class Mutator[S, A: Hashable]:
    """Mutation and crossover of trajectories; impossible actions are left out."""

    walker: Walker[S, A]

    def mutate(self, old: Trajectory[S, A]) -> Trajectory[S, A]:
        """A mutation: one action inserted, removed, replaced or moved; at times several."""
        new = self._mutate_once(old)
        while self.walker.rng.random() < _ONE_MORE:
            new = self._mutate_once(new)
        return new

    def cross(
        self, first: Trajectory[S, A], second: Trajectory[S, A]
    ) -> Trajectory[S, A]:
        """Crossover: a prefix of the first, then all of the second or a suffix of it."""
        rng = self.walker.rng
        begin = rng.randint(0, len(first.actions))
        rest = rng.randint(0, len(second.actions)) if rng.random() < 0.5 else 0
        return self._continue(first, begin, second.actions[rest:])

    def _mutate_once(self, old: Trajectory[S, A]) -> Trajectory[S, A]:
        rng, actions = self.walker.rng, old.actions
        index, kind = rng.randint(0, len(actions)), rng.randrange(4)
        if index == len(actions) or kind == 0:  # insert
            return self._insert(old, index, actions[index:])
        rest = actions[index + 1 :]
        if kind == 1:  # remove
            return self._continue(old, index, rest)
        if kind == 2:  # replace
            return self._insert(old, index, rest)
        others = [*actions[:index], *rest]
        place = rng.randint(0, len(others))
        others.insert(place, actions[index])
        begin = min(place, index)
        return self._continue(old, begin, others[begin:])

    def _insert(
        self, old: Trajectory[S, A], index: int, rest: Iterable[A]
    ) -> Trajectory[S, A]:
        """A trajectory with a random action inserted at `index`, if any, then the rest."""
        options = self.walker.problem.actions(old.states[index])
        if not options:
            return self._continue(old, index, rest)
        action = self.walker.draw(old.states[index], options)
        return self._continue(old, index, (action, *rest))

    def _continue(
        self, old: Trajectory[S, A], index: int, rest: Iterable[A]
    ) -> Trajectory[S, A]:
        """A trajectory of the first `index` actions, then the possible ones of the rest."""
        new = replay(self.walker.problem, old.before(index), rest)
        return new.before(self.walker.longest)


_ONE_MORE = 0.25
"""Probability of a further mutation, so that every local optimum can be left."""
