"""Saving and restoring on request, by workers that hold a state's flat arrays.

A request brings the state's structure as JSON: objects and lists for its containers,
and for each leaf the index of its array. Named tuples and other classes become objects
of their fields, as Orbax stores them. So a state that is saved here can be restored by
the program that defines the classes, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from meshwright.errors import CheckpointError
from meshwright.features.checkpoint.checkpoints import Checkpoints
from meshwright.features.checkpoint.orbax_import import import_orbax
from meshwright.machine import Mesh
from meshwright.run.local.spmd import jax_mesh

NEWEST, SAVE, RESTORE, COMMIT = "newest", "save", "restore", "commit"
"""The kinds of requests.

They ask for the newest step (-1 if there is none), save a state, restore one, or wait
until all saves are committed.
"""


def structure_of(tree: Any) -> Any:
    """The structure of a pytree as JSON; a leaf is its index among the flat leaves."""
    treedef = jax.tree.structure(tree)
    numbered = jax.tree.unflatten(treedef, range(treedef.num_leaves))
    return _as_json(import_orbax().tree.serialize_tree(numbered, keep_empty_nodes=True))


def _as_json(structure: Any) -> Any:
    """The structure with JSON's empty containers; Orbax keeps those of Python classes."""
    match structure:
        case None | int():
            return structure
        case dict():
            return {key: _as_json(child) for key, child in structure.items()}
        case list():
            return [_as_json(child) for child in structure]
        case _:  # an empty tuple, or an empty instance of a class
            return [] if type(structure) is tuple else {}


def _filled(structure: Any, leaves: Sequence[Any]) -> Any:
    """A tree of dicts and lists, with leaves in place of the indices in `structure`."""
    if isinstance(structure, dict):
        return {key: _filled(child, leaves) for key, child in structure.items()}
    if isinstance(structure, list):
        return [_filled(child, leaves) for child in structure]
    return None if structure is None else leaves[structure]


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to save or restore, with the checkpoints of its folder.

    argument: options and the state's structure. arrays: the state's arrays, to be saved.
    """

    checkpoints: Checkpoints
    argument: Mapping[str, Any]
    devices: Sequence[Any]
    arrays: Sequence[Any]

    def newest(self) -> list[Any]:
        """The step of the newest checkpoint; -1 if there is none."""
        latest = self.checkpoints.latest
        return [np.int32(-1 if latest is None else latest)]

    def save(self) -> list[Any]:
        """Save a state, unless its step is saved already; returns the step."""
        argument, step = self.argument, self.argument["step"]
        if step not in self.checkpoints.steps:
            self.checkpoints.save(
                step,
                _filled(argument["structure"], self.arrays),
                plan=argument["plan"],
                position=argument["position"],
                metrics=argument["metrics"],
            )
        return [np.int32(step)]

    def restore(self) -> list[Any]:
        """The arrays of a state, and the step at which it was saved."""
        argument = self.argument
        mesh = jax_mesh(Mesh(dict(argument["mesh"]), self.devices))
        like = [
            jax.ShapeDtypeStruct(
                shape,
                dtype,
                sharding=NamedSharding(mesh, PartitionSpec(*map(tuple, spec))),
            )
            for shape, dtype, spec in argument["arrays"]
        ]
        restored = self.checkpoints.restore(_filled(argument["structure"], like))
        # A dict's leaves are ordered by key, the request's arrays by their index.
        places = jax.tree.leaves(argument["structure"])
        by_place = dict(zip(places, jax.tree.leaves(restored.state), strict=True))
        return [*(by_place[i] for i in range(len(places))), np.int32(restored.step)]

    def commit(self) -> list[Any]:
        """Wait until all saves are committed; returns the newest step."""
        self.checkpoints.wait()
        return self.newest()


_KINDS: Mapping[str, Callable[[_Request], list[Any]]] = {
    NEWEST: _Request.newest,
    SAVE: _Request.save,
    RESTORE: _Request.restore,
    COMMIT: _Request.commit,
}


class CheckpointTasks:
    """The directories of checkpoints that the requests of one client have opened."""

    def __init__(self) -> None:
        self._open: dict[str, Checkpoints] = {}

    def run(
        self,
        kind: str,
        folder: str,
        argument: Mapping[str, Any],
        devices: Sequence[Any],
        arrays: Sequence[Any],
    ) -> list[Any]:
        """Execute a request; returns its arrays, and the checkpoint's step at the end.

        kind: what to do, such as "save". folder: directory of the checkpoints.
        argument: options and the state's structure. arrays: the state's arrays, to be
            saved.
        All processes of `jax.distributed` run the same requests in the same order.
        Raises `CheckpointError` if the request fails or is unknown, or if a process has
        none of `devices`.
        """
        run = _KINDS.get(kind)
        if run is None:
            raise CheckpointError(
                f"{kind!r:.60} is no task; wanted one of {', '.join(_KINDS)}"
            )
        owners = {device.process_index for device in devices}
        if len(owners) != jax.process_count():
            raise CheckpointError(
                f"the slice has devices of {len(owners)} of {jax.process_count()} workers; "
                "checkpoints need a slice with devices of every worker"
            )
        checkpoints = self._open.get(folder)
        if checkpoints is None:
            checkpoints = Checkpoints(folder, **argument["retention"])
            self._open[folder] = checkpoints
        return run(_Request(checkpoints, argument, devices, arrays))

    def close(self) -> None:
        """Finish all saves and let other processes write, in every directory.

        An error in one directory does not keep the others from being closed.
        """
        with ExitStack() as ends:
            while self._open:
                _, checkpoints = self._open.popitem()
                ends.callback(checkpoints.close)
