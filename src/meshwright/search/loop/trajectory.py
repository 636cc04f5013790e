"""Actions in a row and the states between them, and small changes to them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from meshwright.search.loop.problem import Problem
from meshwright.search.loop.walk import Walker


@dataclass(frozen=True, slots=True)
class Trajectory[S, A]:
    """From `states[0]`, action `i` leads from state `i` to state `i + 1`."""

    states: tuple[S, ...]
    actions: tuple[A, ...]

    def before(self, index: int) -> Trajectory[S, A]:
        """Its first `index` actions."""
        return Trajectory(self.states[: index + 1], self.actions[:index])


def replay[S, A: Hashable](
    problem: Problem[S, A], begin: Trajectory[S, A], actions: Iterable[A]
) -> Trajectory[S, A]:
    """A trajectory continued by those actions that can be done when it is their turn."""
    states, done = list(begin.states), list(begin.actions)
    for action in actions:
        if action in problem.actions(states[-1]):
            states.append(problem.apply(states[-1], action))
            done.append(action)
    return Trajectory(tuple(states), tuple(done))


@dataclass(frozen=True, slots=True)
class Changer[S, A: Hashable]:
    """Makes trajectories out of others, valid ones: what cannot be done is left out."""

    walker: Walker[S, A]

    def change(self, old: Trajectory[S, A]) -> Trajectory[S, A]:
        """One action put in, taken out, exchanged or moved; now and then several."""
        new = self._change_once(old)
        while self.walker.rng.random() < _ONE_MORE:
            new = self._change_once(new)
        return new

    def cross(
        self, first: Trajectory[S, A], second: Trajectory[S, A]
    ) -> Trajectory[S, A]:
        """The beginning of one, then all of the other or its end."""
        rng = self.walker.rng
        begin = rng.randint(0, len(first.actions))
        rest = rng.randint(0, len(second.actions)) if rng.random() < 0.5 else 0
        return self._continue(first, begin, second.actions[rest:])

    def _change_once(self, old: Trajectory[S, A]) -> Trajectory[S, A]:
        rng, actions = self.walker.rng, old.actions
        index, kind = rng.randint(0, len(actions)), rng.randrange(4)
        if index == len(actions) or kind == 0:  # put in
            return self._insert(old, index, actions[index:])
        rest = actions[index + 1 :]
        if kind == 1:  # take out
            return self._continue(old, index, rest)
        if kind == 2:  # exchange
            return self._insert(old, index, rest)
        others = [*actions[:index], *rest]
        place = rng.randint(0, len(others))
        others.insert(place, actions[index])
        begin = min(place, index)
        return self._continue(old, begin, others[begin:])

    def _insert(
        self, old: Trajectory[S, A], index: int, rest: Iterable[A]
    ) -> Trajectory[S, A]:
        """An action drawn for state `index`, if it has one, then the rest."""
        options = self.walker.problem.actions(old.states[index])
        if not options:
            return self._continue(old, index, rest)
        action = self.walker.draw(old.states[index], options)
        return self._continue(old, index, (action, *rest))

    def _continue(
        self, old: Trajectory[S, A], index: int, rest: Iterable[A]
    ) -> Trajectory[S, A]:
        """The first `index` actions, then those of the rest that can be done."""
        new = replay(self.walker.problem, old.before(index), rest)
        return new.before(self.walker.longest)


_ONE_MORE = 0.25
"""How often a change is followed by another, so that no local optimum holds for ever."""
