"""A JAX function that IREE compiles and runs, in this process and on one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.errors import CompilerError
from meshwright.features.tune.iree.bench import is_close
from meshwright.features.tune.iree.toolchain import compile_program, fetch, load, place
from meshwright.jax_private import is_key


@dataclass(frozen=True, slots=True, eq=False)
class IreeProgram:
    """A function lowered to StableHLO for arguments of certain shapes.

    leaves: its arguments, flattened.
    in_tree, out_tree: pytree structures of its arguments and its results.
    results: shapes and dtypes of its results, flattened.
    """

    name: str
    text: str
    leaves: tuple[Any, ...]
    in_tree: Any
    out_tree: Any
    results: tuple[Any, ...]

    @classmethod
    def of(cls, fn: Callable[..., Any], args: Sequence[Any]) -> IreeProgram:
        """The program of a function and its arguments, which have to be arrays."""
        lowered = jax.jit(fn, keep_unused=True).lower(*args)
        leaves, in_tree = jax.tree.flatten(tuple(args))
        results, out_tree = jax.tree.flatten(lowered.out_info)
        name = getattr(fn, "__name__", "function")
        return cls(
            name, lowered.as_text(), tuple(leaves), in_tree, out_tree, tuple(results)
        )

    def compile(self, spec: str = "", timeout_s: float = 300.0) -> Callable[..., Any]:
        """The compiled function of flat arrays on IREE's device, with a tuning spec."""
        return load(compile_program(self.text, spec=spec, timeout_s=timeout_s))

    def placed(self, leaves: Sequence[Any]) -> list[Any]:
        """The flat arguments as arrays in the memory of IREE's device."""
        return place([np.asarray(plain_array(leaf)) for leaf in leaves])

    def is_right(self, compiled: Callable[..., Any], expected: Sequence[Any]) -> bool:
        """Whether compiled code computes what JAX computes."""
        results = fetch(compiled(*self.placed(self.leaves)))
        return all(
            is_close(result.astype(np.asarray(wanted).dtype), np.asarray(wanted))
            for result, wanted in zip(results, expected, strict=True)
        )

    def expected(self, fn: Callable[..., Any]) -> list[Any]:
        """Flat results of the function, computed by JAX."""
        args = jax.tree.unflatten(self.in_tree, self.leaves)
        return [plain_array(leaf) for leaf in jax.tree.leaves(jax.jit(fn)(*args))]

    def callable(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap compiled code as a function with the original's arguments and results."""

        def run(*args: Any) -> Any:
            leaves, tree = jax.tree.flatten(args)
            if tree != self.in_tree:
                raise CompilerError(
                    f"{self.name} was compiled for arguments of the structure "
                    f"{self.in_tree}; got {tree}"
                )
            shapes = [jnp.shape(leaf) for leaf in leaves]
            wanted = [jnp.shape(leaf) for leaf in self.leaves]
            if shapes != wanted:
                raise CompilerError(
                    f"{self.name} was compiled for arguments of shapes {wanted}; "
                    f"got {shapes}"
                )
            arrays = fetch(compiled(*self.placed(leaves)))
            results = list(map(_as_result, arrays, self.results))
            return jax.tree.unflatten(self.out_tree, results)

        run.__name__ = self.name
        return run


def plain_array(leaf: Any) -> Any:
    """An array in the form that compiled programs take; typed PRNG keys become integers."""
    array = jnp.asarray(leaf)
    return jax.random.key_data(array) if is_key(array.dtype) else array


def _as_result(result: Any, info: Any) -> Any:
    """A result of IREE, converted to the dtype that JAX gives it."""
    if is_key(info.dtype):
        return jax.random.wrap_key_data(jnp.asarray(result))
    return jnp.asarray(result, info.dtype)
