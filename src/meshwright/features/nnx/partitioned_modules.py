"""`mw.nnx.partition`: partition steps that update flax nnx modules in place.

Such a step, which `nnx.jit` would accept, is made functional. Each call splits all modules
of the arguments into a static graph and arrays (`nnx.split`). The arrays are passed to a
partitioned pure function, which merges the modules again, calls the step and splits the
modules. The new arrays are then written into the caller's modules. A variable that several
arguments share is one array throughout.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax

from meshwright.app.check.report import CheckReport
from meshwright.app.partition import partition as partition_pure
from meshwright.app.partitioned import Partitioned
from meshwright.errors import PlanError
from meshwright.jax_private import jit_options, unwrap_nnx_jit
from meshwright.machine import Mesh
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import Tactic
from meshwright.program.capture.arguments import (
    Names,
    Numbers,
    argument_names,
    split_arguments,
)

if TYPE_CHECKING:
    from flax import nnx

    from meshwright.app.plan import Plan


def partition(  # noqa: PLR0913  the options of `mw.partition`
    fn: Callable[..., Any],
    mesh: Mesh | jax.sharding.Mesh | Mapping[str, int] | Plan,
    tactics: Sequence[Tactic] = (),
    *,
    gather: str | Gather | None = None,
    static_argnums: Numbers = None,
    static_argnames: Names = None,
    donate_argnums: Numbers = None,
    donate_argnames: Names = None,
    loops: Mapping[str, int] | None = None,
) -> PartitionedModules:
    """A partitioned version of `fn`, a step that changes flax nnx modules in place.

    fn: a function that `nnx.jit` accepts, or one that `nnx.jit` returned; static and
        donated arguments of the latter stay so. A call returns the results of `fn`, and
        updates the modules, optimizers, metrics and `nnx.Rngs` among its arguments as
        `fn` does, even if it adds or removes variables.
    The options are those of `mw.partition`. Paths of variables end in `.value`.
    Raises `PlanError` if flax is missing, or if `fn` is a method bound to a module.
    """
    _require_flax()
    inner = unwrap_nnx_jit(fn)
    jitted = None if inner is None else vars(fn)["jitted_fn"]
    fn = fn if inner is None else inner
    if inspect.ismethod(fn):
        owner = type(fn.__self__).__name__
        raise PlanError(
            f"{fn.__name__} is bound to a {owner}, whose variables would be constants; "
            f"give {owner}.{fn.__name__}, and the module as its first argument"
        )
    static = argument_names(fn, static_argnums, static_argnames)
    donated = argument_names(fn, donate_argnums, donate_argnames)
    return PartitionedModules(
        fn,
        mesh,
        tuple(tactics),
        gather,
        static | argument_names(fn, *jit_options(jitted, "static")),
        donated | argument_names(fn, *jit_options(jitted, "donate")),
        loops,
    )


def _require_flax() -> None:
    try:
        from flax import nnx
    except ImportError as error:
        raise PlanError(
            f"mw.nnx.partition needs flax, which cannot be imported ({error}); "
            "pip install flax"
        ) from None
    if not hasattr(nnx, "Pytree"):
        raise PlanError("this flax is too old, without nnx.Pytree; pip install -U flax")


@dataclass(eq=False, repr=False)
class PartitionedModules:
    """A partitioned function that updates the nnx modules among its arguments in place.

    _steps: partitioned pure functions of arrays, keyed by the static graphs of the modules.
    """

    fn: Callable[..., Any]
    mesh: Mesh | jax.sharding.Mesh | Mapping[str, int] | Plan
    tactics: tuple[Tactic, ...]
    gather: str | Gather | None
    _static: frozenset[str]
    _donated: frozenset[str]
    _loops: Mapping[str, int] | None
    _steps: dict[Any, Partitioned] = field(default_factory=dict)

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the devices of this process, and update the modules."""
        return self._with_arrays(self._run, args, kwargs)

    def init(self, init_fn: Callable[..., Any], *args: Any) -> Any:
        """The modules `init_fn(*args)`, created on the devices in the step's shardings.

        The step must know the types of its arguments. Plan it first; abstract modules are
        enough: `step.plan(*nnx.eval_shape(init_fn, ...), batch)`. In all else it works like
        `Partitioned.init`.
        """
        from flax import nnx

        if not self._steps:
            raise PlanError(
                f"{self.fn.__name__} has not seen its arguments yet; plan it first, with "
                "step.plan(*nnx.eval_shape(init_fn, ...), batch)"
            )
        graphs: tuple[Any, ...] = ()
        is_tuple = False

        def arrays(*args: Any) -> Any:
            nonlocal graphs, is_tuple
            result = init_fn(*args)
            is_tuple = isinstance(result, tuple)
            with nnx.split_context() as split:
                graphs, states = _split(split, result if is_tuple else (result,))
            return states if is_tuple else states[0]

        states = list(self._steps.values())[-1].init(arrays, *args)
        with nnx.merge_context() as merged:
            modules = _merge(merged, graphs, states if is_tuple else (states,))
        return modules if is_tuple else modules[0]

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for these arguments, whose modules may be abstract."""
        return self._with_arrays(_plan, args, kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The lowered step, as from `jax.jit(fn).lower`.

        It takes the arrays of the modules in place of the modules.
        """
        return self._with_arrays(Partitioned.lower, args, kwargs)

    def check(self, *args: Any, **kwargs: Any) -> CheckReport:
        """Compare all results and updated variables with the unpartitioned function's.

        The caller's modules are not changed.
        """
        return self._with_arrays(_check, args, kwargs)

    def check_float32(self, *args: Any, **kwargs: Any) -> CheckReport:
        """The comparison of `check`, with both programs computed in float32."""
        return self._with_arrays(Partitioned.check_float32, args, kwargs)

    def _run(self, step: Partitioned, *args: Any, **kwargs: Any) -> Any:
        from flax import nnx

        graphs, states = step(*args, **kwargs)
        with nnx.merge_context(self, inner=False) as merged:
            return _merge(merged, graphs, states)[-1]

    def _with_arrays(
        self, use: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of `use(step, *arguments)`, with arrays in place of modules.

        step: the partitioned pure function for these modules' graphs, made if it is new.
        """
        from flax import nnx

        call = split_arguments(self.fn, self._static, args, kwargs)
        traced, keywords = call.traced
        with nnx.update_context(self):
            with nnx.split_context(self) as split:
                graphs, states = _split(split, (*traced, *keywords.values()))
            step = self._steps.get(graphs)
            if step is None:
                step = self._steps[graphs] = self._pure(graphs)
            rest = iter(states)
            positional = tuple(
                call.static[n] if n in call.static else next(rest)
                for n in call.positional
            )
            named = {
                k: v if k in call.static else next(rest) for k, v in kwargs.items()
            }
            return use(step, *positional, **named)

    def _pure(self, graphs: tuple[Any, ...]) -> Partitioned:
        """A partitioned pure function of arrays, for modules of these static graphs.

        It rebuilds the modules from the graphs and the arrays.
        """
        from flax import nnx

        def pure(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
            call = split_arguments(self.fn, self._static, args, kwargs)
            traced, keywords = call.traced
            states = (*traced, *keywords.values())
            with nnx.merge_context(self, inner=True) as merged:
                values = _merge(merged, graphs, states)
            first = len(traced)
            named = dict(zip(keywords, values[first:], strict=True))
            result = call.bind(self.fn)(*values[:first], **named)
            with nnx.split_context(self) as split:
                kept = [v for v, g in zip(values, graphs, strict=True) if g is not None]
                return _split(split, (*kept, result))

        functools.update_wrapper(pure, self.fn)
        return partition_pure(
            pure,
            self.mesh,
            self.tactics,
            gather=self.gather,
            static_argnames=tuple(self._static),
            donate_argnames=tuple(self._donated) or None,
            loops=self._loops,
        )


def _plan(step: Partitioned, *args: Any, **kwargs: Any) -> Plan:
    return step.plan(*args, **kwargs)


def _check(step: Partitioned, *args: Any, **kwargs: Any) -> CheckReport:
    return step.check(*args, **kwargs)


def _split(
    context: nnx.graph.SplitContext, values: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The static graphs and the states (arrays) of values, as `nnx.split` gives them.

    For a value without modules the graph is `None` and the state is the value itself.
    """
    pairs = [
        context.split(value) if _has_module(value) else (None, value)
        for value in values
    ]
    return tuple(graph for graph, _ in pairs), tuple(state for _, state in pairs)


def _merge(
    context: nnx.graph.MergeContext, graphs: Sequence[Any], states: Sequence[Any]
) -> tuple[Any, ...]:
    """The values that `_split` split into these static graphs and states."""
    pairs = zip(graphs, states, strict=True)
    return tuple(s if g is None else context.merge(g, s) for g, s in pairs)


def _has_module(value: Any) -> bool:
    from flax import nnx

    kinds = nnx.Pytree, nnx.Variable
    leaves = jax.tree_util.tree_leaves(value, is_leaf=lambda x: isinstance(x, kinds))
    return any(isinstance(leaf, kinds) for leaf in leaves)
