"""JAX's types of the program's values, also of typed PRNG keys."""

from typing import Any

import jax
import jax.numpy as jnp

from meshwright.program.ir import Atom

KEY_GENERATORS = {
    "key<fry>": "threefry2x32",
    "key<rbg>": "rbg",
    "key<urbg>": "unsafe_rbg",
}
"""JAX's name of the generator of each dtype of PRNG keys."""


def aval_of(atom: Atom) -> jax.ShapeDtypeStruct:
    """The JAX type of a value: its shape, and its dtype as JAX's object."""
    return jax.ShapeDtypeStruct(atom.shape, jax_dtype(atom.dtype))


def jax_dtype(name: str) -> Any:
    """JAX's dtype of the program's dtype name, such as `float32` or `key<fry>`."""
    if name not in KEY_GENERATORS:
        return jnp.dtype(name)
    generator = KEY_GENERATORS[name]
    return jax.eval_shape(lambda: jax.random.key(0, impl=generator)).dtype
