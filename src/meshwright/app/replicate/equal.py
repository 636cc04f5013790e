"""Values that must not depend on the argument over which a function is mapped."""

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_batching import custom_vmap

from meshwright.errors import ReplicaError


def require_equal(tree: Any, name: str, message: Callable[[str], str]) -> Any:
    """The pytree, in a function under `jax.vmap`; each leaf must be equal for all.

    name: of the pytree, with which the paths of its leaves begin.
    message: the text of the `ReplicaError` if leaves depend on a mapped argument, given
        their names.
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
    """The first three leaves by name, and how many there are if there are more."""
    names = [show_path(name, path) for path in paths[:3]]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(names) + more


def show_path(name: str, path: Any) -> str:
    """The dotted name of a leaf, such as `state.params.up`."""
    rest = jax.tree_util.keystr(path, simple=True, separator=".")
    return f"{name}.{rest}" if rest else name
