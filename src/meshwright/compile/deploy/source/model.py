"""The model that all targets deploy: a program, its weights, and results of JAX."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from meshwright.errors import DeployError, did_you_mean
from meshwright.jax_private import is_key
from meshwright.program.capture import capture
from meshwright.program.ir import Program, Value
from meshwright.program.rewrite.dead_code import eliminate_dead_code

WEIGHT_ARGUMENTS = ("batch_stats", "params", "stats", "variables", "weights")
"""Names of arguments that are weights unless the caller says which are."""


@dataclass(frozen=True, slots=True)
class Port:
    """The name, shape and dtype of an input or output of a deployed model."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def to_json(self) -> dict[str, object]:
        """Fields as JSON has them."""
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False)
class SourceModel:
    """A captured function with its weights told apart from its inputs.

    program: its inputs are weights and model inputs, in the order of the arguments.
    weights: arrays by the value of the program's input that they are.
    names: of the program's inputs. outputs: as the deployed model returns them.
    samples: one array per model input, from the caller's arguments.
    ties: for a training step, from names of outputs to the inputs that they become.
    fn, args: the original, to compute what is expected.
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
        """The model's inputs: those of the program that are no weights."""
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
        """JAX's own results of the samples, flat, compiled once and timed by callers."""
        compiled = jax.jit(self.fn)
        return lambda: jax.block_until_ready(jax.tree.leaves(compiled(*self.args)))

    @cached_property
    def expected(self) -> tuple[NDArray[Any], ...]:
        """JAX's results as arrays of NumPy, those of keys as their words."""
        return tuple(np.asarray(plain(leaf)) for leaf in self.jitted())

    def baked(self) -> Program:
        """The program with weights as constants, so that model inputs alone are left."""
        program = self.program
        inputs = tuple(v for v in program.inputs if v not in self.weights)
        constants = {**program.constants, **self.weights}
        return eliminate_dead_code(replace(program, inputs=inputs, constants=constants))


def read_model(
    fn: Callable[..., Any], args: Sequence[Any], weights: Collection[str] | None
) -> SourceModel:
    """The model of `fn(*args)`, whose arguments are arrays.

    weights: names of arguments that become part of the model; by default those that
        `WEIGHT_ARGUMENTS` lists, unless the function returns them as its next state.
    """
    if isinstance(weights, str):
        raise DeployError(f"weights is a text; wanted a list of names: [{weights!r}]")
    captured = capture(fn, args)
    _require_deployable(captured.program)
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


_CALLBACKS = ("debug_callback", "debug_print", "io_callback", "pure_callback")
"""Kinds of ops that call Python."""


def _require_deployable(program: Program) -> None:
    """Raise `DeployError` for a program without results, or one that calls Python."""
    if not program.outputs:
        raise DeployError("the function returns no array: there is nothing to deploy")
    for op in program.walk():
        if op.kind in _CALLBACKS:
            raise DeployError(
                f"`{op.kind}` at {op.source or 'an unknown line'} calls Python, which is "
                "not there where a deployed model runs: remove it, or move it out of the "
                "function"
            )


def _name_of(fn: Any) -> str:
    """The name of a function, also of one with some arguments filled in."""
    inner = getattr(fn, "func", fn)
    return getattr(inner, "__name__", type(inner).__name__)


PLAIN_DTYPES = (
    "bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64",
)  # fmt: skip
"""Dtypes of NumPy itself, which all loaders but IREE's are limited to."""


def require_plain_dtypes(model: SourceModel, target: str) -> None:
    """Raise `DeployError` if the dtype of an input or output is no number type of NumPy."""
    for port in (*model.inputs, *model.outputs):
        if port.dtype not in PLAIN_DTYPES:
            raise DeployError(
                f"{target} takes and returns no {port.dtype}, as in {port}: convert it "
                "in the function, to float32 say"
            )


def _weight_positions(captured: Any, wanted: Collection[str] | None) -> frozenset[int]:
    """Positions of the inputs that are weights."""
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
    """An array as other runtimes take it: typed keys are arrays of their words."""
    if isinstance(leaf, jax.Array) and is_key(leaf.dtype):
        return jax.random.key_data(leaf)
    return np.asarray(jax.numpy.asarray(leaf))


def _plain_type(aval: Any) -> tuple[tuple[int, ...], str]:
    if is_key(aval.dtype):
        words = jax.eval_shape(jax.random.key_data, aval)
        return tuple(words.shape), str(words.dtype)
    return tuple(aval.shape), str(aval.dtype)
