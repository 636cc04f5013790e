"""`partition`: a function transformation like `jax.jit`, for many devices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from meshwright.app.check.check import CheckReport, check_outputs, tolerance_of
from meshwright.app.check.wide import check_wide
from meshwright.app.plan import Plan, make_plan
from meshwright.app.record.plan_record import repeating_tactics
from meshwright.errors import PlanError, TacticError
from meshwright.jax_private import jit_options, tracing_config
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided, decide
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import Tactic
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.program.analysis.narrowest_floats import narrowest_floats
from meshwright.program.capture import Captured, abstract, capture, positional_names
from meshwright.program.capture.mesh import as_mesh
from meshwright.program.capture.wide_floats import can_widen, has_narrow
from meshwright.program.records import paused_collector
from meshwright.run.local import Executable, make_executable

Names = str | Sequence[str] | None
Numbers = int | Sequence[int] | None


def partition(  # noqa: PLR0913  the options of `jax.jit`
    fn: Callable[..., Any],
    mesh: Mesh | jax.sharding.Mesh | Mapping[str, int] | Plan,
    tactics: Sequence[Tactic] = (),
    *,
    gather: str | Gather | None = None,
    static_argnums: Numbers = None,
    static_argnames: Names = None,
    donate_argnums: Numbers = None,
    donate_argnames: Names = None,
) -> Partitioned:
    """The function `fn`, partitioned over a mesh by tactics.

    fn: a function of pytrees, as for `jax.jit`, or a jitted function, whose static and
        donated arguments stay static and donated.
    mesh: a `Mesh`, a `jax.sharding.Mesh`, or axis sizes by name. Or a `Plan`, also one
        that was loaded on another host: its mesh, tactics and `gather` are used, and a
        call raises `TacticError` if the function is not the one that was planned.
    tactics: are applied in order; each is propagated before the next is applied.
    gather: "shared", the default, gathers a value once for all ops that need it whole;
        "at_use" gathers it anew for each of them, so that the whole value is not kept.
    static_*, donate_*: as in `jax.jit`.
    """
    if not callable(fn):
        raise PlanError(f"partition wants a function, got {fn!r}")
    if isinstance(tactics, str):
        raise TacticError(
            f"tactics are a list, such as [mw.{tactics}(axis)]; got {tactics!r}"
        )
    if hasattr(tactics, "apply"):
        raise TacticError(f"{tactics} is one tactic; wanted a list: [{tactics}]")
    if isinstance(mesh, Plan):
        if tactics or gather is not None:
            raise PlanError(
                "a plan has tactics and gather already; give the plan alone"
            )
        repeated = repeating_tactics(mesh) or mesh.tactics
        mesh, tactics, gather = mesh.mesh, repeated, mesh.gather
    return Partitioned(
        fn,
        as_mesh(mesh),
        tuple(tactics),
        _as_gather(gather),
        _numbers(fn, static_argnums, static_argnames)
        | _numbers(fn, *jit_options(fn, "static")),
        _numbers(fn, donate_argnums, donate_argnames)
        | _numbers(fn, *jit_options(fn, "donate")),
    )


def _as_gather(gather: str | Gather | None) -> Gather:
    try:
        return Gather.SHARED if gather is None else Gather(gather)
    except ValueError:
        allowed = ", ".join(repr(g.value) for g in Gather)
        raise PlanError(f"gather is {gather!r}; wanted one of {allowed}") from None


@dataclass(eq=False, repr=False)
class Partitioned:
    """A partitioned function, compiled once per signature of its arguments."""

    fn: Callable[..., Any]
    mesh: Mesh
    tactics: tuple[Tactic, ...]
    gather: Gather
    _static: frozenset[str]
    _donated: frozenset[str]
    _compiled: dict[Any, tuple[Decided, Executable]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.__name__ = getattr(self.fn, "__name__", "partitioned")
        self.__doc__ = self.fn.__doc__

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for these arguments, which are arrays or `ShapeDtypeStruct`s.

        Needs no devices, and no memory for the arguments.
        """
        return make_plan(
            self.capture(*args, **kwargs), self.mesh, self.tactics, self.gather
        )

    def decide(self, *args: Any, **kwargs: Any) -> Decided:
        """The device program for these arguments, without the descriptions of a plan."""
        captured = self.capture(*args, **kwargs)
        how = self.mesh, self.tactics, self.gather
        return decide(captured, *how, workarounds=XLA_WORKAROUNDS)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the devices of this process; results have the plan's `out_shardings`."""
        decided, run, leaves = self._compile(args, kwargs)
        return jax.tree_util.tree_unflatten(decided.captured.out_tree, run(leaves))

    # -- the stages of `jax.jit` --------------------------------------------------------

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """The traced step, as of `jax.jit(fn).trace`: its jaxpr is not lowered yet."""
        traced, keywords = self._split(args, kwargs)[0]
        return self.jitted(*args, **kwargs).trace(*traced, **keywords)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The lowered step, as of `jax.jit(fn).lower`; `.compile()` gives a function.

        Static arguments are bound: the compiled function does not take them.
        """
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The `ShapeDtypeStruct`s of the results."""
        captured = self.capture(*args, **kwargs)
        return jax.tree_util.tree_unflatten(captured.out_tree, captured.out_avals)

    def jitted(self, *args: Any, **kwargs: Any) -> Any:
        """The `jax.jit` function of such arguments, static ones bound, for `jax.export`."""
        decided, run, _ = self._compile(args, kwargs)
        captured = decided.captured

        def step(*traced: Any, **keywords: Any) -> Any:
            results = run.jitted(*jax.tree_util.tree_leaves((traced, keywords)))
            return jax.tree_util.tree_unflatten(captured.out_tree, results)

        step.__name__ = self.__name__
        shardings, _ = jax.tree_util.tree_unflatten(captured.in_tree, run.in_shardings)
        names = positional_names(self.fn, len(args))
        names = [name for name in names if name not in self._static]
        return jax.jit(
            step,
            in_shardings=None if kwargs else shardings,
            donate_argnums=[i for i, n in enumerate(names) if n in self._donated],
        )

    def check(self, *args: Any, dtype: str | None = None, **kwargs: Any) -> CheckReport:
        """Compare all outputs with those of the original, on this process's devices.

        Programs with floats of 16 bits or less are compared in float32, too: rounding
        would hide an error of a per cent. dtype: "float32" compares only in that way.
        Raises `PlanError` if it cannot.
        """
        if dtype not in (None, "float32"):
            raise PlanError(
                f"dtype is {dtype!r}; wanted 'float32', or None for its own"
            )
        decided, run, leaves = self._compile(args, kwargs, keep=True)
        program = decided.captured.program
        if dtype is not None and has_narrow(program) and not can_widen(program):
            raise PlanError(
                "the function has a shard_map, whose floats cannot be widened"
            )
        wide = check_wide(decided, self.mesh, leaves)
        if dtype is not None and wide is not None:
            return wide
        fn, tree = self._traced(args, kwargs), decided.captured.in_tree

        def original(*leaves: Any) -> list[Any]:
            inner, inner_keywords = jax.tree_util.tree_unflatten(tree, leaves)
            return jax.tree_util.tree_leaves(fn(*inner, **inner_keywords))

        rounding = narrowest_floats(program, tolerance_of)
        paths = decided.captured.out_paths
        report = check_outputs(paths, original, run, leaves, rounding)
        if wide is None:
            return report
        pairs = zip(report.outputs, wide.outputs, strict=True)
        return CheckReport(tuple(replace(own, wide=other) for own, other in pairs))

    # -- signatures -----------------------------------------------------------------

    def _split(
        self, args: Any, kwargs: Any
    ) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]:
        """((traced args, traced kwargs), (static name, value) pairs)."""
        named = [*zip(positional_names(self.fn, len(args)), args, strict=True)]
        traced = tuple(a for n, a in named if n not in self._static)
        keywords = {k: v for k, v in kwargs.items() if k not in self._static}
        pairs = [(n, a) for n, a in (*named, *kwargs.items()) if n in self._static]
        return (traced, keywords), tuple(pairs)

    def _traced(self, args: Any, kwargs: Any) -> Callable[..., Any]:
        """The original as a function of the traced arguments, with static ones bound."""
        names = positional_names(self.fn, len(args))

        def fn(*traced: Any, **keywords: Any) -> Any:
            rest = iter(traced)
            full = [
                a if n in self._static else next(rest)
                for n, a in zip(names, args, strict=True)
            ]
            return self.fn(*full, **(kwargs | keywords))

        return fn

    def capture(self, *args: Any, **kwargs: Any) -> Captured:
        """The program for these arguments, before anything is decided."""
        traced, _ = self._split(args, kwargs)
        names = positional_names(self.fn, len(args))
        names = [n for n in names if n not in self._static]
        with paused_collector():
            fn = self._traced(args, kwargs)
            return capture(fn, traced[0], traced[1], names, self._donated)

    def _compile(
        self, args: Any, kwargs: Any, keep: bool = False
    ) -> tuple[Decided, Executable, list[Any]]:
        """The device program of a signature, its executable, both cached, and the leaves.

        keep: compile without donation, if the arguments are needed afterwards.
        """
        traced, static = self._split(args, kwargs)
        leaves, tree = jax.tree_util.tree_flatten(traced)
        key = (tree, tuple(map(_signature, leaves)), static, keep, tracing_config())
        try:
            known = self._compiled.get(key)
        except TypeError:
            raise PlanError(
                f"static arguments must be hashable, got {static}"
            ) from None
        if known is None:
            decided = self.decide(*args, **kwargs)
            donated = () if keep else decided.captured.donated
            avals = decided.captured.out_avals
            weak = {i for i, aval in enumerate(avals) if aval.weak_type}
            run = make_executable(decided.lowered, donated, self.mesh, weak)
            known = self._compiled[key] = (decided, run)
        return *known, leaves


def _signature(leaf: Any) -> Any:
    """The cache key of a leaf. Every call computes it, so that it has to be cheap."""
    if isinstance(leaf, jax.Array | np.ndarray):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)
    aval = abstract(leaf)
    return aval.shape, aval.dtype, aval.weak_type


def _numbers(fn: Callable[..., Any], numbers: Numbers, names: Names) -> frozenset[str]:
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
