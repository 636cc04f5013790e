"""Random arguments and virtual CPU devices, on which programs are checked."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.program.analysis.input_ranges import find_ranges
from meshwright.program.capture import KEY_GENERATORS, abstract, capture
from meshwright.program.ir import itemsize_bytes

_SCALE = 0.1
"""Standard deviation of random floats, small for deep programs without normalisation."""

_SMALL = 8
"""Exclusive upper bound of random integers that are no indices, such as step counts."""


def sample_arguments(
    fn: Callable[..., Any], args: Sequence[Any], seed: int
) -> tuple[Any, ...]:
    """`args` with every `ShapeDtypeStruct` replaced by random numbers of its type.

    Floats are normal with standard deviation 0.1, and positive where the program takes a
    root or logarithm of them. Integers are valid indices of the arrays that they index.
    PRNG keys are valid keys. Arrays are kept unchanged.
    """
    leaves, tree = jax.tree_util.tree_flatten(tuple(args))
    if not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        return tuple(args)
    ranges = find_ranges(capture(fn, args).program)
    rng = np.random.default_rng(seed)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, jax.ShapeDtypeStruct):
            is_positive = i in ranges.positive
            leaves[i] = sample(leaf, rng, ranges.bounds.get(i), is_positive)
    return jax.tree_util.tree_unflatten(tree, leaves)


def sample(
    aval: jax.ShapeDtypeStruct,
    rng: np.random.Generator,
    bound: int | None = None,
    is_positive: bool = False,
) -> Any:
    """A random array with the shape and dtype of `aval`.

    bound: exclusive upper bound of integers. is_positive: make floats positive.
    """
    shape, dtype = aval.shape, aval.dtype
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        key = jax.random.key(
            int(rng.integers(2**31)), impl=KEY_GENERATORS.get(str(dtype))
        )
        return jax.random.split(key, math.prod(shape)).reshape(shape)
    if dtype == jnp.bool_:
        return rng.integers(2, size=shape).astype(bool)
    if jnp.issubdtype(dtype, jnp.integer):
        return rng.integers(_bound(dtype, bound), size=shape).astype(dtype)
    numbers = rng.normal(scale=_SCALE, size=shape)
    if is_positive:
        numbers = np.abs(numbers)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return (numbers + 1j * rng.normal(scale=_SCALE, size=shape)).astype(dtype)
    return numbers.astype(dtype)


def _bound(dtype: Any, bound: int | None) -> int:
    """The exclusive upper bound of random integers of a dtype.

    bound: the bound that valid indices need; `None` for integers that are no indices.
    """
    most = int(jnp.iinfo(dtype).max)
    if bound is not None:
        return min(bound, most)
    if dtype in (jnp.uint8, jnp.uint32):  # bytes of images, words of raw keys
        return most + 1
    return min(_SMALL, most)


def argument_bytes(args: Sequence[Any]) -> int:
    """Total bytes of all leaves of the arguments."""
    avals = [abstract(leaf) for leaf in jax.tree_util.tree_leaves(tuple(args))]
    return sum(math.prod(a.shape) * itemsize_bytes(str(a.dtype)) for a in avals)


def use_virtual_devices(count: int) -> None:
    """Make JAX run on `count` virtual CPU devices, unless it has started already.

    JAX counts its devices when they are first used; then the number cannot change any
    more.
    """
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX has started; `jax_mesh` says if the devices are too few
        return
    jax.config.update("jax_platforms", "cpu")
