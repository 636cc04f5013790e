"""The state of a training between its steps, in one file."""

import json
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.allocation.evolution import EvolutionState


@dataclass(frozen=True, slots=True)
class EvolutionPoint:
    """One step: the mean changes of costs, by perturbed policies.

    change: mean of the logarithm of (policy + 1) / (default + 1) cycles of spill code over
        functions. operations: that of micro-operations.
    """

    step: int
    functions: int
    change: float
    operations: float

    def __str__(self) -> str:
        return (
            f"{self.change:+.2%} spill code, {self.operations:+.2%} operations in"
            f" {self.functions} functions"
        )


def write_training(
    path: Path, mark: str, state: EvolutionState, curve: Sequence[EvolutionPoint]
) -> None:
    """Write the state of a training, all at once. mark: its options."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        np.savez_compressed(
            file,
            mark=np.array(mark),
            weights=state.weights,
            moments=state.moments,
            mean=state.mean,
            step=np.array(state.step),
            curve=np.array(json.dumps([asdict(point) for point in curve])),
        )
    part.replace(path)


def read_training(
    path: Path, mark: str, start: NDArray[np.float32]
) -> tuple[EvolutionState, list[EvolutionPoint]]:
    """The state and curve of a training, or those before its first step.

    start: weights before the first step.
    """
    if not path.exists():
        return EvolutionState.start(start), []
    try:
        with np.load(path, allow_pickle=False) as arrays:
            known = str(arrays["mark"])
            state = EvolutionState(
                arrays["weights"],
                arrays["moments"],
                arrays["mean"],
                int(arrays["step"]),
            )
            curve = [
                EvolutionPoint(**point) for point in json.loads(str(arrays["curve"]))
            ]
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        zipfile.BadZipFile,
    ) as fault:
        raise PolicyError(
            f"{path} has no state of a training ({fault}); remove it to begin again"
        ) from None
    if known != mark:
        raise PolicyError(
            f"{path} is of a training of another kind, seed, batch, start or corpus; give"
            " another folder, or remove this one"
        )
    return state, curve
