"""The arguments of one call: static arguments are bound, all others are traced.

Static arguments, as in `jax.jit`, are Python values that tracing treats as constants.
`donation.py` checks donated arguments.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from meshwright.errors import PlanError
from meshwright.program.capture.capture import abstract, positional_names

Names = str | Sequence[str] | None
Numbers = int | Sequence[int] | None


@dataclass(frozen=True, slots=True, eq=False)
class CallArguments:
    """The arguments of one call, separated into static ones and traced ones.

    positional: names of all positional arguments, in order.
    static: values of the static arguments, by name.
    traced: all other arguments, as a pair (args, kwargs).
    """

    positional: tuple[str, ...]
    static: Mapping[str, Any]
    traced: tuple[tuple[Any, ...], dict[str, Any]]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the traced positional arguments, in order."""
        return tuple(name for name in self.positional if name not in self.static)

    def bind(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function `fn` of the traced arguments only; static ones are bound."""
        names, static = self.positional, self.static
        keywords = {k: v for k, v in static.items() if k not in names}

        def bound(*traced: Any, **more: Any) -> Any:
            rest = iter(traced)
            full = [static[n] if n in static else next(rest) for n in names]
            return fn(*full, **keywords, **more)

        bound.__name__ = getattr(fn, "__name__", "")
        functools.update_wrapper(
            bound, fn, ("__doc__",), ()
        )  # JAX's messages name `fn`
        return bound


def split_arguments(
    fn: Callable[..., Any],
    static: frozenset[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> CallArguments:
    """Separate the arguments of the call `fn(*args, **kwargs)` into static and traced.

    static: names of the static arguments.
    """
    names = positional_names(fn, len(args))
    named = [*zip(names, args, strict=True)]
    return CallArguments(
        names,
        {n: a for n, a in (*named, *kwargs.items()) if n in static},
        (
            tuple(a for n, a in named if n not in static),
            {k: v for k, v in kwargs.items() if k not in static},
        ),
    )


def leaf_signature(leaf: Any) -> Any:
    """The shape, dtype and weak type of a pytree leaf, as part of a cache key.

    Every call of a partitioned function computes it, so that it must be cheap.
    """
    if isinstance(leaf, jax.Array | np.ndarray):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)
    aval = abstract(leaf)
    return aval.shape, aval.dtype, aval.weak_type


def list_names(fn: Callable[..., Any], numbers: int | Sequence[int]) -> list[str]:
    """Names of the parameters of `fn` at the positions `numbers`, in that order."""
    each = _listed(numbers, int | np.integer, "numbers")
    return [name for number in each for name in argument_names(fn, number, None)]


def argument_names(
    fn: Callable[..., Any], numbers: Numbers, names: Names
) -> frozenset[str]:
    """Names of the parameters of `fn` given by number, by name or both.

    `numbers` and `names` are values of options such as `static_argnums` and
    `static_argnames`.
    """
    chosen = set(_listed(names, str, "names"))
    wanted = _listed(numbers, int | np.integer, "numbers")
    if not wanted and not chosen:
        return frozenset()
    parameters = inspect.signature(fn).parameters
    positional = [
        p.name for p in parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    takes_more = any(p.kind == p.VAR_POSITIONAL for p in parameters.values())
    for number in wanted:
        if number >= len(positional) and takes_more:
            chosen.add(positional_names(fn, number + 1)[number])
        elif not -len(positional) <= number < len(positional):
            raise PlanError(
                f"argument number {number} is out of range; there are {positional}"
            )
        else:
            chosen.add(positional[number])
    takes_any = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
    unknown = sorted(c for c in chosen if c.partition(".")[0] not in parameters)
    if unknown and not takes_any:
        raise PlanError(f"no parameter named {unknown}; there are {list(parameters)}")
    return frozenset(chosen)


def _listed(given: Any, kind: Any, what: str) -> tuple[Any, ...]:
    """The given numbers or names as a tuple; `PlanError` if they are anything else."""
    if given is None or isinstance(given, kind):
        return () if given is None else (given,)
    listed = tuple(given) if isinstance(given, Sequence | Set) else (None,)
    if isinstance(given, str) or not all(isinstance(each, kind) for each in listed):
        raise PlanError(f"arguments are given as {given!r}; wanted their {what}")
    return listed


def is_array(leaf: Any) -> bool:
    """Whether a leaf is a JAX array with data, not a tracer."""
    return isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)


def require_arrays(paths: Sequence[str], leaves: Sequence[Any]) -> None:
    """Raise `PlanError` if a leaf has no data, which a step needs to run."""
    for path, leaf in zip(paths, leaves, strict=True):
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise PlanError(
                f"{path} is a ShapeDtypeStruct, which has no numbers; a step runs on "
                "arrays, and `plan` takes shapes"
            )
        if is_array(leaf) and leaf.is_deleted():
            raise PlanError(
                f"{path} is an array that was deleted, as a call does with the arguments "
                "that are donated to it; go on with the result of that call, or leave the "
                "argument out of donate_argnums and donate_argnames (a step by a found "
                "plan donates its state, unless donate_argnums=() is given)"
            )
