"""`Partitioned`: a partitioned function, which traces, plans, runs and checks itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax

from meshwright.app.check.report import CheckReport
from meshwright.app.output.notices import warn_each
from meshwright.app.step.modules import warn_about_lost_changes, warn_about_modules
from meshwright.app.step.specialized import Specialized
from meshwright.errors import CaptureError, PlanError
from meshwright.jax_private import gpu_for_cudnn, tracing_config
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import Tactic
from meshwright.program.capture import Captured, capture
from meshwright.program.capture.arguments import (
    CallArguments,
    leaf_signature,
    list_names,
    require_arrays,
    split_arguments,
)
from meshwright.program.records import paused_collector

if TYPE_CHECKING:
    from meshwright.app.plan import Plan

# A call needs no plan: `app.plan`, which imports the simulation, is imported when used.


@dataclass(eq=False, repr=False)
class Partitioned:
    """A partitioned function, compiled once per signature (types) of its arguments."""

    fn: Callable[..., Any]
    mesh: Mesh
    tactics: tuple[Tactic, ...]
    gather: Gather
    _static: frozenset[str]
    _donated: frozenset[str]
    _loops: Mapping[str, int]
    _specialized: dict[Any, Specialized] = field(default_factory=dict)
    _past_warnings: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.__name__ = getattr(self.fn, "__name__", "partitioned")
        self.__doc__ = self.fn.__doc__

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for these arguments, which are arrays or `ShapeDtypeStruct`s.

        It needs no devices, and no memory for the arguments.
        """
        from meshwright.app.make_plan import make_plan

        plan = make_plan(
            self.capture(*args, **kwargs), self.mesh, self.tactics, self.gather
        )
        if plan.decided is not None:
            warn_each(plan.decided.work.warnings, self._past_warnings)
        return plan

    def decide(self, *args: Any, **kwargs: Any) -> Decided:
        """The sharding decisions and the device program for these arguments.

        Unlike `plan`, it makes no descriptions of collectives and effects.
        """
        return self.specialize(args, kwargs)[0].decided

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the devices of this process; results have the plan's `out_shardings`."""
        specialized, leaves = self.specialize(args, kwargs)
        require_arrays(specialized.captured.paths, leaves)  # JAX 0.10 may crash on them
        return specialized.run(leaves)

    def init(
        self,
        init_fn: Callable[..., Any],
        *args: Any,
        argnum: int | Sequence[int] | None = None,
    ) -> Any:
        """The state `init_fn(*args)`, created on the devices in the step's shardings.

        Each device only ever holds its own part, and the numbers equal those computed on
        one device. The step must know the types of its arguments: plan it first with
        shapes, as in `step.plan(jax.eval_shape(init_fn, *args), batch)`.
        init_fn: a function that returns one argument of the step, or a tuple of consecutive
            arguments. They are recognized by tree structure and shapes.
        argnum: positions of these arguments, needed only if several arguments fit.
        Raises `PlanError` with the first difference if no argument fits.
        """
        latest, state = self.find_state(init_fn, args, argnum)
        shardings = latest.state_shardings(*state, latest.executable.in_shardings)
        with gpu_for_cudnn():
            return jax.jit(init_fn, out_shardings=shardings)(*args)

    def find_state(
        self,
        init_fn: Callable[..., Any],
        args: tuple[Any, ...],
        argnum: int | Sequence[int] | None,
    ) -> tuple[Specialized, tuple[Any, Sequence[str] | None]]:
        """The latest planned signature, and the types and names of the state for `init`.

        The types are those of `init_fn(*args)`. The names are those of the arguments
        `argnum`, or `None` if `argnum` is `None`. The parameters are those of `init`.
        """
        if not callable(init_fn):
            raise PlanError(
                f"init wants a function that returns the state, got {init_fn!r:.60}"
            )
        with gpu_for_cudnn():
            state = jax.eval_shape(init_fn, *args)
        names = None if argnum is None else list_names(self.fn, argnum)
        if not self._specialized:
            raise PlanError(
                f"{self.__name__} has not seen its arguments yet; plan it first, with "
                "step.plan(jax.eval_shape(init_fn, ...), batch)"
            )
        return list(self._specialized.values())[-1], (state, names)

    # -- the stages of `jax.jit` --------------------------------------------------------

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """The traced step, as from `jax.jit(fn).trace`: a jaxpr, not lowered yet."""
        traced, keywords = self._call(args, kwargs).traced
        return self.jitted(*args, **kwargs).trace(*traced, **keywords)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The lowered step, as from `jax.jit(fn).lower`; `.compile()` makes a function.

        Values of static arguments are built in, so that the compiled function does not take
        them.
        """
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The types of the results, as `ShapeDtypeStruct`s in the result's tree."""
        captured = self.capture(*args, **kwargs)
        return jax.tree_util.tree_unflatten(captured.out_tree, captured.out_avals)

    def jitted(self, *args: Any, **kwargs: Any) -> Any:
        """The `jax.jit` function for arguments like these, for use with `jax.export`.

        Values of static arguments are built in, so that the function does not take them.
        """
        specialized, _ = self.specialize(args, kwargs)
        captured, run = specialized.captured, specialized.executable

        def step(*traced: Any, **keywords: Any) -> Any:
            results = run.jitted(*jax.tree_util.tree_leaves((traced, keywords)))
            return jax.tree_util.tree_unflatten(captured.out_tree, results)

        step.__name__ = self.__name__
        shardings, _ = jax.tree_util.tree_unflatten(captured.in_tree, run.in_shardings)
        is_donated = [i in captured.donated for i in range(len(captured.paths))]
        positional, _ = jax.tree_util.tree_unflatten(captured.in_tree, is_donated)
        donated = [jax.tree_util.tree_leaves(argument) for argument in positional]
        return jax.jit(
            step,
            in_shardings=None if kwargs else shardings,
            donate_argnums=[i for i, leaves in enumerate(donated) if all(leaves)],
        )

    # -- the check ----------------------------------------------------------------------

    def check(self, *args: Any, **kwargs: Any) -> CheckReport:
        """Compare all outputs with those of the unpartitioned function.

        Both run on this process's devices. Programs with floats of 16 bits or less are
        compared in float32, too, since rounding to 16 bits would hide an error of a per
        cent. Donated arguments are not consumed.
        """
        specialized, leaves = self.specialize(args, kwargs)
        require_arrays(specialized.captured.paths, leaves)
        return specialized.check(leaves)

    def check_float32(self, *args: Any, **kwargs: Any) -> CheckReport:
        """Compare all outputs with those of the unpartitioned function, both in float32.

        Raises `PlanError` if the function has 16-bit floats in a `shard_map`.
        """
        specialized, leaves = self.specialize(args, kwargs)
        require_arrays(specialized.captured.paths, leaves)
        return specialized.check_float32(leaves)

    # -- signatures ---------------------------------------------------------------------

    def capture(self, *args: Any, **kwargs: Any) -> Captured:
        """The traced program for these arguments, before any sharding is decided."""
        return self.specialize(args, kwargs)[0].captured

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
        return split_arguments(self.fn, self._static, args, kwargs)

    def specialize(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Specialized, list[Any]]:
        """The `Specialized` function for the arguments' signature, and their leaves.

        A `Specialized` is the function traced, planned and compiled for one signature. It
        is made once and then reused.
        """
        call = self._call(args, kwargs)
        leaves, tree = jax.tree_util.tree_flatten(call.traced)
        try:
            signature = tuple(map(leaf_signature, leaves))
        except CaptureError:
            self._capture(call)  # raises an error that names the argument
            raise
        static = tuple((name, type(a), a) for name, a in call.static.items())
        key = tree, signature, static, tracing_config()
        try:
            specialized = self._specialized.get(key)
        except TypeError:
            raise PlanError(
                f"static arguments must be hashable, got {dict(call.static)}"
            ) from None
        if specialized is None:
            how = self.mesh, self.tactics, self.gather
            fn, captured = call.bind(self.fn), self._capture(call)
            specialized = Specialized(
                fn, captured, call.names, *how, self._past_warnings
            )
            self._specialized[key] = specialized
        return specialized, leaves

    def _capture(self, call: CallArguments) -> Captured:
        args, kwargs = call.traced
        warn_about_modules(self.fn)
        with paused_collector():
            fn = warn_about_lost_changes(call.bind(self.fn), call.names)
            return capture(
                fn, args, kwargs, call.names, self._donated, loops=self._loops
            )
