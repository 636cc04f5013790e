"""Which live range loses its register: LLVM's rule, with learned corrections.

Letters: K candidates, which are physical registers that may be taken.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.allocation.correction import PowerCorrection
from meshwright.features.policies.compiler.channel import Observation

_SELF = 32
"""The slot of the live range that asks; the slots before it are physical registers."""

_SELVES = np.array([_SELF])

_SCALED = (
    "use_def_density",
    "nr_defs_and_uses",
    "weighed_reads_by_max",
    "weighed_writes_by_max",
    "weighed_read_writes_by_max",
    "weighed_indvars_by_max",
    "hint_weights_by_max",
    "start_bb_freq_by_max",
    "end_bb_freq_by_max",
    "hottest_bb_freq_by_max",
    "liverange_size",
)
"""Features of a candidate, each divided by its largest value among all.

The first one is its spill weight."""

_COUNTED = {
    "nr_broken_hints": 20.0,
    "nr_rematerializable": 1.0,
    "is_hint": 1.0,
    "is_local": 1.0,
}
"""Features of a candidate, and by what they are multiplied."""

_USED = {"mask", "nr_urgent", "max_stage", "progress", *_SCALED, *_COUNTED}

_ASKS = 4
"""Features of the range that asks alone, which shift where it takes a register."""

INPUTS = len(_SCALED) + len(_COUNTED) + 1 + _ASKS
"""Inputs of the correction of one live range's weight."""

_BROKEN, _URGENT = 20.0, 1000.0
"""Weights by which broken hints and cascades outweigh the logarithm of any density."""

_LEAST, _ENDLESS = 1e-6, 1e4
"""Bounds of spill weights, of which the largest finite one is 1."""

_OFFSET = np.float32(0.01)
"""Added to features before their logarithm is taken, so that 0 has one."""


@dataclass(frozen=True, slots=True, eq=False)
class EvictionPolicy:
    """Chooses the register that a live range takes from others, or that it takes none.

    LLVM takes the register whose live ranges have the least spill weight, if that is less
    than the weight of the one that asks. A correction is added to the logarithm of each
    weight, that of the range that asks included.
    """

    correction: PowerCorrection
    kind: ClassVar[str] = "evict"

    def __call__(self, call: Observation) -> int:
        """The slot of the register to take; 32 to take none."""
        features = call.features
        if not features.keys() >= _USED:
            missing = min(_USED - features.keys())
            raise PolicyError(
                f"this compiler has no feature {missing!r}, which a policy of eviction"
                " reads; wanted clang 22"
            )
        mask = features["mask"]
        slots = mask[:_SELF].nonzero()[0]
        weights = spill_weights(call)
        rows = np.concatenate((slots, _SELVES))
        logs = np.log(np.minimum(np.maximum(weights[rows], _LEAST), _ENDLESS))
        if not mask[_SELF]:
            logs[-1] = np.log(_ENDLESS)
        corrected = logs + self.correction(inputs(call, rows, weights))[:, 0]
        others = corrected[:-1]
        ahead = (corrected[-1] - others).tolist()
        keys = (
            others
            + _BROKEN * features["nr_broken_hints"][slots]
            + _URGENT * features["nr_urgent"][slots]
        ).tolist()
        hints = features["is_hint"][slots].tolist()
        local = features["is_local"][slots].tolist()
        best, least = -1, np.inf
        for place, key in enumerate(keys):
            # LLVM looks at ranges within the same block only if no other has come first.
            if ahead[place] <= 0 or (best >= 0 and local[place]) or key >= least:
                continue
            best, least = place, key
            if hints[place]:
                break
        if best >= 0:
            return int(slots[best])
        return _SELF if mask[_SELF] else int(slots[int(np.argmin(keys))])


def spill_weights(call: Observation) -> NDArray[np.float32]:
    """[33], spill weight of each candidate's live ranges, the largest of all being 1.

    LLVM divides them by the largest one. If that is infinite, all others are 0, and
    uses divided by size stand for them.
    """
    features = call.features
    weights = features["use_def_density"]
    endless = np.isnan(weights)
    if not endless.any():
        return weights
    uses = (
        features["weighed_reads_by_max"]
        + features["weighed_writes_by_max"]
        + features["weighed_read_writes_by_max"]
    )
    dense = uses / (features["liverange_size"] + np.float32(0.05))
    most = dense[~endless].max(initial=0)
    return np.where(endless, np.inf, dense / max(most, 1e-9)).astype(np.float32)


def inputs(
    call: Observation, rows: NDArray[np.int64], weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    """[K + 1, INPUTS], inputs of the correction; rows: the candidates, and who asks."""
    features = call.features
    table = np.array([features[name] for name in _SCALED])[:, rows]
    table[0] = np.minimum(weights[rows], 1.0)
    x = np.zeros((len(rows), INPUTS), np.float32)
    number = len(_SCALED)
    x[:, :number] = (np.log(table + _OFFSET) / np.log(1 / _OFFSET)).T
    for place, (name, scale) in enumerate(_COUNTED.items(), number):
        x[:, place] = scale * features[name][rows]
    x[-1, number] = 0.0  # hints of the range that asks are not broken by it
    x[:, -1 - _ASKS] = features["max_stage"][rows] / 4
    endless = float(np.isinf(weights).any())
    progress = min(float(features["progress"][0]), 1.0)
    x[-1, -_ASKS:] = (1.0, endless, progress, len(rows) / 16)
    return x
