"""A function with the sharding constraints of a plan, for plain `jax.jit`."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import AxisType

from meshwright.errors import MeshError, PlanError
from meshwright.jax_private import jit_options
from meshwright.machine import Mesh
from meshwright.partitioner.decide import apply_tactics
from meshwright.partitioner.lower import Gather, constrained_program, lower
from meshwright.partitioner.tactics import Tactic
from meshwright.program.capture import capture, positional_names
from meshwright.program.ir import Sharding
from meshwright.run.local import jax_mesh
from meshwright.run.local.execute import run_program
from meshwright.run.local.spmd import mesh_of_sub_axes, outermost_sharding, weaken


def annotated(
    fn: Callable[..., Any],
    tactics: Sequence[Tactic],
    plan_mesh: Mesh,
    mesh: jax.sharding.Mesh | None,
) -> Callable[..., Any]:
    """The function `fn` with the constraints of a plan; see `Plan.annotate`."""
    if not callable(fn):
        raise PlanError(f"annotate wants a function, got {fn!r}")
    if mesh is not None:
        _require_same(mesh, plan_mesh)
    numbers, static = jit_options(fn, "static")

    @functools.wraps(fn)
    def constrained(*args: Any, **kwargs: Any) -> Any:
        names = positional_names(fn, len(args))
        fixed = {*static, *(names[n] for n in numbers if n < len(names))}
        bound = {n: a for n, a in (*zip(names, args, strict=True), *kwargs.items())}
        given = {n: a for n, a in bound.items() if n not in fixed}

        def traced(*traced_args: Any, **keywords: Any) -> Any:
            rest = iter(traced_args)
            full = (
                a if n in fixed else next(rest)
                for n, a in zip(names, args, strict=True)
            )
            return fn(*full, **{**kwargs, **keywords})

        positional = [n for n in names if n not in fixed]
        keywords = {n: a for n, a in given.items() if n not in names}
        return _run(
            traced,
            (tuple(given[n] for n in positional), keywords),
            positional,
            tactics,
            mesh or _mesh_here(plan_mesh),
            plan_mesh,
        )

    return constrained


def _run(
    fn: Callable[..., Any],
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    names: Sequence[str],
    tactics: Sequence[Tactic],
    mesh: Any,
    plan_mesh: Mesh,
) -> Any:
    """The result of `fn`, computed op by op with constraints over a JAX mesh."""
    captured = capture(fn, *arguments, names)
    work = apply_tactics(captured, plan_mesh, tactics)
    lowered = lower(work.state, Gather.SHARED)
    inner = mesh_of_sub_axes(mesh, lowered.mesh)

    def named(sharding: Sharding) -> Any:
        return outermost_sharding(sharding, mesh, inner)

    program = constrained_program(work.state, lowered, named)
    results = run_program(program, jax.tree_util.tree_leaves(arguments))
    typed = [
        weaken(result) if aval.weak_type else result
        for result, aval in zip(results, captured.out_avals, strict=True)
    ]
    return jax.tree_util.tree_unflatten(captured.out_tree, typed)


def _mesh_here(plan_mesh: Mesh) -> Any:
    """The mesh of `jax.set_mesh`, or else that of the plan's devices."""
    here = jax.sharding.get_abstract_mesh()
    if here.empty:
        return jax_mesh(plan_mesh)
    _require_same(here, plan_mesh)
    return here


def _require_same(mesh: Any, plan_mesh: Mesh) -> None:
    """Raise `MeshError` for a mesh with other axes, or with axes of another type."""
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
