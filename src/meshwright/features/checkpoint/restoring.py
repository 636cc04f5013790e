"""Restoring of a checkpoint by all processes together.

Each process reads its parts of the arrays. All processes agree on whether the
checkpoint is damaged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from meshwright.errors import CheckpointError
from meshwright.features.checkpoint.directory import step_folders
from meshwright.features.checkpoint.plain_orbax import find_stored
from meshwright.features.checkpoint.process_group import ProcessGroup
from meshwright.features.checkpoint.reading import (
    changed_arrays,
    read_leaves,
    unreadable_array,
)
from meshwright.features.checkpoint.records import Saved
from meshwright.features.checkpoint.state_leaves import map_named, named_leaves
from meshwright.features.checkpoint.targets import difference, finished_leaf


class Damaged(Exception):
    """Raised for a damaged checkpoint; the message names the array and the damage."""


_LISTINGS, _LISTING_S = 4, 0.02
"""How often a directory that seems empty is listed, and the seconds in between."""


def newest_first(
    directory: Path, group: ProcessGroup, step: int | None
) -> Iterator[int]:
    """The steps of checkpoints to try, the newest first; only `step` if it is given.

    The directory is listed again for each step, since a writer may have deleted the
    next checkpoint and committed newer ones, which are then tried first. A directory
    that changes while it is listed may seem empty, so an empty list is read again
    before it counts.
    """
    tried: set[int] = set()
    listings_left = _LISTINGS
    while True:
        here = list(step_folders(directory)) if group.is_first else []
        steps = group.from_first(here)
        if step is not None and step not in steps:
            known = ", ".join(map(str, steps)) or "none"
            raise CheckpointError(
                f"{directory} has no step {step}; committed are {known}"
            )
        chosen = steps if step is None else [step]
        left = [each for each in chosen if each not in tried]
        if not left:
            listings_left -= 1
            if not listings_left:
                return
            time.sleep(_LISTING_S)
            continue
        tried.add(max(left))
        yield max(left)


def restore_step(
    folder: Path, targets: Any, group: ProcessGroup, partial: bool
) -> tuple[Any, Saved]:
    """Read the state and the record of one checkpoint.

    partial: whether the checkpoint may have more arrays than are wanted.
    Raises `Damaged` in all processes if one of them finds damage.
    """
    stored = _agreed(
        group, *_try(lambda: find_stored(folder), "what was saved with it")
    )
    arrays, wanted = stored.saved.arrays, named_leaves(targets)
    unlike = difference(targets, arrays, partial)
    if unlike is not None:
        raise CheckpointError(f"{folder} holds another state: {unlike}")
    leaves, reason = _try(lambda: read_leaves(stored, wanted), None)
    if reason is not None:
        reason = f"{unreadable_array(stored, wanted)} cannot be read ({reason})"
    leaves = _agreed(group, leaves, reason)
    changed = changed_arrays(leaves, arrays)
    if changed:
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise Damaged(f"{changed[0]} is not what was saved{more}")
    state = map_named(
        lambda name, target: finished_leaf(name, target, leaves[name]), targets
    )
    return state, stored.saved


def _try(read: Callable[[], Any], what: str | None) -> tuple[Any, str | None]:
    """Call `read`, which may raise anything if a file is damaged.

    Returns the result and `None`, or `None` and the reason why it cannot be read.

    what: name in the reason of the thing to read; `None` for the bare reason.
    """
    try:
        return read(), None
    except CheckpointError:
        raise  # the file is whole, and the error says what it has
    except Exception as error:  # noqa: BLE001  a damaged file may raise anything
        reason = str(error).splitlines()[0][:200] if str(error) else repr(error)
        return None, reason if what is None else f"{what} cannot be read ({reason})"


def _agreed(group: ProcessGroup, result: Any, reason: str | None) -> Any:
    """The result, if no process has a reason why it could not read its own.

    Otherwise all processes raise `Damaged` with the first reason.
    """
    reasons = [each for each in group.gather(reason) if each is not None]
    if reasons:
        raise Damaged(reasons[0])
    return result
