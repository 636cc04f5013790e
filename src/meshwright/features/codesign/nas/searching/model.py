"""Models as two functions, from what users build: flax modules, or functions of JAX."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from meshwright.errors import SearchError
from meshwright.features.codesign.nas.searching.cpu_convs import with_cpu_convs


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A model: its first state, and its outputs.

    init: from a random key and inputs to parameters, and other state such as averages of
        batch normalisation. apply: from both, inputs, and a random key if it trains and
        `None` if not, to outputs and the next other state.
    """

    init: Callable[[Any, Any], tuple[Any, Any]]
    apply: Callable[[Any, Any, Any, Any], tuple[Any, Any]]


def built_model(built: Any) -> BuiltModel:
    """The model of what `build` returned: a flax linen module, or (init, apply).

    init(key, inputs) gives parameters, apply(params, inputs) outputs.
    """
    if isinstance(built, BuiltModel):
        return built
    if isinstance(built, tuple) and len(built) == 2 and all(map(callable, built)):
        init, apply = built
        return BuiltModel(
            lambda key, inputs: (init(key, inputs), {}),
            lambda params, state, inputs, key: (apply(params, inputs), state),
        )
    if callable(getattr(built, "init", None)) and callable(
        getattr(built, "apply", None)
    ):
        return _of_linen(built)
    raise SearchError(
        f"build returned {built!r:.60}; wanted a flax linen module, or two functions "
        "(init, apply): init(key, inputs) gives parameters, apply(params, inputs) outputs"
    )


def _of_linen(module: Any) -> BuiltModel:
    takes_train = "train" in inspect.signature(type(module).__call__).parameters

    def init(key: Any, inputs: Any) -> tuple[Any, Any]:
        more = {"train": False} if takes_train else {}
        variables = dict(module.init(key, inputs, **more))
        return variables.pop("params", {}), variables

    def apply(params: Any, state: Any, inputs: Any, key: Any) -> tuple[Any, Any]:
        more = {"train": key is not None} if takes_train else {}
        variables = {"params": params, **state}
        if key is None:
            return module.apply(variables, inputs, **more), state
        more |= {"mutable": list(state), "rngs": {"dropout": key}}
        return with_cpu_convs(lambda: module.apply(variables, inputs, **more))

    return BuiltModel(init, apply)


def num_parameters(params: Any) -> int:
    """The number of elements of all parameters."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))
