"""Reading of one checkpoint by one process, without any barrier."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from meshwright.run.checkpoint.fingerprint import fingerprints
from meshwright.run.checkpoint.orbax_import import import_orbax
from meshwright.run.checkpoint.records import Saved
from meshwright.run.checkpoint.state_leaves import named_leaves

STATE, ABOUT = "state", "about"
"""The items of a checkpoint: the arrays, and all the rest as JSON."""


def committed_steps(directory: Path) -> list[int]:
    """The steps that are committed, in order, as the directory has them now.

    A save is written under another name, which Orbax changes when all is there.
    """
    if not directory.is_dir():
        return []
    names = import_orbax().path.step.standard_name_format()
    return sorted(found.step for found in names.find_all(str(directory)))


def read_saved(folder: Path) -> Saved:
    """All of a checkpoint but its arrays; raises what Orbax or JSON raise if damaged."""
    handler = import_orbax().JsonCheckpointHandler()
    return Saved(**handler.restore(_epath(folder / ABOUT)))


def read_state(folder: Path, targets: Any) -> Any:
    """The parts of a state that this process holds in the shardings of `targets`.

    Leaves of `targets` that are Orbax's placeholder are left out.
    """
    orbax = import_orbax()
    here = jax.process_index()
    alone = orbax.options.MultiprocessingOptions(
        primary_host=here, active_processes={here}
    )
    handler = orbax.PyTreeCheckpointHandler(multiprocessing_options=alone)
    wanted = {STATE: targets}
    shardings = jax.tree.map(lambda leaf: getattr(leaf, "sharding", None), wanted)
    arguments = orbax.args.PyTreeRestore(
        wanted,
        restore_args=orbax.checkpoint_utils.construct_restore_args(wanted, shardings),
    )
    try:
        return handler.restore(_epath(folder / STATE), args=arguments)[STATE]
    finally:
        handler.close()


def unreadable_array(folder: Path, targets: Any) -> str:
    """The path of the first array that cannot be read, for a state that cannot."""
    leaves, treedef = jax.tree.flatten(targets)
    for number, name in enumerate(named_leaves(targets)):
        alone = [import_orbax().PLACEHOLDER] * len(leaves)
        alone[number] = leaves[number]
        try:
            read_state(folder, jax.tree.unflatten(treedef, alone))
        except Exception:  # noqa: BLE001  any failure to read it is the answer
            return name
    return "the index of the arrays"


def changed_arrays(state: Any, arrays: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The paths of arrays whose fingerprints differ from the saved ones."""
    leaves = named_leaves(state)
    found = dict(zip(leaves, fingerprints(list(leaves.values())), strict=True))
    return [name for name in leaves if found[name] != arrays[name]["fingerprint"]]


def _epath(path: Path) -> Any:
    from etils import epath  # comes with Orbax

    return epath.Path(path)
