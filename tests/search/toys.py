"""Small problems of different shape whose best state is known or enumerated."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from meshwright.search import Problem


@dataclass(frozen=True)
class Subset:
    """Choose items one by one; each has a weight, and pairs attract or repel.

    A pseudo-boolean function. Every order of choosing leads to the same state.
    """

    size: int
    seed: int

    def start(self) -> frozenset[int]:
        return frozenset()

    def actions(self, state: frozenset[int]) -> Sequence[int]:
        return [i for i in range(self.size) if i not in state]

    def apply(self, state: frozenset[int], action: int) -> frozenset[int]:
        return state | {action}

    def cost(self, state: frozenset[int]) -> float:
        weights, pairs = interactions(self.size, self.seed)
        chosen = sorted(state)
        alone = sum(weights[i] for i in chosen)
        return alone + sum(pairs[pair] for pair in itertools.combinations(chosen, 2))

    def key(self, state: frozenset[int]) -> Hashable:
        return state


_INTERACTIONS: dict[
    tuple[int, int], tuple[list[float], dict[tuple[int, int], float]]
] = {}


def interactions(
    size: int, seed: int
) -> tuple[list[float], dict[tuple[int, int], float]]:
    if (size, seed) not in _INTERACTIONS:
        rng = random.Random(seed)
        weights = [rng.uniform(-1, 1) for _ in range(size)]
        pairs = {
            pair: rng.uniform(-1, 1) * 2 / math.sqrt(size)
            for pair in itertools.combinations(range(size), 2)
        }
        _INTERACTIONS[size, seed] = weights, pairs
    return _INTERACTIONS[size, seed]


@dataclass(frozen=True)
class Grid:
    """Steps right and down over a field with tolls; only the far corner is usable."""

    size: int
    seed: int

    def start(self) -> tuple[int, int, float]:
        return 0, 0, 0.0

    def actions(self, state: tuple[int, int, float]) -> Sequence[str]:
        row, column, _ = state
        return ["down"] * (row < self.size) + ["right"] * (column < self.size)

    def apply(
        self, state: tuple[int, int, float], action: str
    ) -> tuple[int, int, float]:
        row, column, paid = state
        row, column = (row + 1, column) if action == "down" else (row, column + 1)
        return row, column, paid + self.toll(row, column)

    def toll(self, row: int, column: int) -> float:
        return (row * 7919 + column * 104729 + self.seed * 31) ** 2 % 97

    def cost(self, state: tuple[int, int, float]) -> float:
        row, column, paid = state
        return paid if row == column == self.size else math.inf

    def key(self, state: tuple[int, int, float]) -> Hashable:
        return state


@dataclass(frozen=True)
class Order:
    """Put jobs one after another on one machine: weighted tardiness.

    What counts of a state is which jobs are done and what was paid for them: many orders
    are one state. Jobs that are left pay as if they never ended.
    """

    size: int
    seed: int
    jobs: tuple[tuple[int, int, int], ...] = field(init=False)
    """Duration, due, weight."""

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        due = 4 * self.size
        jobs = tuple(
            (rng.randint(1, 9), rng.randint(1, due), rng.randint(1, 9))
            for _ in range(self.size)
        )
        object.__setattr__(self, "jobs", jobs)

    def start(self) -> tuple[frozenset[int], int]:
        return frozenset(), 0

    def actions(self, state: tuple[frozenset[int], int]) -> Sequence[int]:
        return [i for i in range(self.size) if i not in state[0]]

    def apply(
        self, state: tuple[frozenset[int], int], action: int
    ) -> tuple[frozenset[int], int]:
        done = state[0] | {action}
        end = sum(self.jobs[i][0] for i in done)
        _, due, weight = self.jobs[action]
        return done, state[1] + weight * max(end - due, 0)

    def cost(self, state: tuple[frozenset[int], int]) -> float:
        return state[1] + 500 * (self.size - len(state[0]))

    def key(self, state: tuple[frozenset[int], int]) -> Hashable:
        return state


@dataclass(frozen=True)
class Trap:
    """Bits set one by one in blocks: each costs, and all of every other block pay.

    Goldberg's deceptive trap. Whoever follows the slope stays at the start; whoever sets
    all pays for the blocks that are no traps.
    """

    blocks: int
    length: int = 3

    def start(self) -> tuple[int, ...]:
        return ()

    def actions(self, state: tuple[int, ...]) -> Sequence[int]:
        return [i for i in range(self.blocks * self.length) if i not in state]

    def apply(self, state: tuple[int, ...], action: int) -> tuple[int, ...]:
        return tuple(sorted((*state, action)))

    def cost(self, state: tuple[int, ...]) -> float:
        ones = [0] * self.blocks
        for bit in state:
            ones[bit // self.length] += 1
        prizes = ones[::2].count(self.length) * (2 * self.length + 1)
        return sum(ones) - prizes

    def key(self, state: tuple[int, ...]) -> Hashable:
        return state


@dataclass(frozen=True)
class Ring:
    """A walk around a ring: states repeat, and the best one is opposite to the start."""

    size: int

    def start(self) -> int:
        return 0

    def actions(self, state: int) -> Sequence[int]:
        return (1, -1)

    def apply(self, state: int, action: int) -> int:
        return (state + action) % self.size

    def cost(self, state: int) -> float:
        return abs(state - self.size // 2) if state % 3 != 1 else math.inf

    def key(self, state: int) -> Hashable:
        return state


@dataclass(frozen=True)
class Table:
    """A problem as a table: for each state its cost and its successors."""

    costs: tuple[float, ...]
    steps: tuple[tuple[int, ...], ...]

    def start(self) -> int:
        return 0

    def actions(self, state: int) -> Sequence[int]:
        return range(len(self.steps[state]))

    def apply(self, state: int, action: int) -> int:
        return self.steps[state][action]

    def cost(self, state: int) -> float:
        return self.costs[state]

    def key(self, state: int) -> Hashable:
        return state


SMALL: dict[str, Callable[[], Problem]] = {
    "subset": lambda: Subset(7, seed=1),
    "grid": lambda: Grid(3, seed=2),
    "order": lambda: Order(5, seed=3),
    "trap": lambda: Trap(2),
    "ring": lambda: Ring(12),
}


@dataclass
class Watched:
    """A problem that counts its calls, and reports each one before it is made."""

    problem: Problem
    on_cost: Callable[[int], None] = lambda number: None
    on_apply: Callable[[int], None] = lambda number: None
    num_costs: int = 0
    num_applied: int = 0

    def start(self) -> object:
        return self.problem.start()

    def actions(self, state: object) -> Sequence[Hashable]:
        return self.problem.actions(state)

    def apply(self, state: object, action: Hashable) -> object:
        self.num_applied += 1
        self.on_apply(self.num_applied)
        return self.problem.apply(state, action)

    def cost(self, state: object) -> float:
        self.num_costs += 1
        self.on_cost(self.num_costs)
        return self.problem.cost(state)

    def key(self, state: object) -> Hashable:
        return self.problem.key(state)


@dataclass
class Clock:
    """A clock whose seconds pass only by explicit calls."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def all_states(problem: Problem) -> Iterator[object]:
    """Every reachable state, by plain graph traversal."""
    todo, seen = [problem.start()], {problem.key(problem.start())}
    while todo:
        state = todo.pop()
        yield state
        for action in problem.actions(state):
            after = problem.apply(state, action)
            if problem.key(after) not in seen:
                seen.add(problem.key(after))
                todo.append(after)


def lowest_cost(problem: Problem) -> float:
    """Lowest cost over all states."""
    return min(problem.cost(state) for state in all_states(problem))
