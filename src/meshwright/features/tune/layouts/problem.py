"""The choice of layouts as a search problem.

A state assigns layouts to some sites: sets of values that get one layout each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from meshwright.features.tune.layouts.sites import Site, orders
from meshwright.features.tune.layouts.verdict import Question
from meshwright.program.ir import Program, Value


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """The layout of one site, and of the gradients of its values too if `with_twin`.

    site: name of the site. order: dims major to minor.
    """

    site: str
    order: tuple[int, ...]
    with_twin: bool = False

    def __str__(self) -> str:
        twin = "+gradient" if self.with_twin else ""
        return f"{self.site}{twin} {self.order}".replace(" (", "(").replace(", ", ",")


type State = tuple[LayoutChoice, ...]
"""Chosen layouts, sorted by site, at most one per site; others keep the default."""


@dataclass(frozen=True, eq=False)
class LayoutProblem:
    """The choice of layouts as states, actions and costs for the engines of `search`.

    An action chooses a layout for a site, or replaces the one that was chosen for it.

    sites: sites by name. cost_fn: cost of a state, from a compiler or predicted.
    begin: state in which the search starts.
    """

    sites: Mapping[str, Site]
    cost_fn: Callable[[State], float]
    begin: State = ()

    def start(self) -> State:
        return self.begin

    @cached_property
    def choices(self) -> Sequence[LayoutChoice]:
        """All layouts of all sites."""
        return [choice for site in self.sites.values() for choice in choices_of(site)]

    def actions(self, state: State) -> Sequence[LayoutChoice]:
        return [choice for choice in self.choices if choice not in state]

    def apply(self, state: State, action: LayoutChoice) -> State:
        others = (choice for choice in state if choice.site != action.site)
        return tuple(sorted((*others, action), key=lambda choice: choice.site))

    def cost(self, state: State) -> float:
        return self.cost_fn(state)

    def key(self, state: State) -> Hashable:
        return state


def choices_of(site: Site) -> tuple[LayoutChoice, ...]:
    """All layouts of a site, each without and with the same one for gradients."""
    twins = (False, True) if site.twins else (False,)
    return tuple(
        LayoutChoice(site.name, order, twin)
        for order, twin in itertools.product(orders(len(site.shape)), twins)
    )


def question_of(
    program: Program, sites: Mapping[str, Site], state: State, is_auto: bool
) -> Question:
    """The program with a state's layouts: formats of arguments, constraints on values.

    is_auto: whether the compiler chooses the layouts of other arguments and of results.
    """
    positions = {value: i for i, value in enumerate(program.inputs)}
    layouts: dict[Value, tuple[int, ...]] = {}
    for choice in state:
        site = sites[choice.site]
        twins = site.twins if choice.with_twin else ()
        layouts.update(dict.fromkeys((*site.values, *twins), choice.order))
    return Question(
        {v: order for v, order in layouts.items() if v not in positions},
        {positions[v]: order for v, order in layouts.items() if v in positions},
        is_auto,
    )
