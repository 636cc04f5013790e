"""Writing of one checkpoint: the record of a state, and the calls of Orbax."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import jax

from meshwright.errors import CheckpointError
from meshwright.features.checkpoint.directory import TRASH
from meshwright.features.checkpoint.fingerprint import fingerprints
from meshwright.features.checkpoint.orbax_import import import_orbax
from meshwright.features.checkpoint.reading import ABOUT, STATE
from meshwright.features.checkpoint.retention import Retention
from meshwright.features.checkpoint.state_leaves import (
    describe_leaf,
    named_leaves,
    stored_form,
)


class PlanText(Protocol):
    """Any object that can be written as JSON, as plans can."""

    def to_json(self) -> str: ...


def open_manager(directory: Path, retention: Retention) -> Any:
    """Orbax's `CheckpointManager` of a directory.

    It deletes the incomplete checkpoint of a writer that was killed.
    """
    orbax = import_orbax()
    options = orbax.CheckpointManagerOptions(
        preservation_policy=retention.policy(),
        best_fn=retention.score,  # makes Orbax write the metrics
        todelete_subdir=TRASH,
        cleanup_tmp_directories=True,
        save_root_metadata=False,
    )
    return orbax.CheckpointManager(str(directory), options=options)


def describe_save(
    step: int,
    state: Any,
    plan: PlanText | str | None,
    position: Any,
    metrics: Mapping[str, float] | None,
) -> dict[str, Any]:
    """The record of a state, with the fields of `Saved`, as JSON.

    It contains the fingerprint of each array, which is computed here.
    """
    leaves = named_leaves(state)
    sums = fingerprints(list(leaves.values()))
    return {
        "step": step,
        "position": position,
        "metrics": {name: float(x) for name, x in (metrics or {}).items()},
        "plan": plan if isinstance(plan, str | None) else plan.to_json(),
        "saved_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "arrays": {
            name: describe_leaf(leaf) | {"fingerprint": each}
            for (name, leaf), each in zip(leaves.items(), sums, strict=True)
        },
    }


def save_arguments(state: Any, about: Mapping[str, Any]) -> Any:
    """Orbax's arguments to save a state and its record (`about`)."""
    arguments = import_orbax().args
    return arguments.Composite(
        **{
            STATE: arguments.StandardSave({STATE: jax.tree.map(stored_form, state)}),
            ABOUT: arguments.JsonSave(about),
        }
    )


def require_step(step: object) -> None:
    """Raise `CheckpointError` unless a step is a whole number, 0 or more."""
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise CheckpointError(f"step is {step!r}; wanted a number, 0 or more")


def require_position(position: object) -> None:
    """Raise `CheckpointError` unless a place in the data is a JSON value."""
    try:
        json.dumps(position)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"position is {position!r:.60}, not a JSON value ({error}); numbers of NumPy "
            "and JAX become JSON by int() and float()"
        ) from None


@contextmanager
def as_checkpoint_error(what: str) -> Generator[None]:
    """A context in which errors of Orbax are raised as `CheckpointError`.

    Orbax's own traceback is left out: it has no line of the caller's.
    what: the beginning of the message.
    """
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # noqa: BLE001  Orbax raises many
        raise CheckpointError(f"{what}: {error}") from None
