"""`SourceModel`: a program, its weights and JAX's results, as all targets read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from meshwright.errors import DeployError, did_you_mean
from meshwright.jax_private import is_key
from meshwright.program.analysis.python_calls import python_calls
from meshwright.program.capture import capture
from meshwright.program.ir import Program, Value
from meshwright.program.rewrite.dead_code import eliminate_dead_code

WEIGHT_ARGUMENTS = ("batch_stats", "params", "stats", "variables", "weights")
"""Names of arguments that become part of the model, unless the caller names others."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a deployed model: name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False)
class SourceModel:
    """A captured function whose inputs are divided into weights and model inputs.

    program: the function; its inputs are weights and model inputs, in argument order.
    weights: the array of each program input that is a weight.
    names: the path of each program input, such as `params.w`.
    outputs: the outputs, in the order in which the deployed model returns them.
    samples: an array for each model input, from the caller's arguments.
    ties: for a training step, the input that each output replaces in the next step, by
        name.
    fn, args: the original function and arguments, with which JAX's results are
        computed.
    """

    name: str
    program: Program
    weights: Mapping[Value, NDArray[Any]]
    names: Mapping[Value, str]
    outputs: tuple[Port, ...]
    samples: tuple[NDArray[Any], ...]
    ties: Mapping[str, str]
    fn: Callable[..., Any]
    args: tuple[Any, ...]

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The model's inputs: the inputs of the program that are not weights."""
        names = [self.names[v] for v in self.program.inputs if v not in self.weights]
        return tuple(
            Port(name, array.shape, str(array.dtype))
            for name, array in zip(names, self.samples, strict=True)
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(array.nbytes for array in self.weights.values())

    @cached_property
    def jitted(self) -> Callable[[], list[Any]]:
        """A function that computes JAX's results for the samples, as a list of leaves.

        It is compiled once, and its callers may measure it.
        """
        compiled = jax.jit(self.fn)
        return lambda: jax.block_until_ready(jax.tree.leaves(compiled(*self.args)))

    @cached_property
    def expected(self) -> tuple[NDArray[Any], ...]:
        """JAX's results as NumPy arrays; random keys are arrays of their words."""
        return tuple(np.asarray(plain(leaf)) for leaf in self.jitted())

    def baked(self) -> Program:
        """The program with weights as constants; its inputs are the model's."""
        program = self.program
        inputs = tuple(v for v in program.inputs if v not in self.weights)
        constants = {**program.constants, **self.weights}
        return eliminate_dead_code(replace(program, inputs=inputs, constants=constants))


def read_model(
    fn: Callable[..., Any], args: Sequence[Any], weights: Collection[str] | None
) -> SourceModel:
    """The model of `fn(*args)`, whose arguments are arrays.

    weights: names of arguments that become part of the model. By default these are the
        names in `WEIGHT_ARGUMENTS`, except arguments that the function returns as its
        next state.
    """
    if isinstance(weights, str):
        raise DeployError(f"weights is a text; wanted a list of names: [{weights!r}]")
    captured = capture(fn, args)
    _require_deployable(captured.program)
    _require_own_names("arguments", captured.paths)
    _require_own_names("results", captured.out_paths)
    leaves = jax.tree.leaves(tuple(args))
    fixed = _weight_positions(captured, weights)
    program = captured.program
    paths = captured.paths
    arrays = [np.asarray(plain(leaf)) for leaf in leaves]
    chosen = {program.inputs[i]: arrays[i] for i in fixed}
    names = dict(zip(program.inputs, paths, strict=True))
    outputs = tuple(
        Port(path, *_plain_type(aval))
        for path, aval in zip(captured.out_paths, captured.out_avals, strict=True)
    )
    return SourceModel(
        captured.name or _name_of(fn),
        program,
        chosen,
        names,
        outputs,
        tuple(array for i, array in enumerate(arrays) if i not in fixed),
        {captured.out_paths[o]: paths[i] for o, i in captured.ties.items()},
        fn,
        tuple(args),
    )


def _require_deployable(program: Program) -> None:
    """Raise `DeployError` for a program without results, or one that calls Python."""
    if not program.outputs:
        raise DeployError("the function returns no array: there is nothing to deploy")
    for op in python_calls(program):
        raise DeployError(
            f"`{op.kind}` at {op.source or 'an unknown line'} calls Python, which is not "
            "there where a deployed model runs: remove it, or move it out of the function"
        )


def _require_own_names(what: str, paths: Sequence[str]) -> None:
    """Raise `DeployError` if two leaves have one name, so that a runtime mixes them up."""
    for name, count in Counter(paths).items():
        if count > 1:
            raise DeployError(
                f"{count} {what} have the name {name!r}, by which a deployed model tells "
                "them apart (`.` in a key is written as `/`): rename their keys"
            )


def _name_of(fn: Any) -> str:
    """The name of a function; of a `functools.partial`, that of its inner function."""
    inner = getattr(fn, "func", fn)
    return getattr(inner, "__name__", type(inner).__name__)


PLAIN_DTYPES = (
    "bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64",
)  # fmt: skip
"""NumPy's own number types; loaders other than IREE's accept no other dtypes."""


def require_plain_dtypes(model: SourceModel, target: str) -> None:
    """Raise `DeployError` for inputs and outputs of dtypes not in `PLAIN_DTYPES`."""
    for port in (*model.inputs, *model.outputs):
        if port.dtype not in PLAIN_DTYPES:
            raise DeployError(
                f"{target} takes and returns no {port.dtype}, as in {port}: convert it "
                "in the function, to float32 say"
            )


def _weight_positions(captured: Any, wanted: Collection[str] | None) -> frozenset[int]:
    """Positions of the program's inputs that are weights."""
    arguments = [path.split(".")[0] for path in captured.paths]
    if wanted is None:
        tied = {arguments[i] for i in captured.ties.values()}
        chosen = {a for a in arguments if a in WEIGHT_ARGUMENTS} - tied
    else:
        chosen = set(wanted)
        for name in sorted(chosen - set(arguments)):
            known = sorted(set(arguments))
            raise DeployError(
                f"weights name {name!r}, which is no argument with arrays"
                f"{did_you_mean(name, known)}; there are {', '.join(known)}"
            )
    found = frozenset(i for i, name in enumerate(arguments) if name in chosen)
    if len(found) == len(arguments) and arguments:
        raise DeployError(
            f"all arguments are weights ({', '.join(sorted(chosen))}): nothing is left "
            "to give the deployed model; name fewer in weights"
        )
    return found


def plain(leaf: Any) -> Any:
    """A plain array; a typed random key becomes an array of its words."""
    if isinstance(leaf, jax.Array) and is_key(leaf.dtype):
        return jax.random.key_data(leaf)
    return np.asarray(jax.numpy.asarray(leaf))


def _plain_type(aval: Any) -> tuple[tuple[int, ...], str]:
    if is_key(aval.dtype):
        words = jax.eval_shape(jax.random.key_data, aval)
        return tuple(words.shape), str(words.dtype)
    return tuple(aval.shape), str(aval.dtype)
