"""Nodes and edges of a search graph, with their visit statistics."""

from __future__ import annotations

import math
from enum import Enum


class Stop(Enum):
    """An option of every state in addition to its actions: to end the trajectory there."""

    HERE = "here"


class Node[S, A]:
    """A state, and the statistics of all trajectories through it."""

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
        """Options not tried yet, the next one last; `None` before the first visit."""
        self.edges: list[Edge[S, A]] = []
        self.visits = 0
        self.total = 0.0
        self.best = math.inf
        self.is_priced = False
        self.is_solved = False
        self.serial = 0
        """Number of the last trajectory that came through."""


class Edge[S, A]:
    """All actions of a state that lead to one child; `action` is the first of them."""

    __slots__ = ("action", "child", "visits")

    def __init__(self, action: A, child: Node[S, A]) -> None:
        self.action = action
        self.child = child
        self.visits = 0
