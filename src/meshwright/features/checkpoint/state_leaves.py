"""A training state as named arrays, and the types and shardings to restore it in."""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.errors import CheckpointError, did_you_mean
from meshwright.program.capture.capture import path_component

WHOLE = "state"
"""The name of the array if a state is a single array instead of a tree."""


@runtime_checkable
class _Plan(Protocol):
    @property
    def in_shardings(self) -> Any: ...


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by their paths, such as `params.blocks.0.up`."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {".".join(map(path_component, path)) or WHOLE: leaf for path, leaf in flat}


def describe_leaf(leaf: Any) -> dict[str, Any]:
    """The dtype and the shape of an array or a `ShapeDtypeStruct`, as JSON."""
    aval: Any = jax.api_util.shaped_abstractify(leaf)
    return {"dtype": str(aval.dtype), "shape": list(aval.shape)}


def require_leaves(state: Any) -> None:
    """Raise `CheckpointError` unless a state has leaves, and all are arrays or numbers."""
    leaves = named_leaves(state)
    if not leaves:
        raise CheckpointError(f"the state {state!r:.60} has no arrays to save")
    for name, leaf in leaves.items():
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int):
            raise CheckpointError(
                f"{name} is {leaf!r:.60}; wanted arrays, in any pytree"
            )


def difference(wanted: Any, arrays: dict[str, Any]) -> str | None:
    """The first difference between a wanted state and saved arrays, in words.

    Returns `None` if names, dtypes and shapes are equal.
    """
    leaves = named_leaves(wanted)
    for name, leaf in leaves.items():
        if name not in arrays:
            return f"it has no {name}{did_you_mean(name, arrays)}"
        here = describe_leaf(leaf)
        saved = {key: arrays[name][key] for key in here}
        if saved != here:
            return f"{name} is {_type(saved)}, not {_type(here)}"
    extra = [name for name in arrays if name not in leaves]
    return f"it also has {extra[0]}" if extra else None


def _type(leaf: dict[str, Any]) -> str:
    return f"{leaf['dtype']}{leaf['shape']}"


def restore_targets(like: Any, shardings: Any) -> Any:
    """`like` as `ShapeDtypeStruct`s with the shardings in which a state is restored.

    shardings: a tree in the structure of `like`; one sharding for all arrays; a plan
        with `like` among its arguments; or `None` for the shardings of `like`'s leaves.
        A leaf without a sharding goes to the first device.
    """
    if shardings is None:
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        tree = jax.tree.map(lambda x: getattr(x, "sharding", None) or here, like)
    elif isinstance(shardings, jax.sharding.Sharding):
        tree = jax.tree.map(lambda _: shardings, like)
    elif isinstance(shardings, _Plan):
        tree = _of_plan(like, shardings)
    else:
        tree = shardings
    if jax.tree.structure(tree) != jax.tree.structure(like):
        raise CheckpointError(
            f"shardings have the structure {jax.tree.structure(tree)}, the state "
            f"{jax.tree.structure(like)}; give one sharding for each array"
        )
    return jax.tree.map(_target, like, tree)


def _target(leaf: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    shape, dtype = jnp.shape(leaf), getattr(leaf, "dtype", None)
    dtype = jnp.result_type(leaf) if dtype is None else dtype
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def _of_plan(like: Any, plan: Any) -> Any:
    """The shardings of the only argument of a plan with the structure of `like`.

    Raises `CheckpointError` if no argument, or more than one, has this structure.
    """
    structure = jax.tree.structure(like)
    fitting = [
        tree for tree in plan.in_shardings if jax.tree.structure(tree) == structure
    ]
    if len(fitting) != 1:
        raise CheckpointError(
            f"{len(fitting)} arguments of the plan have the structure of the state; give "
            "the shardings of the right one, plan.in_shardings[0], say (a plan that was "
            "read from a file has them only after step.plan(...))"
        )
    return fitting[0]
