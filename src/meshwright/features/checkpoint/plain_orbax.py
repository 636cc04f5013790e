"""Checkpoints that Orbax wrote without Meshwright, by its `CheckpointManager`, say.

Such a checkpoint has no record of ours, so that its arrays have no fingerprints, and
damage is found only if Orbax finds it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meshwright.errors import CheckpointError
from meshwright.features.checkpoint.orbax_import import as_epath, import_orbax
from meshwright.features.checkpoint.reading import ABOUT, STATE, Stored, read_saved
from meshwright.features.checkpoint.records import Saved
from meshwright.features.checkpoint.state_leaves import named_leaves

_INDEX = "_METADATA"
"""The file with the index of a tree, in the folder of its arrays."""

_COMMIT = "_CHECKPOINT_METADATA"
"""The file that says which items a checkpoint has, and when it was committed."""


def find_stored(folder: Path) -> Stored:
    """The state in the folder of a checkpoint, whoever wrote it.

    Raises `CheckpointError` if plain Orbax wrote several states; damaged files raise
    anything.
    """
    commit = _read_json(folder / _COMMIT)
    if (folder / ABOUT).exists() or ABOUT in _items(commit):
        return Stored(folder / STATE, (STATE,), read_saved(folder))
    step = int(folder.name.rpartition("_")[2])
    place = _only_state(folder)
    arrays = _arrays(place)
    metrics = _read_json(folder / "metrics" / "metrics")
    saved_s = commit.get("commit_timestamp_nsecs") or commit.get("init_timestamp_nsecs")
    saved_at = datetime.fromtimestamp((saved_s or 0) / 1e9, UTC)
    record = Saved(
        step, None, metrics, None, saved_at.isoformat(timespec="seconds"), arrays
    )
    return Stored(place, (), record)


def _items(commit: Mapping[str, Any]) -> Mapping[str, Any]:
    items = commit.get("item_handlers")
    return items if isinstance(items, dict) else {}


def _read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file; empty if there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _only_state(folder: Path) -> Path:
    """The folder of the only pytree in a checkpoint of plain Orbax."""
    places = (folder, *sorted(folder.iterdir()))
    found = [each for each in places if (each / _INDEX).is_file()]
    if len(found) == 1:
        return found[0]
    names = ", ".join(each.name for each in found) or "none that has an index"
    raise CheckpointError(
        f"{folder} was written by Orbax alone, with {len(found)} pytrees ({names}); wanted "
        "one. Restore it with orbax.checkpoint, and save it with mw.Checkpoints"
    )


def _arrays(place: Path) -> dict[str, dict[str, Any]]:
    """The dtype and shape of each array or number that Orbax stored in a folder."""
    handler = import_orbax().PyTreeCheckpointHandler()
    try:
        tree = handler.metadata(as_epath(place)).tree
    finally:
        handler.close()
    leaves = named_leaves(tree)
    return {
        name: {"dtype": str(leaf.dtype), "shape": list(leaf.shape), "fingerprint": None}
        for name, leaf in leaves.items()
        if hasattr(leaf, "dtype")
    }
