"""Spaces and evaluations whose fronts are enumerated, and that fail in known ways."""

from __future__ import annotations

import itertools
import math
import os
import time
from typing import Any

from meshwright.search.trials import Choice, Goals, Range, Repeat, Space

SPACE = Space(
    {
        "kernel": Choice(3, 5, 7),
        "kind": Choice("plain", "fused", Space({"gate": Choice("relu", "swish")})),
        "widths": Repeat(Range(8, 32, step=8), 1, 2),
    },
    where=lambda c: c["kernel"] < 7 or max(c["widths"]) <= 16,
)
GOALS = Goals({"accuracy": "max", "time": "min"}, {"memory": 60})
REFERENCE = {"accuracy": 0.0, "time": 20.0}


def figures(candidate: dict[str, Any], fidelity: float = 1.0) -> dict[str, Any]:
    """Two objectives in conflict, and a constraint that excludes the largest.

    With less than a whole evaluation the accuracy is lower.
    """
    width, kernel = sum(candidate["widths"]), candidate["kernel"]
    bonus = {"plain": 0.0, "fused": 0.05}.get(str(candidate["kind"]), 0.08)
    accuracy = 1 - math.exp(-width * kernel / 60) + bonus * (kernel == 5)
    return {
        "accuracy": accuracy - 0.1 * (1 - fidelity),
        "time": width * kernel / 15 + 20 * bonus,
        "memory": width + 4 * len(candidate["widths"]),
    }


def all_candidates() -> list[dict[str, Any]]:
    """Every allowed candidate of `SPACE`."""
    kinds = ["plain", "fused", {"gate": "relu"}, {"gate": "swish"}]
    steps = (8, 16, 24, 32)
    widths = [[a] for a in steps] + [
        list(two) for two in itertools.product(steps, steps)
    ]
    made = itertools.product((3, 5, 7), kinds, widths)
    whole = [
        dict(zip(("kernel", "kind", "widths"), each, strict=True)) for each in made
    ]
    return [candidate for candidate in whole if not SPACE.broken(candidate)]


def faulty(candidate: dict[str, Any], fidelity: float = 1.0) -> dict[str, Any]:
    """Figures, or a fault of one kind per sum of widths."""
    kind = sum(candidate["widths"]) // 8 % 8
    if kind == 1:
        raise ValueError("out of luck\nand more")
    if kind == 2:
        return {**figures(candidate), "accuracy": math.nan}
    if kind == 3:
        return {"accuracy": 1.0}
    return figures(candidate)


def deadly(candidate: dict[str, Any]) -> dict[str, Any]:
    """Figures, or the end of the process, or a long sleep."""
    if candidate["number"] == 1:
        os.abort()
    if candidate["number"] == 2:
        time.sleep(60)
    return {"accuracy": candidate["number"], "time": candidate["number"], "memory": 0}
