"""Fitting a policy to lessons, with its margin chosen on projects left out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.learned.inline_policy import (
    InlinePolicy,
    policy_of,
)
from meshwright.features.policies.compiler.learned.lessons import InliningLessons
from meshwright.features.policies.trees.boosted_trees import fit, no_forest

_TREES = 60
_FOLDS = 12
_LARGEST = 200.0
"""Bytes to which what a call saves is clipped, so that no call outweighs hundreds."""

_MARGINS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_SHARES = (0.25, 0.5, 1.0)
"""Shares of the training projects at which the learning curve is taken."""


@dataclass(frozen=True, slots=True)
class TransferPoint:
    """One point of a learning curve: bytes saved on projects that were left out.

    projects, decisions: those that taught, of each policy at most.

    saved: share of text bytes, if flips of single decisions add up. possible: the same,
        of a policy that knows what each flip gains.
    """

    projects: int
    decisions: int
    saved: float
    possible: float


def fit_policy(
    lessons: Sequence[tuple[str, InliningLessons]], seed: int
) -> tuple[InlinePolicy, list[TransferPoint]]:
    """A policy from lessons by project, and its learning curve.

    The margin is the one that saves most on projects that were left out.
    """
    groups = _groups(lessons)
    projects = sorted(groups)
    if len(projects) < 2:
        raise PolicyError(
            f"the units that teach are of {len(projects)} project; wanted 2 or more, of"
            " which each is left out once to choose how sure a policy must be"
        )
    names = next(iter(groups.values())).names
    total = sum(each.text_bytes for each in groups.values())
    order = np.random.default_rng(seed).permutation(len(projects))
    folds = [order[k::_FOLDS] for k in range(min(_FOLDS, len(projects)))]
    possible = sum(float(_flip_gains(each).clip(0).sum()) for each in groups.values())
    curve: list[TransferPoint] = []
    margin = np.inf
    for share in _SHARES:
        gains, squares = np.zeros(len(_MARGINS)), np.zeros(len(_MARGINS))
        number, decisions = 0, 0
        for fold in folds:
            others = [i for i in order if i not in fold]
            taught = others[: max(1, round(share * len(others)))]
            members = [groups[projects[i]] for i in taught]
            number = max(number, len(members))
            decisions = max(decisions, sum(len(m.saved_bytes) for m in members))
            policy = _fitted(names, members, 0.0)
            for i in fold:
                taken = _gains_at_margins(policy, groups[projects[i]])
                gains += taken.sum(axis=1)
                squares += (taken**2).sum(axis=1)
        # A gain within two standard errors may be the luck of one of several margins.
        sure = gains - 2 * np.sqrt(squares)
        best = int(sure.argmax())
        saved = float(gains[best]) if sure[best] > 0 else 0.0
        margin = _MARGINS[best] if saved > 0 else np.inf
        curve.append(TransferPoint(number, decisions, saved / total, possible / total))
    return _fitted(names, list(groups.values()), float(margin)), curve


def _groups(
    lessons: Sequence[tuple[str, InliningLessons]],
) -> dict[str, InliningLessons]:
    """The lessons of each project as one, without units that teach nothing."""
    groups: dict[str, list[InliningLessons]] = {}
    for project, each in lessons:
        if len(each.saved_bytes):
            groups.setdefault(project, []).append(each)
    joined: dict[str, InliningLessons] = {}
    for project, members in groups.items():
        names = members[0].names
        if any(each.names != names for each in members):
            raise PolicyError(
                f"units of {project} have lessons of compilers with other features;"
                " give another folder for the policy, or remove this one"
            )
        joined[project] = InliningLessons(
            names,
            np.concatenate([each.features for each in members]),
            np.concatenate([each.saved_bytes for each in members]),
            np.concatenate([each.defaults for each in members]),
            sum(each.text_bytes for each in members),
        )
    return joined


def _flip_gains(lessons: InliningLessons) -> NDArray[np.float32]:
    """[N], bytes that the opposite of each default decision gains."""
    return np.where(lessons.defaults, -lessons.saved_bytes, lessons.saved_bytes)


def _gains_at_margins(
    policy: InlinePolicy, lessons: InliningLessons
) -> NDArray[np.float64]:
    """[M, N], bytes gained by each flip that a policy takes, at each of `_MARGINS`."""
    rows = lessons.features.astype(np.float64)
    hoped = np.array([policy.saved_bytes(row) for row in rows])
    hoped = np.where(lessons.defaults, -hoped, hoped)
    gains = _flip_gains(lessons)
    return np.stack([np.where(hoped > margin, gains, 0.0) for margin in _MARGINS])


def _fitted(
    names: Sequence[str], groups: Sequence[InliningLessons], margin: float
) -> InlinePolicy:
    """Trees over buckets of features, whose limits are quantiles of these lessons."""
    features = np.concatenate([each.features for each in groups])
    saved = np.concatenate([each.saved_bytes for each in groups])
    shares = np.linspace(0, 1, 255)
    edges = [
        np.unique(np.quantile(column, shares, method="lower")).astype(np.float64)
        for column in features.T
    ]
    buckets = np.stack(
        [
            np.searchsorted(limits, column, side="left").astype(np.uint8)
            for limits, column in zip(edges, features.T, strict=True)
        ],
        axis=1,
    )
    forest = no_forest(_TREES, len(names), len(saved))
    forest.targets[:] = saved.clip(-_LARGEST, _LARGEST)
    fit(forest, buckets, len(saved))
    trees = (forest.features, forest.limits, forest.values, float(forest.base[0]))
    return policy_of(names, edges, trees, margin)
