"""Learned policies of a compiler, of any kind, and their files."""

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.allocation.correction import (
    Correction,
    read_correction,
)
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


def first_policy(kind: str) -> AllocationPolicy:
    """The policy of register allocation without corrections, where training starts."""
    if kind == "evict":
        return EvictionPolicy(Correction(np.zeros((EVICTION_INPUTS, 2), np.float32)))
    return PriorityPolicy(Correction(np.zeros((PRIORITY_INPUTS, 1), np.float32)))


def with_weights(
    policy: AllocationPolicy, weights: NDArray[np.float64]
) -> AllocationPolicy:
    """A policy of the same kind with other weights, in any shape."""
    shape = policy.correction.weights.shape
    return replace(
        policy, correction=Correction(weights.reshape(shape).astype(np.float32))
    )


def save_allocation_policy(policy: AllocationPolicy, path: Path) -> None:
    """Write a policy to a file, all at once."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        np.savez_compressed(
            file,
            format=np.array(_FORMAT.format(policy.kind)),
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
            weights = arrays["weights"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as fault:
        raise PolicyError(f"{file} is no policy ({fault}){advice}") from None
    if kind == _FORMAT.format("evict"):
        return EvictionPolicy(read_correction(weights, EVICTION_INPUTS, 2))
    if kind == _FORMAT.format("priority"):
        return PriorityPolicy(read_correction(weights, PRIORITY_INPUTS, 1))
    raise PolicyError(f"{file} is of the format {kind!r}, which is not known{advice}")


def check_kinds(policies: Mapping[str, Advise]) -> None:
    """Refuse a learned policy that stands for decisions of another kind."""
    for kind, policy in policies.items():
        if isinstance(policy, CompilerPolicy) and policy.kind != kind:
            raise PolicyError(
                f"a policy of {policy.kind} cannot decide about {kind}; pass it as"
                f" {policy.kind}=policy"
            )
