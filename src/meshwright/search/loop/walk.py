"""Random walks through a problem, and mutation and crossover of trajectories."""

import math
import random
from collections.abc import Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass

from meshwright.search.loop.engine import Candidate
from meshwright.search.loop.problem import Prior, Problem


def order[A](
    prior_fn: Prior | None, state: object, actions: Sequence[A]
) -> Sequence[A]:
    """The actions by falling weight of the prior.

    Actions of equal weight keep their order.
    """
    if prior_fn is None:
        return actions
    weights = prior_fn(state, actions)
    ranked = sorted(range(len(actions)), key=lambda i: -weights[i])
    return [actions[i] for i in ranked]


class Merits[A: Hashable]:
    """For each action, the mean reward of all trajectories that contain it: its merit.

    If the order of decisions matters little, the merit of an action in one state is a
    good estimate of it in most other states (move averages: Finnsson and Bjornsson,
    AAAI 2008).
    """

    def __init__(self) -> None:
        self._sums: dict[A, tuple[int, float]] = {}

    def learn(self, actions: Iterable[A], reward: float) -> None:
        sums = self._sums
        for action in actions:
            count, total = sums.get(action, (0, 0.0))
            sums[action] = count + 1, total + reward

    def of(self, action: A) -> float:
        """Mean reward of an action; infinite if it was never taken."""
        sums = self._sums.get(action)
        return math.inf if sums is None else sums[1] / sums[0]


_EVEN = 0.1
"""Probability that a random walk, or a single random draw, ignores the prior."""


@dataclass(frozen=True, slots=True)
class Walker[S, A: Hashable]:
    """Random walks through a problem, of at most `longest` actions.

    For each step up to `num_draws` actions are drawn with the weights of the prior, and
    the action of largest merit (see `Merits`) is taken. A tenth of the walks ignores
    the prior, so that every action can be drawn.
    """

    problem: Problem[S, A]
    rng: random.Random
    prior_fn: Prior | None
    longest: int
    merits: Merits[A] | None = None
    num_draws: int = 1

    def draw(self, state: S, actions: Sequence[A]) -> A:
        """A random action of a state, drawn by prior weight and by merit."""
        return self._draw(state, actions, self._maybe_prior())

    def walk(self, states: list[S], actions: list[A], length: int) -> bool:
        """Append up to `length` random steps to `states` and `actions`, in place.

        Returns False if the walk ended early, in a state without actions.
        """
        problem, prior_fn = self.problem, self._maybe_prior()
        state = states[-1]
        for _ in range(length):
            options = problem.actions(state)
            if not options:
                return False
            action = self._draw(state, options, prior_fn)
            state = problem.apply(state, action)
            states.append(state)
            actions.append(action)
        return True

    def _maybe_prior(self) -> Prior | None:
        """The prior for the next draw or walk; `None` if all actions get equal weight.

        The prior is left out with a probability of 0.1.
        """
        is_even = self.prior_fn is None or self.rng.random() < _EVEN
        return None if is_even else self.prior_fn

    def _draw(self, state: S, actions: Sequence[A], prior_fn: Prior | None) -> A:
        merits, rng, size = self.merits, self.rng.random, len(actions)
        count = 1 if merits is None else 1 + int(rng() * self.num_draws)
        weights = None if prior_fn is None else prior_fn(state, actions)
        if weights is not None and sum(weights) > 0:
            drawn = self.rng.choices(actions, weights, k=count)
        else:
            drawn = [actions[int(rng() * size)] for _ in range(count)]
        return drawn[0] if merits is None else max(drawn, key=merits.of)

    def roll_out(
        self, states: list[S], actions: list[A]
    ) -> Generator[Candidate[S, A], float, float]:
        """Extend a trajectory by a random walk, in place; return its last state's cost.

        While that state is infeasible the walk continues, each time by twice as many
        actions. So it finds feasible states whether they need many decisions or few.
        """
        problem, begin = self.problem, len(actions)
        # Log-uniform: lengths of 0, 1 to 2, 3 to 6, 7 to 14 are equally likely.
        length = int((self.longest + 2) ** self.rng.random()) - 1
        while True:
            goes_on = self.walk(states, actions, length)
            cost = yield problem.key(states[-1]), states[-1], actions
            walked = len(actions) - begin
            if cost < math.inf or not goes_on or walked >= self.longest:
                return cost
            length = min(max(walked, 1), self.longest - walked)


@dataclass(frozen=True, slots=True)
class Trajectory[S, A]:
    """A path through a problem; action `i` leads from state `i` to state `i + 1`."""

    states: tuple[S, ...]
    actions: tuple[A, ...]


_ONE_MORE = 0.25
"""Probability of one more change in a mutation.

Lets a search leave any local optimum.
"""


def mutate[S, A: Hashable](
    walker: Walker[S, A], old: Trajectory[S, A]
) -> Trajectory[S, A]:
    """A trajectory changed at random.

    One or more actions are inserted, removed, replaced or moved.
    """
    new = _mutate_once(walker, old)
    while walker.rng.random() < _ONE_MORE:
        new = _mutate_once(walker, new)
    return new


def cross[S, A: Hashable](
    walker: Walker[S, A], first: Trajectory[S, A], second: Trajectory[S, A]
) -> Trajectory[S, A]:
    """Crossover: the first actions of one trajectory, then actions of another.

    The second part is all of the other trajectory's actions, or the last ones of them.
    """
    rng = walker.rng
    begin = rng.randint(0, len(first.actions))
    rest = rng.randint(0, len(second.actions)) if rng.random() < 0.5 else 0
    return _continue(walker, first, begin, second.actions[rest:])


def _mutate_once[S, A: Hashable](
    walker: Walker[S, A], old: Trajectory[S, A]
) -> Trajectory[S, A]:
    rng, actions = walker.rng, old.actions
    index, kind = rng.randint(0, len(actions)), rng.randrange(4)
    rest = actions[index + 1 :]
    if index == len(actions) or kind == 0:  # insert
        return _insert(walker, old, index, actions[index:])
    if kind == 1:  # remove
        return _continue(walker, old, index, rest)
    if kind == 2:  # replace
        return _insert(walker, old, index, rest)
    others = [*actions[:index], *rest]
    place = rng.randint(0, len(others))
    others.insert(place, actions[index])
    begin = min(place, index)
    return _continue(walker, old, begin, others[begin:])


def _insert[S, A: Hashable](
    walker: Walker[S, A], old: Trajectory[S, A], index: int, rest: Iterable[A]
) -> Trajectory[S, A]:
    """The first `index` actions of a trajectory, a random action, then `rest`."""
    options = walker.problem.actions(old.states[index])
    if not options:
        return _continue(walker, old, index, rest)
    action = walker.draw(old.states[index], options)
    return _continue(walker, old, index, (action, *rest))


def _continue[S, A: Hashable](
    walker: Walker[S, A], old: Trajectory[S, A], index: int, rest: Iterable[A]
) -> Trajectory[S, A]:
    """The first `index` actions of a trajectory, then `rest`.

    Actions in `rest` that are impossible are left out.
    """
    states, done = list(old.states[: index + 1]), list(old.actions[:index])
    for action in rest:
        if action in walker.problem.actions(states[-1]):
            states.append(walker.problem.apply(states[-1], action))
            done.append(action)
    longest = walker.longest
    return Trajectory(tuple(states[: longest + 1]), tuple(done[:longest]))
