"""A training state as named leaves, and the forms in which Orbax stores them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.errors import CheckpointError
from meshwright.program.capture.capture import path_component

WHOLE = "state"
"""The name of the array if a state is a single array instead of a tree."""

NUMBERS = (bool, int, float, complex)
"""The numbers of Python that a state may have as leaves."""

CARRIERS: Mapping[str, Any] = {"uint2": jnp.uint8, "uint4": jnp.uint8}
"""Stored dtypes of the dtypes that TensorStore lacks and a wider one holds exactly."""


def leaf_name(keys: Iterable[Any]) -> str:
    """The name of a leaf from the components of its path, such as `params.blocks.0.up`."""
    return ".".join(map(path_component, keys)) or WHOLE


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by their names."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {leaf_name(path): leaf for path, leaf in flat}


def map_named(fn: Callable[[str, Any], Any], tree: Any) -> Any:
    """The pytree with the result of `fn(name, leaf)` in place of each leaf."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: fn(leaf_name(path), leaf), tree
    )


def is_number(leaf: Any) -> bool:
    """Whether a leaf is a number of Python; scalars of NumPy count as arrays."""
    return isinstance(leaf, NUMBERS) and not isinstance(leaf, np.generic)


def host_array(leaf: Any) -> np.ndarray[Any, Any]:
    """A leaf that is no JAX array as an array of NumPy, in the byte order of the host.

    Numbers of Python get 64 bits.
    """
    array = np.asarray(leaf)
    return array.astype(native_dtype(array.dtype), copy=False)


def native_dtype(dtype: Any) -> Any:
    """A dtype in the byte order of the host."""
    return dtype.newbyteorder("=") if isinstance(dtype, np.dtype) else dtype


def held_dtype(dtype: Any) -> Any:
    """The dtype in which JAX holds values of a dtype: without x64, 32 bits for 64."""
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return dtype
    return jax.dtypes.canonicalize_dtype(dtype)


def describe_leaf(leaf: Any) -> dict[str, Any]:
    """The dtype and the shape of a leaf, or of the type of one, as JSON."""
    typed = leaf if hasattr(leaf, "shape") else host_array(leaf)
    return {"dtype": str(native_dtype(typed.dtype)), "shape": list(typed.shape)}


def stored_form(leaf: Any) -> Any:
    """A leaf as Orbax stores it; a leaf that lives on the host is copied.

    Orbax refuses arrays of size 0: they become `None`, and restoring makes new ones.
    """
    if not np.size(leaf):
        return None
    array = leaf if isinstance(leaf, jax.Array) else np.array(host_array(leaf))
    carrier = CARRIERS.get(str(array.dtype))
    return array if carrier is None else array.astype(carrier)


def require_leaves(state: Any) -> None:
    """Raise `CheckpointError` unless a state has leaves, and all of them can be saved.

    They can if they are arrays or numbers of a dtype that TensorStore has, and if their
    names differ.
    """
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    if not flat:
        raise CheckpointError(f"the state {state!r:.60} has no arrays to save")
    by_name: dict[tuple[str, str], str] = {}
    for path, leaf in flat:
        where = jax.tree_util.keystr(path) or WHOLE
        orbax_name = jax.tree_util.keystr(path, simple=True, separator=".")
        for kind, name in (("", leaf_name(path)), ("in Orbax", orbax_name)):
            if by_name.setdefault((kind, name), where) != where:
                raise CheckpointError(
                    f"{by_name[kind, name]} and {where} of the state would both be saved "
                    f"as {name!r}; rename one of them"
                )
        _require_storable(leaf_name(path), leaf)


def _require_storable(name: str, leaf: Any) -> None:
    if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, *NUMBERS)):
        raise CheckpointError(
            f"{name} is {leaf!r:.60}; wanted arrays, in any pytree: give texts and other "
            "objects in `position`, as JSON, or leave them out, and fetch handles of a "
            "cluster first, by part.fetch(state)"
        )
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return
    dtype = describe_leaf(leaf)["dtype"]
    if dtype not in CARRIERS and not _is_storable(dtype):
        raise CheckpointError(
            f"{name} has the dtype {dtype}, which TensorStore cannot store; convert it, "
            "to float32, say"
        )


def _is_storable(dtype: str) -> bool:
    import tensorstore  # comes with Orbax

    try:
        tensorstore.dtype(dtype)
    except ValueError:
        return False
    return True
