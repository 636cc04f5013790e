"""Reading of one checkpoint by one process, without any barrier."""

import asyncio
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshwright.features.checkpoint.fingerprint import fingerprints
from meshwright.features.checkpoint.orbax_import import as_epath, import_orbax
from meshwright.features.checkpoint.records import Saved
from meshwright.features.checkpoint.state_leaves import (
    CARRIERS,
    held_dtype,
    leaf_name,
)
from meshwright.features.checkpoint.targets import LeafTarget, empty_leaf

STATE, ABOUT = "state", "about"
"""Names of a checkpoint's two items: its arrays, and its record as JSON."""

_SEQUENCE = 1
"""The type of a list's key in Orbax's index of a tree."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The files of one state, and their record.

    folder: folder of the arrays. root: keys of Orbax's tree that lead to the state.
    """

    folder: Path
    root: tuple[str, ...]
    saved: Saved


def read_saved(folder: Path) -> Saved:
    """Read the record of a checkpoint, without its arrays.

    A damaged record raises whatever Orbax or `json` raises.
    """
    handler = import_orbax().JsonCheckpointHandler()
    return Saved(**handler.restore(as_epath(folder / ABOUT)))


def read_leaves(
    stored: Stored, targets: Mapping[str, LeafTarget]
) -> Mapping[str, jax.Array | np.ndarray[Any, Any]]:
    """Read this process's parts of the leaves that have targets, by name.

    A leaf has the saved dtype, in the sharding of its target if it is an array of JAX.
    """
    dtypes = {name: stored.saved.arrays[name]["dtype"] for name in targets}
    wanted = {name: each for name, each in targets.items() if np.prod(each.shape)}
    read = _restore(stored, wanted, dtypes) if wanted else {}
    return {
        name: read[name] if name in wanted else empty_leaf(target, dtypes[name])
        for name, target in targets.items()
    }


def _restore(
    stored: Stored, targets: Mapping[str, LeafTarget], dtypes: Mapping[str, str]
) -> Mapping[str, Any]:
    """The leaves with targets, as Orbax restores them; none of size 0."""
    orbax = import_orbax()
    item, keys_by_name = _placeholders(stored)
    arguments = jax.tree.map(lambda _: orbax.RestoreArgs(), item)
    for name, target in targets.items():
        asked, how = _request(target, dtypes[name])
        _put(item, keys_by_name[name], asked)
        _put(arguments, keys_by_name[name], how)
    here = jax.process_index()
    alone = orbax.options.MultiprocessingOptions(
        primary_host=here, active_processes={here}
    )
    handler = orbax.PyTreeCheckpointHandler(multiprocessing_options=alone)
    try:
        with _draining_loops():
            read = handler.restore(
                as_epath(stored.folder),
                args=orbax.args.PyTreeRestore(item, restore_args=arguments),
            )
    finally:
        handler.close()
    leaves = {name: _at(read, keys_by_name[name]) for name in targets}
    return {
        name: leaf.astype(dtypes[name]) if dtypes[name] in CARRIERS else leaf
        for name, leaf in leaves.items()
    }


def _request(target: LeafTarget, saved: str) -> tuple[Any, Any]:
    """The type of a leaf and its arguments, with which Orbax is asked for it."""
    orbax = import_orbax()
    if target.is_on_host(saved):
        dtype = np.dtype(CARRIERS.get(saved, saved))
        asked = jax.ShapeDtypeStruct(target.shape, dtype)
        return asked, orbax.RestoreArgs(restore_type=np.ndarray, dtype=dtype)
    dtype = CARRIERS.get(saved, held_dtype(target.dtype))
    asked = jax.ShapeDtypeStruct(target.shape, dtype, sharding=target.sharding)
    return asked, orbax.checkpoint_utils.construct_restore_args(asked, target.sharding)


def _placeholders(stored: Stored) -> tuple[Any, Mapping[str, tuple[Any, ...]]]:
    """The tree of a stored state with Orbax's placeholder for each leaf.

    Also the keys of each leaf in this tree, by the leaf's name.
    """
    index = json.loads((stored.folder / "_METADATA").read_text(encoding="utf-8"))
    tree: Any = {}
    keys_by_name: dict[str, tuple[Any, ...]] = {}
    for entry in index["tree_metadata"].values():
        keys = entry["key_metadata"]
        path = tuple(
            int(each["key"]) if each["key_type"] == _SEQUENCE else str(each["key"])
            for each in keys
        )
        node: Any = tree
        for key, following in zip(path, [*path[1:], None], strict=True):
            child = (
                import_orbax().PLACEHOLDER
                if following is None
                else ([] if isinstance(following, int) else {})
            )
            node = _child(node, key, child)
        inner = path[len(stored.root) :]
        keys_by_name[leaf_name(jax.tree_util.DictKey(key) for key in inner)] = path
    return tree, keys_by_name


def _child(node: Any, key: Any, new: Any) -> Any:
    """The child of a dict or list at a key, where `new` is put if there is none."""
    if isinstance(node, list):
        if key == len(node):
            node.append(new)
        return node[key]
    return node.setdefault(key, new)


def _at(tree: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        tree = tree[key]
    return tree


def _put(tree: Any, keys: tuple[Any, ...], value: Any) -> None:
    _at(tree, keys[:-1])[keys[-1]] = value


class _DrainingLoop(asyncio.SelectorEventLoop):
    """An event loop that waits for all its tasks before it closes."""

    def close(self) -> None:
        left = asyncio.all_tasks(self) if not self.is_closed() else ()
        if left:
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        super().close()


class _DrainingPolicy(asyncio.DefaultEventLoopPolicy):  # pyright: ignore[reportDeprecated]
    """Makes draining event loops."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _DrainingLoop()


@contextmanager
def _draining_loops() -> Generator[None]:
    """A context in which new event loops wait for all their tasks before they close.

    If one array cannot be read, Orbax closes its loop while TensorStore still reads the
    others, and each of these would print a traceback: "Event loop is closed". Only the
    policy decides which loop Orbax makes; Python 3.16 will need another way.
    """
    before = asyncio.get_event_loop_policy()  # pyright: ignore[reportDeprecated]
    asyncio.set_event_loop_policy(_DrainingPolicy())  # pyright: ignore[reportDeprecated]
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)  # pyright: ignore[reportDeprecated]


def unreadable_array(stored: Stored, targets: Mapping[str, LeafTarget]) -> str:
    """The path of the first array of a state that cannot be read.

    It is called after reading all arrays at once has failed, and reads them one by one.
    """
    for name, target in targets.items():
        try:
            read_leaves(stored, {name: target})
        except Exception:  # noqa: BLE001  any failure to read it is the answer
            return name
    return "the index of the arrays"


def changed_arrays(
    leaves: Mapping[str, Any], arrays: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The paths of arrays whose fingerprints differ from the saved ones.

    arrays: the record of each saved array, by its path. What plain Orbax wrote has no
        fingerprints.
    """
    known = [name for name in leaves if arrays[name]["fingerprint"] is not None]
    found = fingerprints([leaves[name] for name in known])
    return [
        name
        for name, each in zip(known, found, strict=True)
        if each != arrays[name]["fingerprint"]
    ]
