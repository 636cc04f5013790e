"""Lowering of programs to StableHLO text, which IREE and LiteRT read."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from meshwright.features.deploy.stablehlo.index_bounds import (
    clamp_gathers,
    redirect_scatters,
)
from meshwright.program.capture import KEY_GENERATORS
from meshwright.program.ir import Program, Value
from meshwright.run.local.execute import run_program


def lower_to_stablehlo(program: Program, *, redirect: bool = False) -> Any:
    """The program as a StableHLO module for one device, with a function `main`.

    Its `str` is the text that compilers read.

    Random keys among inputs and outputs are arrays of their words. Indices of gathers
    are clamped to the array.

    redirect: write out-of-bounds updates of scatters into a margin that is cut off, for
        compilers that do not skip them (`index_bounds.py`).
    """

    def main(*arrays: Any) -> list[Any]:
        given = [_as_typed(x, v) for x, v in zip(arrays, program.inputs, strict=True)]
        return [
            jax.random.key_data(x) if str(x.dtype) in KEY_GENERATORS else x
            for x in map(jnp.asarray, run_program(program, given))
        ]

    shapes = [_plain_shape(value) for value in program.inputs]
    module: Any = (
        jax.jit(main, keep_unused=True).lower(*shapes).compiler_ir("stablehlo")
    )
    clamp_gathers(module)
    if redirect:
        redirect_scatters(module)
    return module


def _as_typed(array: Any, value: Value) -> Any:
    if value.dtype not in KEY_GENERATORS:
        return array
    return jax.random.wrap_key_data(array, impl=KEY_GENERATORS[value.dtype])


def _plain_shape(value: Value) -> jax.ShapeDtypeStruct:
    if value.dtype not in KEY_GENERATORS:
        return jax.ShapeDtypeStruct(value.shape, value.dtype)
    impl = KEY_GENERATORS[value.dtype]
    key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=impl)))
    return jax.ShapeDtypeStruct((*value.shape, *key.shape), key.dtype)
