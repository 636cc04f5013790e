"""`linearize`: a function taken apart into a non-linear and a linear program.

It traces the function once, and runs its non-linear program if arguments are arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.compile.autodiff.check import check_linear
from meshwright.compile.autodiff.explicit import erase, make_explicit
from meshwright.compile.autodiff.forward import forward
from meshwright.compile.autodiff.op_rules import KEPT, is_differentiable
from meshwright.compile.autodiff.residual import Residual, list_residuals
from meshwright.compile.autodiff.transpose import transpose
from meshwright.compile.autodiff.typing import LinearProgram
from meshwright.compile.autodiff.unzip import Unzipped, unzip
from meshwright.errors import AutodiffError
from meshwright.partitioner.tactics import Recompute, recompute
from meshwright.program.analysis.executions import op_executions
from meshwright.program.capture import Captured, capture
from meshwright.program.ir import Program
from meshwright.program.ops import OpWork, work_of
from meshwright.run.local.execute import run_program


def linearize(
    fn: Callable[..., Any],
    *args: Any,
    keep: str | Sequence[str] | Recompute | None = None,
) -> Linearized:
    """The function's linear approximation at `args`, as programs that print and run.

    fn: a function of pytrees. args: arrays, or `jax.ShapeDtypeStruct`s, with which the
        programs can be printed and counted, but not run.
    keep: what the backward pass reads from the forward pass, as for `mw.recompute`, or
        such a tactic, which the planner may have found; the rest is computed again. By
        default everything is saved that takes time to compute.
    Derivatives are with respect to all floats and complex numbers of `args`. Functions
    with `jax.custom_jvp` and `jax.custom_vjp` have the derivatives that they define.
    Raises `AutodiffError` for an op without a derivative, with its source line.
    """
    captured = capture(fn, args, kept=KEPT)
    program = captured.program
    active = {v for v in program.inputs if is_differentiable(v.dtype)}
    dual = forward(program, active)
    typed = check_linear(make_explicit(dual.program, dual.tangents))
    parts = unzip(typed, len(program.outputs))
    if (
        keep is not None
    ):  # which may name ops of derivatives, such as the cosine of a sine
        saved = _tactic(keep).kept_values(parts.nonlinear)
        parts = unzip(typed, len(program.outputs), saved)
    return Linearized(captured, dual.present, typed, parts, jax.tree.leaves(args))


def _tactic(keep: str | Sequence[str] | Recompute) -> Recompute:
    return keep if isinstance(keep, Recompute) else recompute(keep)


def residuals_of_loss(
    fn: Callable[..., Any], args: Sequence[Any], tactics: Sequence[object] = ()
) -> tuple[Residual, ...] | None:
    """Residuals of a loss's gradient, on one device; `None` if `fn` is no loss.

    A loss returns one number. tactics: only `mw.recompute` may be among them.
    """
    result = jax.tree.leaves(jax.eval_shape(fn, *args))
    if (
        len(result) != 1
        or result[0].shape
        or not is_differentiable(str(result[0].dtype))
    ):
        return None
    keeps = [t for t in tactics if isinstance(t, Recompute)]
    if len(keeps) > 1 or len(keeps) < len(tactics):
        raise AutodiffError(
            "residuals of a loss are those of one device, so that the only tactic for it "
            "is one recompute; give a train step for residuals under other tactics"
        )
    return linearize(fn, *args, keep=keeps[0] if keeps else None).residuals


@dataclass(frozen=True, eq=False)
class Linearized:
    """A function at some arguments, taken apart into a non-linear and a linear program.

    captured: the function as a program, with its trees and names.
    present: for each leaf of the result, whether it depends on differentiated inputs.
    dual: the program after forward mode, whose linear values are tangents.
    parts: the same after unzip.
    leaves: the arguments.
    """

    captured: Captured
    present: tuple[bool, ...]
    dual: LinearProgram
    parts: Unzipped
    leaves: Sequence[Any] = field(repr=False)

    @cached_property
    def _first(self) -> tuple[list[Any], list[Any]]:
        """The leaves of the result, and the residuals."""
        if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in self.leaves):
            raise AutodiffError(
                "linearize was given shapes, so that there are no residuals to run with; "
                "give it arrays, as in mw.linearize(fn, *arrays)"
            )
        outputs = _compiled(self.parts.nonlinear)(list(self.leaves))
        count = len(self.present)
        return outputs[:count], outputs[count:]

    @property
    def result(self) -> Any:
        """The function's result, as it returns it."""
        return jax.tree.unflatten(self.captured.out_tree, self._first[0])

    @property
    def nonlinear(self) -> Program:
        """The program from the arguments' leaves to the result's, then the residuals."""
        return self.parts.nonlinear

    @cached_property
    def linear(self) -> LinearMap:
        """The map from tangents of the arguments to the tangent of the result."""
        inputs = [is_differentiable(v.dtype) for v in self.captured.program.inputs]
        return LinearMap(
            self.parts.linear,
            lambda: self._first[1],
            _Leaves(
                self.captured.in_tree, self.captured.avals, inputs, self.captured.paths
            ),
            _Leaves(
                self.captured.out_tree,
                self.captured.out_avals,
                self.present,
                self.captured.out_paths,
            ),
            False,
        )

    def transpose(self) -> LinearMap:
        """The map from a cotangent of the result to cotangents of the arguments.

        Raises `AutodiffError` if a tangent passes a while loop.
        """
        return self.linear.transpose()

    @cached_property
    def residuals(self) -> tuple[Residual, ...]:
        """The values that the linear program reads from the other, the largest first."""
        parts = self.parts
        return list_residuals(parts.residuals, parts.nonlinear, self.captured.paths)

    @property
    def residual_bytes(self) -> int:
        """Bytes of all residuals that are no inputs."""
        return sum(r.num_bytes for r in self.residuals if not r.is_input)

    def __str__(self) -> str:
        name = self.captured.name or "fn"
        lines = [
            f"linearized {name}: {len(self.residuals)} residuals, "
            f"{self.residual_bytes:,} bytes besides inputs",
            f"nonlinear: {sum(1 for _ in self.nonlinear.walk())} ops",
            f"linear: {sum(1 for _ in self.parts.linear.program.walk())} ops",
            *(str(r) for r in self.residuals[:7]),
        ]
        more = len(self.residuals) - 7
        return "\n".join(lines + ([f"... and {more} more"] if more > 0 else []))


@dataclass(frozen=True, slots=True)
class _Leaves:
    """The leaves of a pytree, of which only those that are `present` are in a program."""

    tree: Any
    avals: Sequence[Any]
    present: Sequence[bool]
    paths: Sequence[str]

    def flatten(self, given: Any, what: str) -> list[Any]:
        """The leaves for the program; other leaves may be anything, such as None."""
        try:
            leaves = self.tree.flatten_up_to(given)
        except (TypeError, ValueError) as error:
            raise AutodiffError(f"the {what} has another structure: {error}") from error
        found: list[Any] = []
        for leaf, aval, is_here, path in zip(
            leaves, self.avals, self.present, self.paths, strict=True
        ):
            if is_here:
                found.append(_checked(leaf, aval, f"the {what} of {path}"))
        return found

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The pytree; leaves that the program lacks are zeros, `float0` for integers."""
        rest = iter(leaves)
        full = [
            next(rest) if is_here else _zeros(aval)
            for aval, is_here in zip(self.avals, self.present, strict=True)
        ]
        return jax.tree.unflatten(self.tree, full)


def _checked(leaf: Any, aval: Any, what: str) -> Any:
    array = jnp.asarray(leaf)
    if array.shape != aval.shape:
        raise AutodiffError(f"{what} has shape {array.shape}; wanted {aval.shape}")
    if array.dtype != aval.dtype:
        raise AutodiffError(f"{what} is {array.dtype}; wanted {aval.dtype}")
    return array


def _zeros(aval: Any) -> Any:
    if is_differentiable(str(aval.dtype)):
        return jnp.zeros(aval.shape, aval.dtype)
    return np.zeros(aval.shape, jax.dtypes.float0)


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A linear program with its residuals: a function that prints.

    typed: the program; residuals come first among its inputs.
    saved: returns the residuals.
    taken, given: leaves that go in and come out.
    is_transposed: it maps cotangents to cotangents.
    """

    typed: LinearProgram
    saved: Callable[[], Sequence[Any]]
    taken: _Leaves
    given: _Leaves
    is_transposed: bool

    def __call__(self, *tangents: Any) -> Any:
        """The tangent of the result; transposed, a tuple of the arguments' cotangents."""
        if self.is_transposed:
            (whole,) = tangents
            leaves = self.taken.flatten(whole, "cotangent")
        else:
            leaves = self.taken.flatten((tangents, {}), "tangent")
        found = self.given.unflatten(self._run([*self.saved(), *leaves]))
        return found[0] if self.is_transposed else found

    @cached_property
    def _run(self) -> Callable[[Sequence[Any]], list[Any]]:
        return _compiled(self.plain)

    @cached_property
    def plain(self) -> Program:
        """The program in ops that anything can run, partition or price."""
        return erase(self.typed.program)

    @cached_property
    def work(self) -> OpWork:
        """Operations of one run, by the counts with which Meshwright prices programs."""
        return total_work(self.plain)

    def transpose(self) -> LinearMap:
        """The transposed map."""
        turned = transpose(self.typed)
        return LinearMap(
            turned, self.saved, self.given, self.taken, not self.is_transposed
        )

    def __str__(self) -> str:
        return str(self.typed)


def _compiled(program: Program) -> Callable[[Sequence[Any]], list[Any]]:
    """The program as a compiled function of its inputs."""
    return jax.jit(lambda inputs: run_program(program, inputs))


def total_work(program: Program) -> OpWork:
    """Operations of one run; of a `cond` all branches count, of a `while` one iteration."""
    runs = (work_of(op) * times for op, times in op_executions(program))
    return sum(runs, OpWork())
