"""Reading of one checkpoint by one process, without any barrier."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from meshwright.features.checkpoint.fingerprint import fingerprints
from meshwright.features.checkpoint.orbax_import import import_orbax
from meshwright.features.checkpoint.records import Saved
from meshwright.features.checkpoint.state_leaves import named_leaves

STATE, ABOUT = "state", "about"
"""Names of a checkpoint's two items: its arrays, and its record as JSON."""


def committed_steps(directory: Path) -> list[int]:
    """The steps of all committed checkpoints in a directory, in order.

    Orbax writes a checkpoint under another name, and renames it when it is complete.
    """
    if not directory.is_dir():
        return []
    names = import_orbax().path.step.standard_name_format()
    return sorted(found.step for found in names.find_all(str(directory)))


def read_saved(folder: Path) -> Saved:
    """Read the record of a checkpoint, without its arrays.

    A damaged record raises whatever Orbax or `json` raises.
    """
    handler = import_orbax().JsonCheckpointHandler()
    return Saved(**handler.restore(_epath(folder / ABOUT)))


def read_state(folder: Path, targets: Any) -> Any:
    """Read this process's parts of a state, in the shardings of `targets`.

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
    """The path of the first array of a state that cannot be read.

    It is called after reading all arrays at once has failed, and reads them one by one.
    """
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
    """The paths of arrays whose fingerprints differ from the saved ones.

    arrays: the record of each saved array, by its path.
    """
    leaves = named_leaves(state)
    found = dict(zip(leaves, fingerprints(list(leaves.values())), strict=True))
    return [name for name in leaves if found[name] != arrays[name]["fingerprint"]]


def _epath(path: Path) -> Any:
    from etils import epath  # comes with Orbax

    return epath.Path(path)
