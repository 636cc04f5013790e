"""`partition`: a function transformation like `jax.jit`, for many devices."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import jax

from meshwright.app.output.notices import warn
from meshwright.app.partitioned import Partitioned
from meshwright.errors import PlanError, TacticError
from meshwright.jax_private import jit_options, unwrap_nnx_jit
from meshwright.machine import Mesh
from meshwright.partitioner.decide import as_tactics
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import Tactic
from meshwright.program.capture.arguments import Names, Numbers, argument_names
from meshwright.program.capture.mesh import as_mesh
from meshwright.registry import step_maker

if TYPE_CHECKING:
    from meshwright.app.plan import Plan
    from meshwright.registry import ClusterStep, Slice

# A call needs no plan: `app.plan`, which imports the simulation, is imported when used.


class PartitionOptions(TypedDict, total=False):
    """The options of `partition`, which its docstring describes."""

    gather: str | Gather | None
    static_argnums: Numbers
    static_argnames: Names
    donate_argnums: Numbers
    donate_argnames: Names
    loops: Mapping[str, int] | None


@overload
def partition(
    fn: Callable[..., Any],
    mesh: Mesh | jax.sharding.Mesh | Mapping[str, int] | Plan,
    tactics: Sequence[Tactic] = (),
    **options: Unpack[PartitionOptions],
) -> Partitioned: ...
@overload
def partition(
    fn: Callable[..., Any],
    mesh: Slice,
    tactics: Sequence[Tactic] = (),
    **options: Unpack[PartitionOptions],
) -> ClusterStep: ...
def partition(  # noqa: PLR0913  the options of `jax.jit`
    fn: Callable[..., Any],
    mesh: Mesh | jax.sharding.Mesh | Mapping[str, int] | Plan | Slice,
    tactics: Sequence[Tactic] = (),
    *,
    gather: str | Gather | None = None,
    static_argnums: Numbers = None,
    static_argnames: Names = None,
    donate_argnums: Numbers = None,
    donate_argnames: Names = None,
    loops: Mapping[str, int] | None = None,
) -> Partitioned | ClusterStep:
    """The function `fn`, partitioned over a mesh by tactics.

    fn: a function of pytrees, as for `jax.jit`, or a jitted function, whose static and
        donated arguments stay static and donated.
    mesh: a `Mesh`, a `jax.sharding.Mesh`, or axis sizes by name. Or a `Plan`: its mesh,
        decisions and `gather` are used, and a call raises `TacticError` if the function or
        the types of its arguments are not those that were planned. Or a `Slice` (devices of
        a cluster); the result is then a `ClusterStep`, which runs on them.
    tactics: sharding decisions, applied in order; each is propagated through the program
        before the next is applied.
    gather: "shared", the default, all-gathers a value once for all ops that need it
        unsharded; "at_use" gathers it again for each of these ops, so that the gathered
        value need not stay in memory.
    static_*, donate_*: as in `jax.jit`. A plan's step donates what the plan assumed
        (`plan.donated`), unless donate_* are given; donate_argnums=() donates nothing. If
        this keeps memory that the plan gives away, a warning says how much.
    loops: iterations of loops whose number depends on values, by source line, such as
        {"model.py:42": 64}; predicted figures count them so. See `mw.iterations`.
    """
    _require_function(fn)
    if not isinstance(tactics, Sequence) and _as_plan(tactics) is not None:
        raise TacticError("a plan goes where the mesh is: mw.partition(fn, plan)")
    make_step = step_maker(mesh)
    place: Any = mesh
    mesh = mesh if make_step is None else place.mesh
    plan = _as_plan(mesh)
    if plan is not None:
        if tactics or gather is not None:
            raise PlanError(
                "a plan has tactics and gather already; give the plan alone"
            )
        mesh, tactics, gather = plan.mesh, _repeating(plan), plan.gather
    donated = argument_names(fn, donate_argnums, donate_argnames)
    donated |= argument_names(fn, *jit_options(fn, "donate"))
    if plan is not None and donate_argnums is None and donate_argnames is None:
        donated |= {*plan.donated}
    elif plan is not None:
        _warn_about_kept(plan, donated)
    step = Partitioned(
        fn,
        as_mesh(mesh),  # pyright: ignore[reportArgumentType]
        as_tactics(tactics),
        _as_gather(gather),
        argument_names(fn, static_argnums, static_argnames)
        | argument_names(fn, *jit_options(fn, "static")),
        donated,
        {} if loops is None else loops,
    )
    return step if make_step is None else make_step(step, place)


def _require_function(fn: Any) -> None:
    if not callable(fn):
        raise PlanError(f"partition wants a function, got {fn!r}")
    if _is_plan(fn):
        raise PlanError(
            "partition wants the function first, then its plan: mw.partition(fn, plan)"
        )
    if isinstance(fn, Partitioned):
        raise PlanError(f"{fn.__name__} is partitioned already; give its `fn` instead")
    if unwrap_nnx_jit(fn) is not None:
        raise PlanError(
            f"{fn.__name__} is a function of nnx.jit, which changes modules in place; use "
            f"mw.nnx.partition({fn.__name__}, mesh, tactics), which does so as well"
        )


def _is_plan(value: Any) -> bool:
    """Whether something is a plan. There is none unless its module was imported."""
    module = sys.modules.get("meshwright.app.plan")
    return module is not None and isinstance(value, module.Plan)


def _as_plan(plan: Any) -> Plan | None:
    """The plan itself; `None` for anything but a plan."""
    if isinstance(plan, Mesh | jax.sharding.Mesh | Mapping):
        return None
    from meshwright.app.plan import Plan

    return plan if isinstance(plan, Plan) else None


def _repeating(plan: Plan) -> Sequence[Tactic]:
    """Tactics that repeat a plan's decisions."""
    from meshwright.app.record.json_form import repeating_tactics

    return repeating_tactics(plan) or plan.tactics


def _warn_about_kept(plan: Plan, donated: frozenset[str]) -> None:
    """Warn if arguments stay in memory that the plan assumed to be donated."""
    kept = plan.kept_bytes(donated)
    if kept:
        warn(
            f"the plan assumes that the step takes the memory of {kept / 2**20:,.1f} MiB "
            "of its inputs on each device for its results, and donate_argnums keeps them: "
            "a device needs as much more than the plan says; leave donate_argnums out, or "
            "plan with it"
        )


def _as_gather(gather: str | Gather | None) -> Gather:
    try:
        return Gather.SHARED if gather is None else Gather(gather)
    except ValueError:
        allowed = ", ".join(repr(g.value) for g in Gather)
        raise PlanError(f"gather is {gather!r}; wanted one of {allowed}") from None
