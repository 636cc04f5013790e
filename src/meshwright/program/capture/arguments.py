"""The arguments of a call: static ones are bound, the others are traced."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from meshwright.errors import PlanError
from meshwright.program.capture.capture import abstract, positional_names

Names = str | Sequence[str] | None
Numbers = int | Sequence[int] | None


@dataclass(frozen=True, slots=True, eq=False)
class CallArguments:
    """The arguments of one call.

    positional: names of all positional arguments, in order.
    static: values of the static arguments, by name.
    traced: (args, kwargs) of all other arguments.
    """

    positional: tuple[str, ...]
    static: Mapping[str, Any]
    traced: tuple[tuple[Any, ...], dict[str, Any]]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the traced positional arguments, in order."""
        return tuple(name for name in self.positional if name not in self.static)

    def bind(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function `fn` of the traced arguments, with the static ones bound."""
        names, static = self.positional, self.static
        keywords = {k: v for k, v in static.items() if k not in names}

        def bound(*traced: Any, **more: Any) -> Any:
            rest = iter(traced)
            full = [static[n] if n in static else next(rest) for n in names]
            return fn(*full, **keywords, **more)

        bound.__name__ = getattr(fn, "__name__", "")
        return bound


def split_arguments(
    fn: Callable[..., Any],
    static: frozenset[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> CallArguments:
    """The arguments of the call `fn(*args, **kwargs)`; `static` names the static ones."""
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
    """The cache key of a leaf. Every call computes it, so that it has to be cheap."""
    if isinstance(leaf, jax.Array | np.ndarray):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)
    aval = abstract(leaf)
    return aval.shape, aval.dtype, aval.weak_type


def list_names(fn: Callable[..., Any], numbers: int | Sequence[int]) -> list[str]:
    """Names of the parameters at positions, in their order."""
    each = (numbers,) if isinstance(numbers, int) else numbers
    return [name for number in each for name in argument_names(fn, number, None)]


def argument_names(
    fn: Callable[..., Any], numbers: Numbers, names: Names
) -> frozenset[str]:
    """Names of the parameters that `*_argnums` and `*_argnames` choose."""
    chosen = {names} if isinstance(names, str) else set(names or ())
    wanted = (numbers,) if isinstance(numbers, int) else tuple(numbers or ())
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


def require_arrays(paths: Sequence[str], leaves: Sequence[Any]) -> None:
    """Raise `PlanError` if a leaf has only a shape: a step that runs needs the numbers."""
    for path, leaf in zip(paths, leaves, strict=True):
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise PlanError(
                f"{path} is a ShapeDtypeStruct, which has no numbers; a step runs on "
                "arrays, and `plan` takes shapes"
            )
