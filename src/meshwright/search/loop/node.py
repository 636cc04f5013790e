"""States of a search graph and the ways between them, with what was learned of them."""

from __future__ import annotations

import math
from enum import Enum


class Stop(Enum):
    """What can be done in every state beside its actions."""

    HERE = "here"


class Node[S, A]:
    """A state, and what was learned on all ways to it."""

    __slots__ = (
        "best",
        "edges",
        "is_priced",
        "is_solved",
        "serial",
        "state",
        "total",
        "untried",
        "visits",
    )

    def __init__(self, state: S) -> None:
        self.state = state
        self.untried: list[A | Stop] | None = None
        """The next one last; `None` before anybody looked."""
        self.edges: list[Edge[S, A]] = []
        self.visits = 0
        self.total = 0.0
        self.best = math.inf
        self.is_priced = False
        self.is_solved = False
        self.serial = 0
        """The last trajectory that came through."""


class Edge[S, A]:
    """All actions of a state that lead to one other; `action` is the first of them."""

    __slots__ = ("action", "child", "visits")

    def __init__(self, action: A, child: Node[S, A]) -> None:
        self.action = action
        self.child = child
        self.visits = 0
