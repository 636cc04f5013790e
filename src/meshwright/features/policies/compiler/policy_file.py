"""Learned policies of a compiler, of any kind, and their files."""

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.allocation.correction import Correction
from meshwright.features.policies.compiler.allocation.eviction import (
    INPUTS as EVICTION_INPUTS,
)
from meshwright.features.policies.compiler.allocation.eviction import EvictionPolicy
from meshwright.features.policies.compiler.allocation.priority import (
    INPUTS as PRIORITY_INPUTS,
)
from meshwright.features.policies.compiler.allocation.priority import PriorityPolicy
from meshwright.features.policies.compiler.channel import Advise
from meshwright.features.policies.compiler.learned.inline_policy import (
    InlinePolicy,
    read_inline_policy,
)

AllocationPolicy = EvictionPolicy | PriorityPolicy
CompilerPolicy = InlinePolicy | AllocationPolicy

_FORMAT = "meshwright {} policy, version 1"
_HIDDEN = 8
"""Width of the hidden layer of networks of register allocation."""


def first_policy(kind: str, seed: int) -> AllocationPolicy:
    """The policy of register allocation without corrections, where training starts."""
    if kind == "evict":
        return EvictionPolicy(Correction.start(EVICTION_INPUTS, _HIDDEN, 2, seed))
    return PriorityPolicy(Correction.start(PRIORITY_INPUTS, _HIDDEN, 1, seed))


def with_weights(
    policy: AllocationPolicy, weights: NDArray[np.float64]
) -> AllocationPolicy:
    """A policy of the same kind with other weights."""
    correction = replace(policy.correction, weights=weights.astype(np.float32))
    return replace(policy, correction=correction)


def save_allocation_policy(policy: AllocationPolicy, path: Path) -> None:
    """Write a policy to a file, all at once."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        np.savez_compressed(
            file,
            format=np.array(_FORMAT.format(policy.kind)),
            hidden=np.array(policy.correction.hidden),
            weights=policy.correction.weights,
        )
    part.replace(path)


def read_policy(path: Path) -> CompilerPolicy:
    """The policy of a file, or of a folder that `policies train` wrote."""
    file = path / "policy.npz" if path.is_dir() else path
    advice = "; make one by `meshwright policies train`"
    if not file.is_file():
        raise PolicyError(f"{path} has no policy{advice}")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            kind = str(arrays["format"])
            if kind == _FORMAT.format("inline"):
                return read_inline_policy(file)
            hidden, weights = int(arrays["hidden"]), arrays["weights"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as fault:
        raise PolicyError(f"{file} is no policy ({fault}){advice}") from None
    if kind == _FORMAT.format("evict"):
        return EvictionPolicy(Correction(EVICTION_INPUTS, hidden, 2, weights))
    if kind == _FORMAT.format("priority"):
        return PriorityPolicy(Correction(PRIORITY_INPUTS, hidden, 1, weights))
    raise PolicyError(f"{file} is of the format {kind!r}, which is not known{advice}")


def check_kinds(policies: Mapping[str, Advise]) -> None:
    """Refuse a learned policy that stands for decisions of another kind."""
    for kind, policy in policies.items():
        if isinstance(policy, CompilerPolicy) and policy.kind != kind:
            raise PolicyError(
                f"a policy of {policy.kind} cannot decide about {kind}; pass it as"
                f" {policy.kind}=policy"
            )
