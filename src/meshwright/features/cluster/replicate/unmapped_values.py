"""A check that values in a function under `jax.vmap` do not depend on mapped arguments."""

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_batching import custom_vmap

from meshwright.errors import ReplicaError


def require_equal(tree: Any, name: str, message: Callable[[str], str]) -> Any:
    """The pytree itself, after a check that its leaves are equal for all replicas.

    It is called in a function under `jax.vmap` over replicas. A leaf that depends on a
    mapped argument raises `ReplicaError`.
    name: name of the pytree, with which the paths of its leaves begin.
    message: the function that makes the error's text from the names of the leaves.
    """
    found, treedef = jax.tree_util.tree_flatten_with_path(tree)
    paths = [path for path, _ in found]

    def same(*leaves: Any) -> Any:
        return leaves

    def refuse(size: int, in_batched: list[bool], *leaves: Any) -> Any:
        del size, leaves
        pairs = zip(paths, in_batched, strict=True)
        raise ReplicaError(message(_list_leaves(name, [p for p, b in pairs if b])))

    checked: Any = custom_vmap(same)
    checked.def_vmap(refuse)
    return jax.tree_util.tree_unflatten(treedef, checked(*(leaf for _, leaf in found)))


def _list_leaves(name: str, paths: list[Any]) -> str:
    """Text with the names of the first three leaves, and the number of further leaves."""
    names = [show_path(name, path) for path in paths[:3]]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(names) + more


def show_path(name: str, path: Any) -> str:
    """The dotted name of a leaf, such as `state.params.up`."""
    rest = jax.tree_util.keystr(path, simple=True, separator=".")
    return f"{name}.{rest}" if rest else name
