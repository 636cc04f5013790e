"""`mw.linearize`: a function split into a nonlinear program and a linear one.

The function is traced once. Its nonlinear program runs when a result or a residual is
needed, and then the arguments have to be arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.errors import AutodiffError
from meshwright.features.autodiff.check_linear import check_linear
from meshwright.features.autodiff.explicit import erase, make_explicit
from meshwright.features.autodiff.forward import forward
from meshwright.features.autodiff.op_rules import KEPT, is_differentiable
from meshwright.features.autodiff.residual import Residual, list_residuals
from meshwright.features.autodiff.transpose import transpose
from meshwright.features.autodiff.typing import LinearProgram
from meshwright.features.autodiff.unzip import Unzipped, unzip
from meshwright.jax_private import gpu_for_cudnn
from meshwright.partitioner.tactics import Recompute, recompute
from meshwright.program.analysis.executions import op_executions
from meshwright.program.capture import Captured, capture
from meshwright.program.ir import Program
from meshwright.program.ops import OpWork, work_of
from meshwright.run.local.execute import run_program


@gpu_for_cudnn()
def linearize(
    fn: Callable[..., Any],
    *args: Any,
    keep: str | Sequence[str] | Recompute | None = None,
) -> Linearized:
    """The function's linear approximation at `args`, as programs that print and run.

    fn: a function of pytrees.
    args: arrays. With `jax.ShapeDtypeStruct`s instead, the programs can be printed and
        their work counted, but not run.
    keep: which values the forward pass saves for the backward pass; the backward pass
        computes all others again. It is what `mw.recompute` takes, or a `recompute`
        tactic, such as one that the planner has found. By default, every value is saved
        that takes time to compute.
    Derivatives are taken with respect to all floats and complex numbers in `args`.
    Functions with `jax.custom_jvp` and `jax.custom_vjp` have the derivatives that they
    define. Raises `AutodiffError` for an op without a derivative, with its source line.
    """
    if not callable(fn):
        raise AutodiffError(f"linearize wants a function, got {fn!r:.60}")
    captured = capture(fn, args, kept=KEPT)
    program = captured.program
    active = {v for v in program.inputs if is_differentiable(v.dtype)}
    dual = forward(program, active)
    typed = check_linear(make_explicit(dual.program, dual.tangents))
    parts = unzip(typed, len(program.outputs))
    if keep is not None:
        # It may name ops of derivatives, such as the cosine of a sine.
        tactic = keep if isinstance(keep, Recompute) else recompute(keep)
        saved = tactic.kept_values(parts.nonlinear)
        parts = unzip(typed, len(program.outputs), saved)
    return Linearized(captured, dual.present, typed, parts, jax.tree.leaves(args))


@gpu_for_cudnn()
def residuals_of_loss(
    fn: Callable[..., Any], args: Sequence[Any], tactics: Sequence[object] = ()
) -> tuple[Residual, ...] | None:
    """Residuals of the gradient of a loss on one device; `None` if `fn` is not a loss.

    A loss is a function that returns one float.

    tactics: at most one, which must be an `mw.recompute`; others raise `AutodiffError`.
    """
    result = jax.tree.leaves(jax.eval_shape(fn, *args))
    if [(leaf.shape, is_differentiable(str(leaf.dtype))) for leaf in result] != [
        ((), True)
    ]:
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
    """A function at some arguments, split into a nonlinear and a linear program.

    captured: the function as one program, with its pytrees and the paths of its leaves.
    present: for each leaf of the result, whether it depends on differentiated inputs.
    dual: the program after forward mode; its linear values are the tangents.
    parts: the nonlinear and the linear program, after unzip.
    leaves: the leaves of the arguments.
    """

    captured: Captured
    present: tuple[bool, ...]
    dual: LinearProgram
    parts: Unzipped
    leaves: Sequence[Any] = field(repr=False)

    @cached_property
    def _first(self) -> tuple[list[Any], list[Any]]:
        """The leaves of the result and the residuals, by the nonlinear program."""
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
        """The function's result, as the pytree that the function returns."""
        return jax.tree.unflatten(self.captured.out_tree, self._first[0])

    @property
    def nonlinear(self) -> Program:
        """The program that computes the leaves of the result and then the residuals."""
        return self.parts.nonlinear

    @cached_property
    def linear(self) -> LinearMap:
        """The map from tangents of the arguments to the result's (`jax.jvp`)."""
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
        """The map from the result's cotangent to those of arguments (`jax.vjp`).

        Raises `AutodiffError` if a while loop computes with tangents.
        """
        return self.linear.transpose()

    @cached_property
    def residuals(self) -> tuple[Residual, ...]:
        """Values that the linear program reads from the other, the largest first."""
        parts = self.parts
        return list_residuals(parts.residuals, parts.nonlinear, self.captured.paths)

    @property
    def residual_bytes(self) -> int:
        """Bytes of all residuals, except those that are arguments of the function."""
        return sum(r.num_bytes for r in self.residuals if not r.is_input)

    def __str__(self) -> str:
        name = self.captured.name or "fn"
        counts = f"{len(self.residuals)} residuals, {self.residual_bytes:,} bytes"
        lines = [
            f"linearized {name}: {counts} besides inputs",
            f"nonlinear: {len([*self.nonlinear.walk()])} ops",
            f"linear: {len([*self.parts.linear.program.walk()])} ops",
            *map(str, self.residuals[:7]),
        ]
        more = len(self.residuals) - 7
        return "\n".join(lines + ([f"... and {more} more"] if more > 0 else []))


@dataclass(frozen=True, slots=True)
class _Leaves:
    """A pytree of tangents or cotangents, and which leaves a program takes of it.

    tree: the structure. avals: shape and dtype of each leaf. paths: name of each leaf,
        for messages.
    present: for each leaf, whether the program has it; integers, for example, are
        missing.
    """

    tree: Any
    avals: Sequence[Any]
    present: Sequence[bool]
    paths: Sequence[str]

    def flatten(self, given: Any, what: str) -> list[Any]:
        """The leaves that the program takes; all other leaves may be anything.

        what: "tangent" or "cotangent", for messages.
        """
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
        """The pytree of these leaves, with zeros for leaves the program lacks."""
        rest = iter(leaves)
        full = [
            next(rest) if is_here else _zeros(aval)
            for aval, is_here in zip(self.avals, self.present, strict=True)
        ]
        return jax.tree.unflatten(self.tree, full)


def _checked(leaf: Any, aval: Any, what: str) -> Any:
    try:
        array = jnp.asarray(leaf)
    except (TypeError, ValueError):
        raise AutodiffError(f"{what} is {leaf!r:.40}; wanted an array") from None
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
    """A linear program together with its residuals, as a function that can be printed.

    typed: the program; residuals are the first of its inputs.
    saved: a function that returns the residuals.
    taken, given: the pytrees that the map takes and returns.
    is_transposed: whether the map takes cotangents, and not tangents.
    """

    typed: LinearProgram
    saved: Callable[[], Sequence[Any]]
    taken: _Leaves
    given: _Leaves
    is_transposed: bool

    def __call__(self, *tangents: Any) -> Any:
        """The result's tangent; if transposed, a tuple of arguments' cotangents."""
        if self.is_transposed:
            if len(tangents) != 1:
                told = f"the transposed map was given {len(tangents)} arguments; wanted one"
                raise AutodiffError(f"{told}: the cotangent of the whole result")
            leaves = self.taken.flatten(tangents[0], "cotangent")
        else:
            leaves = self.taken.flatten((tangents, {}), "tangent")
        found = self.given.unflatten(self._run([*self.saved(), *leaves]))
        return found[0] if self.is_transposed else found

    @cached_property
    def _run(self) -> Callable[[Sequence[Any]], list[Any]]:
        return _compiled(self.plain)

    @cached_property
    def plain(self) -> Program:
        """The linear program in ordinary ops, which can be run or priced."""
        return erase(self.typed.program)

    @cached_property
    def work(self) -> OpWork:
        """Floating-point operations of one call, as the cost model counts them."""
        return total_work(self.plain)

    def transpose(self) -> LinearMap:
        """The transposed map: from cotangents to cotangents, or back to tangents."""
        turned = transpose(self.typed)
        is_forward = self.is_transposed
        return LinearMap(turned, self.saved, self.given, self.taken, not is_forward)

    def __str__(self) -> str:
        return str(self.typed)


def _compiled(program: Program) -> Callable[[Sequence[Any]], list[Any]]:
    """The program as a jitted function of the list of its inputs."""
    return jax.jit(lambda inputs: run_program(program, inputs))


def total_work(program: Program) -> OpWork:
    """Operations of one run; all branches of a `cond` count, and one `while` iteration."""
    return sum((work_of(op) * n for op, n in op_executions(program)), OpWork())
