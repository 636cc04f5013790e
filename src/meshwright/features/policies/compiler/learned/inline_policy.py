"""A learned inlining policy: trees that expect how many bytes inlining a call saves."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.channel import Observation

_FORMAT = "meshwright inline policy, version 1"
_ARRAYS = ("format", "names", "questions", "limits", "values", "base", "margin")


@dataclass(frozen=True, slots=True, eq=False)
class InlinePolicy:
    """Trees of equal depth, whose values add up; letters: T trees, L leaves of each.

    names: the features, in the order of their numbers. questions, limits: [T, L], of each
        inner node, in the order of a heap: is this feature above this limit?
    values: [T, L], bytes that each leaf adds to `base`.
    margin: bytes; the compiler's own decision stands unless more is expected.
    """

    names: tuple[str, ...]
    questions: NDArray[np.int64]
    limits: NDArray[np.float64]
    values: NDArray[np.float32]
    base: float
    margin: float
    kind: ClassVar[str] = "inline"

    def __post_init__(self) -> None:
        if not (self.questions.shape == self.limits.shape == self.values.shape):
            raise PolicyError("the arrays of an inlining policy differ in shape")
        if self.questions.ndim != 2 or self.questions.shape[1] & -2 != (
            1 << self.questions.shape[1].bit_length() - 1
        ):
            raise PolicyError(
                f"the trees of an inlining policy have the shape {self.questions.shape};"
                " wanted trees x leaves, a power of 2"
            )
        numbers = self.questions
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(self.names):
            raise PolicyError("an inlining policy asks for a feature without a name")

    def __call__(self, call: Observation) -> int:
        """Whether to inline a call, 0 or 1."""
        try:
            features = np.concatenate([call.features[name] for name in self.names])
        except KeyError as missing:
            raise PolicyError(
                f"this compiler has no feature {missing}, which the policy was trained"
                " with; train a policy with this compiler"
            ) from None
        saved = self.saved_bytes(features)
        if abs(saved) <= self.margin:
            return call.default or 0
        return int(saved > 0)

    def saved_bytes(self, features: NDArray[Any]) -> float:
        """Bytes that inlining is expected to save, from one call's features."""
        trees, leaves = self.questions.shape
        # All questions at once cost less than those of each level in turn.
        above = (features.take(self.questions) > self.limits).ravel()
        starts = np.arange(0, trees * leaves, leaves)
        at = starts + 1
        for _ in range(leaves.bit_length() - 2):
            at = 2 * at - starts + above[at]
        at = 2 * at - starts + above[at] - leaves
        return self.base + float(self.values.take(at).sum())

    def save(self, path: Path) -> None:
        """Write the policy to a file."""
        with path.open("wb") as file:
            np.savez_compressed(
                file,
                format=np.array(_FORMAT),
                names=np.array(self.names),
                questions=self.questions.astype(np.uint8),
                limits=self.limits,
                values=self.values,
                base=np.array(self.base),
                margin=np.array(self.margin),
            )


def read_inline_policy(path: Path) -> InlinePolicy:
    """The policy of a file, or of a folder that `policies train inline` wrote."""
    file = path / "policy.npz" if path.is_dir() else path
    advice = "; make one by `meshwright policies train inline`"
    if not file.is_file():
        raise PolicyError(f"{path} has no inlining policy{advice}")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            loaded = [arrays[name] for name in _ARRAYS]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as fault:
        raise PolicyError(f"{file} is no inlining policy ({fault}){advice}") from None
    kind, names, questions, limits, values, base, margin = loaded
    if str(kind) != _FORMAT:
        raise PolicyError(f"{file} is of the format {kind}; wanted {_FORMAT}{advice}")
    return InlinePolicy(
        tuple(str(name) for name in names),
        questions.astype(np.int64),
        limits,
        values,
        float(base),
        float(margin),
    )


def policy_of(
    names: Sequence[str],
    edges: Sequence[NDArray[np.float64]],
    trees: tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32], float],
    margin: float,
) -> InlinePolicy:
    """A policy from trees over buckets of features.

    edges: of each feature, the greatest value of each bucket but the last.
    trees: number of the feature and greatest bucket of each question, values, base.
    """
    questions, buckets, values, base = trees
    limits = np.full(questions.shape, np.inf)
    for place in np.ndindex(questions.shape):
        known = edges[int(questions[place])]
        if buckets[place] < len(known):
            limits[place] = known[buckets[place]]
    return InlinePolicy(
        tuple(names), questions.astype(np.int64), limits, values, base, margin
    )
