"""The leaves to restore: their types and shardings, and what is made of the stored ones.

JAX may lack the dtype of a stored leaf: without `jax_enable_x64`, it holds no 64 bits. Such
a leaf is read on the host. If the wanted state has an array of NumPy in its place, it comes
back as that; otherwise it is converted, if JAX's dtype can hold its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.errors import CheckpointError, did_you_mean
from meshwright.features.checkpoint.state_leaves import (
    describe_leaf,
    held_dtype,
    host_array,
    is_number,
    named_leaves,
    native_dtype,
)
from meshwright.jax_private import is_key

_KINDS: Mapping[type, Any] = {
    bool: np.bool_,
    int: np.integer,
    float: np.floating,
    complex: np.complexfloating,
}
"""The dtypes from which a number of Python is restored, by its type."""


@dataclass(frozen=True, slots=True, eq=False)
class LeafTarget:
    """A leaf to restore: its type, and the sharding that it gets as an array of JAX.

    kind: the type of a leaf that comes back on the host if JAX lacks its dtype,
        `np.ndarray` or `np.generic`; for a number, its type in Python.
    """

    dtype: Any
    shape: tuple[int, ...]
    sharding: Any
    kind: type

    @property
    def is_number(self) -> bool:
        """Whether the leaf is a number of Python."""
        return self.kind in _KINDS

    def is_on_host(self, saved: str) -> bool:
        """Whether a leaf with the saved dtype is read as an array of NumPy."""
        return self.is_number or not is_held(saved)

    def fits(self, saved: Mapping[str, Any]) -> bool:
        """Whether a leaf with the saved type can be restored here."""
        dtype, shape = saved["dtype"], tuple(saved["shape"])
        if is_key(self.dtype) and dtype == "uint32":  # as Orbax describes a key
            return shape[: len(self.shape)] == self.shape
        if shape != self.shape:
            return False
        if self.is_number:
            return jnp.issubdtype(_dtype(dtype), _KINDS[self.kind])
        held = str(held_dtype(self.dtype))
        return (
            dtype in (str(self.dtype), held) or str(held_dtype(_dtype(dtype))) == held
        )


def _dtype(name: str) -> Any:
    """The dtype of a name in a record; of PRNG keys, that of the words that hold them."""
    return jnp.dtype("uint32" if name.startswith("key<") else name)


def is_held(saved: str) -> bool:
    """Whether JAX has arrays of a saved dtype, in the present setting of x64."""
    dtype = _dtype(saved)
    return held_dtype(dtype) == dtype


def restore_targets(like: Any, shardings: Any) -> Any:
    """`like` as targets with the shardings in which a state is restored.

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


def _target(leaf: Any, sharding: Any) -> LeafTarget:
    if is_number(leaf):
        array = host_array(leaf)
        return LeafTarget(array.dtype, (), sharding, type(leaf))
    if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
        raise CheckpointError(
            f"a leaf of the wanted state is {leaf!r:.60}; wanted arrays or their types"
        )
    kind = np.generic if isinstance(leaf, np.generic) else np.ndarray
    return LeafTarget(native_dtype(leaf.dtype), tuple(leaf.shape), sharding, kind)


@runtime_checkable
class _Plan(Protocol):
    @property
    def in_shardings(self) -> Any: ...


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


def difference(
    targets: Any, arrays: Mapping[str, Mapping[str, Any]], partial: bool
) -> str | None:
    """The first difference between the wanted state and the saved arrays, in words.

    Returns `None` if names and shapes are equal, and all dtypes fit.
    partial: whether the saved state may have more arrays than the wanted one.
    """
    leaves = named_leaves(targets)
    for name, target in leaves.items():
        if name not in arrays:
            return f"it has no {name}{did_you_mean(name, arrays)}"
        if not target.fits(arrays[name]):
            return (
                f"{name} is {_type(arrays[name])}, not {_type(describe_leaf(target))}"
            )
    extra = [name for name in arrays if name not in leaves]
    if partial or not extra:
        return None
    return f"it also has {extra[0]} (partial=True restores only the wanted arrays)"


def _type(leaf: Mapping[str, Any]) -> str:
    return f"{leaf['dtype']}{leaf['shape']}"


def empty_leaf(target: LeafTarget, saved: str) -> Any:
    """A leaf of size 0, which has no stored values."""
    if target.is_on_host(saved):
        return np.zeros(target.shape, saved)
    return jnp.zeros(target.shape, target.dtype, device=target.sharding)


def finished_leaf(name: str, target: LeafTarget, value: Any) -> Any:
    """A restored leaf in the type that is wanted.

    value: the array of JAX or NumPy that was read.
    Raises `CheckpointError` if the wanted dtype cannot hold its values.
    """
    if isinstance(value, jax.Array):
        if is_key(value.dtype) != is_key(target.dtype):
            wanted = _type(describe_leaf(target))
            raise CheckpointError(
                f"{name} is {_type(describe_leaf(value))}, not {wanted}"
            )
        return value
    if target.is_number:
        return target.kind(value.item())
    if value.dtype == target.dtype:
        return value[()] if target.kind is np.generic else value
    with np.errstate(over="ignore"):  # which is an error below
        held = value.astype(held_dtype(target.dtype))
    if not np.array_equal(np.isfinite(held), np.isfinite(value)) or (
        np.issubdtype(value.dtype, np.integer) and not np.array_equal(held, value)
    ):
        raise CheckpointError(
            f"{name} has values of {value.dtype} that {held.dtype} cannot hold; give a "
            f"state with an array of NumPy in its place, np.{value.dtype}, or call "
            "jax.config.update('jax_enable_x64', True)"
        )
    return jax.make_array_from_callback(
        held.shape, target.sharding, lambda index: held[index]
    )
