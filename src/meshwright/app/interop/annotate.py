"""`Plan.annotate`: a function with a plan's sharding constraints, for plain `jax.jit`."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import AxisType

from meshwright.app.record.plan_record import PlanRecord
from meshwright.errors import CaptureError, MeshError, PlanError
from meshwright.jax_private import jit_options
from meshwright.machine import Mesh
from meshwright.partitioner.decide import apply_tactics
from meshwright.partitioner.lower import Gather, constrained_program, lower
from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.program.capture import capture
from meshwright.program.capture.arguments import (
    Names,
    Numbers,
    argument_names,
    split_arguments,
)
from meshwright.program.ir import Program
from meshwright.run.local.execute import run_program
from meshwright.run.local.spmd import (
    jax_mesh,
    mesh_of_sub_axes,
    outermost_sharding,
    weaken,
)


def annotated(
    plan: PlanRecord,
    fn: Callable[..., Any],
    tactics: Sequence[Tactic],
    mesh: jax.sharding.Mesh | None,
    static: tuple[Numbers, Names],
) -> Callable[..., Any]:
    """The function `fn` with a plan's sharding constraints; see `Plan.annotate`.

    tactics: the plan's tactics, which are applied to the traced function again.
    static: positions and names of the static arguments.
    """
    if not callable(fn):
        raise PlanError(f"annotate wants a function, got {fn!r}")
    if mesh is not None and not hasattr(mesh, "axis_types"):
        raise MeshError(
            f"{mesh!r:.60} is no mesh of JAX; wanted one as of jax.make_mesh, or None for "
            "one over the plan's devices"
        )
    fixed = argument_names(fn, *static) | argument_names(fn, *jit_options(fn, "static"))
    if mesh is not None:
        _require_same(mesh, plan.mesh)

    @functools.wraps(fn)
    def constrained(*args: Any, **kwargs: Any) -> Any:
        call = split_arguments(fn, fixed, args, kwargs)
        captured = capture(call.bind(fn), *call.traced, call.names)
        work = apply_tactics(captured, plan.mesh, tactics)
        program = _constrained(work, mesh or _mesh_here(plan.mesh), plan.gather)
        results = _undifferentiated(program)(*jax.tree_util.tree_leaves(call.traced))
        typed = [
            weaken(result) if aval.weak_type else result
            for result, aval in zip(results, captured.out_avals, strict=True)
        ]
        return jax.tree_util.tree_unflatten(captured.out_tree, typed)

    return constrained


def _undifferentiated(program: Program) -> Callable[..., list[Any]]:
    """The program as a function of flat leaves that refuses to be differentiated.

    The captured program does not keep the custom derivatives of the user's functions, so
    that its derivative could differ from theirs.
    """

    @jax.custom_jvp
    def run(*leaves: Any) -> list[Any]:
        return run_program(program, leaves)

    @run.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        del primals, tangents
        raise CaptureError(
            "an annotated function cannot be differentiated, since custom derivatives in "
            "it are lost; annotate the function that computes the gradient, such as the "
            "whole train step"
        )

    del refuse
    return run


def _constrained(work: Workspace, mesh: Any, gather: Gather) -> Program:
    """The program with a `with_sharding_constraint` for each sharded value.

    mesh: the JAX mesh of the constraints. If the plan splits an axis into sub-axes, the
        constraints are over a mesh of these.
    """
    work.mesh.require_spatial("constraints of jax.jit cannot say that a loop runs")
    lowered = lower(work.state, gather)
    inner = mesh_of_sub_axes(mesh, lowered.mesh)
    return constrained_program(
        work.state, lowered, lambda sharding: outermost_sharding(sharding, mesh, inner)
    )


def _mesh_here(plan_mesh: Mesh) -> Any:
    """The mesh of `jax.set_mesh`; if none is set, a mesh over the plan's devices."""
    here = jax.sharding.get_abstract_mesh()
    if here.empty:
        return jax_mesh(plan_mesh)
    _require_same(here, plan_mesh)
    return here


def _require_same(mesh: Any, plan_mesh: Mesh) -> None:
    """Raise `MeshError` if a JAX mesh cannot carry the plan's constraints.

    It must have the plan's axes with their sizes, all of type `Auto`.
    """
    if dict(mesh.shape) != plan_mesh.shape or tuple(mesh.axis_names) != plan_mesh.axes:
        sizes = ", ".join(f"{name}={size}" for name, size in mesh.shape.items())
        raise MeshError(f"the plan is for mesh {plan_mesh}, but this one has {sizes}")
    types = getattr(mesh, "axis_types", ())
    if any(each != AxisType.Auto for each in types):
        raise MeshError(
            f"the mesh {plan_mesh} has axes of the types {', '.join(map(str, types))}; "
            "constraints need axes of type Auto, as in jax.make_mesh(shape, names, "
            "axis_types=(jax.sharding.AxisType.Auto,) * len(names))"
        )
