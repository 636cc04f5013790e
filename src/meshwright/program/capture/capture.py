"""Capture: traces a JAX function into a program, and names its inputs and outputs.

If an output is an input of the next call, as trained weights are, the two are recorded
as a pair (a tie), so that both can get the same sharding.
"""

import inspect
import re
import sysconfig
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshwright.errors import CaptureError
from meshwright.jax_private import gpu_for_cudnn, is_ordered, name_arguments
from meshwright.program.capture.convert import convert
from meshwright.program.capture.iterations import with_iterations
from meshwright.program.capture.kernel import read_kernels
from meshwright.program.capture.ties import find_ties
from meshwright.program.ir import Program
from meshwright.program.rewrite.bias_gradients import drop_unread_bias_gradients
from meshwright.program.rewrite.common_subexpressions import (
    eliminate_common_subexpressions,
)
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rewrite.flattened_products import unflatten_products

_INSTALLED = sysconfig.get_paths()["purelib"]
_PACKAGE = str(Path(__file__).parents[2])


@dataclass(frozen=True, eq=False)
class Captured:
    """A captured program, and the pytrees to which its inputs and outputs belong.

    paths: for each input leaf, a path that begins with the parameter's name, such as
        `state.params.0.kernel`.
    out_paths: for each output leaf, a path that begins with `out`.
    in_tree, out_tree: pytree structures of `(args, kwargs)` and of the result.
    avals, out_avals: `jax.ShapeDtypeStruct` of each leaf.
    ties: for outputs that are passed back in the next call, the position of the output
        and the position of the input that it becomes.
    donated: positions of input leaves whose buffers the caller donates.
    name: name of the function.
    """

    program: Program
    paths: tuple[str, ...]
    out_paths: tuple[str, ...]
    in_tree: Any
    out_tree: Any
    avals: tuple[Any, ...]
    out_avals: tuple[Any, ...]
    ties: Mapping[int, int]
    donated: tuple[int, ...] = ()
    name: str = ""


def capture(  # noqa: PLR0913  the options of `partition`
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None,
    donated: Collection[str] = (),
    kept: Collection[str] = (),
    loops: Mapping[str, int] | None = None,
) -> Captured:
    """Trace `fn(*args, **kwargs)`; leaves are arrays or `jax.ShapeDtypeStruct`s.

    names: names of the positional arguments; by default those in the signature of `fn`.
    donated: names of arguments, or paths of leaves, whose buffers the caller donates.
    kept: names of call-like primitives that become ops, rather than being inlined.
    loops: as in `with_iterations`.
    Raises `CaptureError` for ordered effects, which have no meaning on several devices,
    and for code in which Python needs the value of an array.
    """
    tree_args = (tuple(args), dict(kwargs or {}))
    with_paths, in_tree = jax.tree_util.tree_flatten_with_path(tree_args)
    names = positional_names(fn, len(args)) if names is None else names
    paths = tuple(
        ".".join([_argument(path, names), *map(path_component, path[2:])])
        for path, _ in with_paths
    )
    leaves = tuple(
        abstract(leaf, path) for (_, leaf), path in zip(with_paths, paths, strict=True)
    )
    donated_leaves = tuple(
        i
        for i, (path, _) in enumerate(with_paths)
        if _argument(path, names) in donated or paths[i] in donated
    )
    try:
        program, out_paths, out_tree, out_avals = _trace(
            fn, in_tree, leaves, paths, partial(_converted, kept, loops or {})
        )
    except _NEEDS_VALUE as error:
        raise CaptureError(_value_needed(error)) from error
    return Captured(
        program,
        paths,
        tuple(map(_out_path, out_paths)),
        in_tree,
        out_tree,
        leaves,
        tuple(out_avals),
        find_ties(in_tree, out_tree, program, donated_leaves),
        donated_leaves,
        getattr(fn, "__name__", ""),
    )


def _trace(
    fn: Callable[..., Any],
    in_tree: Any,
    leaves: Sequence[Any],
    paths: Sequence[str],
    convert_fn: Callable[[Any], Program],
) -> tuple[Program, list[Any], Any, Sequence[Any]]:
    """The program of `fn`, and the paths, pytree structure and types of its result.

    paths: names of the argument leaves, which appear in JAX's error messages.
    convert_fn: makes the program of a jaxpr.
    """
    out_paths: list[Any] = []
    out_trees: list[Any] = []

    def flat(*flat_leaves: Any) -> list[Any]:
        args, kwargs = jax.tree_util.tree_unflatten(in_tree, flat_leaves)
        # Flattened here: an unflattened tree of avals is not valid for every class.
        with_paths, tree = jax.tree_util.tree_flatten_with_path(fn(*args, **kwargs))
        for path, leaf in with_paths:
            _require_result(leaf, path)
        out_paths[:] = [path for path, _ in with_paths]
        out_trees[:] = [tree]
        return [leaf for _, leaf in with_paths]

    name_arguments(flat, fn, paths)
    with gpu_for_cudnn():
        jaxpr, out_avals = jax.make_jaxpr(flat, return_shape=True)(*leaves)
    _refuse_ordered(jaxpr.effects)
    program = convert_fn(jaxpr)
    _refuse_unpartitionable(program)
    return program, out_paths, out_trees[0], out_avals


def _converted(kept: Collection[str], loops: Mapping[str, int], jaxpr: Any) -> Program:
    """The program of a jaxpr, simplified; `kept` and `loops` are as in `capture`."""
    program = with_iterations(convert(jaxpr, kept), loops)
    program = unflatten_products(eliminate_common_subexpressions(program))
    return read_kernels(drop_unread_bias_gradients(eliminate_dead_code(program)))


_NUMBERS = bool | int | float | complex | np.ndarray | np.generic | jax.Array

_NEEDS_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def _value_needed(error: Exception) -> str:
    """The message for a tracing error, with the user's line and names of arguments."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = (_INSTALLED, _PACKAGE, "<")
    users = (f for f in reversed(frames) if not f.filename.startswith(ours))
    last = next(users, None)
    place = f" at {last.filename}:{last.lineno}: {last.line}" if last else ""
    found = re.search(r"the values? of the arguments? (.+)\.$", str(error), re.M)
    depends = f", which depends on {found[1]}" if found else ""
    return (
        f"Python needs the value of an array{depends}{place}; arrays have no values while "
        "a function is traced: use jnp.where or lax.cond for a choice, lax.fori_loop for a "
        "loop, and pass an argument that is no array, such as a size, in static_argnums"
    )


def abstract(leaf: Any, path: str = "argument") -> Any:
    """The `ShapeDtypeStruct` of an array-like leaf; Python scalars stay weakly typed."""
    if isinstance(leaf, _NUMBERS):
        try:
            aval: Any = jax.api_util.shaped_abstractify(leaf)
        except (TypeError, ValueError, OverflowError) as error:
            raise CaptureError(f"{path} cannot be an array of JAX: {error}") from error
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        weak = getattr(leaf, "weak_type", False)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=weak)
    raise CaptureError(
        f"{path} is a {type(leaf).__name__}, not an array; pass it in static_argnums or "
        "static_argnames, or register its class as a pytree"
    )


def _out_path(path: Sequence[Any]) -> str:
    return ".".join(["out", *map(path_component, path)])


def _require_result(leaf: Any, path: Sequence[Any]) -> None:
    """Raise `CaptureError` for a leaf of the result that is no array."""
    if not isinstance(leaf, _NUMBERS) and not hasattr(leaf, "__jax_array__"):
        raise CaptureError(
            f"the function returns a {type(leaf).__name__} at {_out_path(path)}; wanted "
            "arrays, numbers or None, in any pytree"
        )


def positional_names(fn: Callable[..., Any], count: int) -> tuple[str, ...]:
    """The parameter names of the first `count` positional arguments of `fn`.

    Arguments that the signature does not name are called `args.0` and so on.
    """
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return tuple(f"args.{i}" for i in range(count))
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in plain]
    rest = next((p.name for p in parameters if p.kind == p.VAR_POSITIONAL), "args")
    names += [f"{rest}.{i}" for i in range(count - len(names))]
    return tuple(names[:count])


def _argument(path: tuple[Any, ...], names: Sequence[str]) -> str:
    """The name of the argument that a leaf of (args, kwargs) belongs to."""
    return str(names[path[1].idx]) if path[0].idx == 0 else path_component(path[1])


def path_component(key: Any) -> str:
    """One component of a leaf's path: the text of a key, an index or a field."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute)).replace(".", "/")
    return str(key)


def _refuse_unpartitionable(program: Program) -> None:
    """Raise `CaptureError` if random bits depend on the whole array's shape.

    They do if `jax_threefry_partitionable` is off. Sharding would then change the bits.
    """
    if jax.config.jax_threefry_partitionable:  # pyright: ignore[reportAttributeAccessIssue]
        return
    if any(op.kind == "random_bits" for op in program.walk()):
        raise CaptureError(
            "jax_threefry_partitionable is off, and such random bits cannot be sharded; "
            "call jax.config.update('jax_threefry_partitionable', True)"
        )


def _refuse_ordered(effects: Any) -> None:
    bad = [str(effect) for effect in effects if is_ordered(effect)]
    if bad:
        raise CaptureError(
            f"ordered effects ({', '.join(bad)}) have no meaning on several devices; "
            "use debug.print(..., ordered=False) or io_callback(..., ordered=False)"
        )
