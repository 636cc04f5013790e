"""JAX's types of the program's values, also of PRNG keys, and numbers in parameters."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

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


def python_integers(param: Any) -> Any:
    """An equation's parameter with Python's integers in place of NumPy's, in tuples too.

    JAX itself leaves NumPy's there, such as in the paddings of a convolution's gradient;
    bytes that are counted with them could not be written as JSON.
    """
    if type(param) in (tuple, list):
        entries = cast(list[Any], param)
        return type(entries)(map(python_integers, entries))
    return int(param) if isinstance(param, np.integer) else param
