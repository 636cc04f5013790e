"""Warnings about flax nnx modules that a partitioned function would not train.

To JAX, a module that a function uses but does not take as an argument is a constant.
Changes of an argument that the function does not return are lost. `jax.jit` warns of
neither.
"""

import dis
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import jax

from meshwright.app.output.notices import warn

_CURE = (
    "pass it as an argument and return it, or use mw.nnx.partition, which changes modules "
    "in place as nnx.jit does"
)


def warn_about_modules(fn: Callable[..., Any]) -> None:
    """Warn of each nnx module with parameters that `fn` uses but does not take."""
    for name, module in _captured(fn):
        warn(
            f"the function takes {name}, a {type(module).__name__}, from outside of its "
            "arguments: its parameters become constants of the compiled step, do not "
            f"learn, and are not seen when they change later; {_CURE}"
        )


def warn_about_lost_changes(
    fn: Callable[..., Any], names: tuple[str, ...]
) -> Callable[..., Any]:
    """The function `fn`, with a warning if it changes a module that it does not return.

    names: names of the positional arguments.
    """

    def watched(*args: Any, **kwargs: Any) -> Any:
        arguments = dict(zip(names, args, strict=False)) | kwargs
        modules = {n: a for n, a in arguments.items() if any(_modules_in(a))}
        before = {n: jax.tree_util.tree_leaves(a) for n, a in modules.items()}
        result = fn(*args, **kwargs)
        returned = jax.tree_util.tree_leaves(result)
        for name, module in modules.items():
            after = jax.tree_util.tree_leaves_with_path(module)
            pairs = zip(after, before[name], strict=False)
            lost = [
                jax.tree_util.keystr(path, simple=True, separator=".")
                for (path, new), old in pairs
                if new is not old and not any(new is leaf for leaf in returned)
            ]
            if lost:
                warn(
                    f"the function changes {name}.{lost[0]} in place and does not return "
                    f"it, so that the change is lost (one of {len(lost)}); return {name}, "
                    "or use mw.nnx.partition, which keeps changes as nnx.jit does"
                )
        return result

    watched.__name__ = getattr(fn, "__name__", "")
    functools.update_wrapper(watched, fn, ("__doc__",), ())  # JAX's messages name `fn`
    return watched


def _nnx() -> Any:
    """The Python module `flax.nnx` if the program has imported it, else `None`."""
    nnx = sys.modules.get("flax.nnx")
    return nnx if hasattr(nnx, "Pytree") else None


def _modules_in(tree: Any) -> Iterator[Any]:
    """The nnx modules, optimizers and other nnx pytrees in a pytree, outermost only."""
    nnx = _nnx()
    if nnx is not None:
        leaves = jax.tree_util.tree_leaves(
            tree, is_leaf=lambda x: isinstance(x, nnx.Pytree)
        )
        yield from (leaf for leaf in leaves if isinstance(leaf, nnx.Pytree))


def _captured(fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Pairs (name, nnx module) of modules that `fn` uses but does not take.

    Only modules with parameters are included.
    """
    nnx = _nnx()
    if nnx is None:
        return
    seen: list[Any] = []
    todo: list[tuple[str, Any]] = [("self", fn)]
    while todo:
        name, value = todo.pop()
        if any(value is known for known in seen):
            continue
        seen.append(value)
        if isinstance(value, nnx.Pytree):
            if jax.tree_util.tree_leaves(nnx.state(value, nnx.Param)):
                yield name, value
        else:
            todo += _surroundings(name, value)


def _surroundings(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Pairs (name, value) of what a function can read besides its arguments.

    These are closure variables, globals, and bound objects or arguments.
    """
    if inspect.ismethod(value):
        yield f"the object of the method {value.__name__}", value.__self__
        yield name, value.__func__
    elif isinstance(value, partial):
        yield name, value.func
        yield from ((f"an argument of partial({name})", arg) for arg in value.args)
        yield from value.keywords.items()
    elif isinstance(value, FunctionType):
        yield from inspect.getclosurevars(value).nonlocals.items()
        yield from _globals(value)
    wrapped = getattr(value, "__wrapped__", None)
    if wrapped is not None:
        yield name, wrapped


def _globals(fn: FunctionType) -> Iterator[tuple[str, Any]]:
    """Pairs (name, value) of globals that a function reads.

    Only nnx modules, and functions of the same file, are included.
    """
    nnx = _nnx()
    for name in _global_names(fn.__code__):
        value = fn.__globals__.get(name)
        is_near = isinstance(value, FunctionType) and value.__module__ == fn.__module__
        if is_near or isinstance(value, nnx.Pytree):
            yield name, value


def _global_names(code: CodeType) -> Iterator[str]:
    """Names of the globals that a function, or a function nested in it, reads."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)
