"""Rewrites collectives so that those along a sequential axis name no other axis.

A sequential axis is a loop in time. A program is first lowered as if it were an axis of
devices. Here each collective over it and other axes becomes several, of which at most
one names it, alone. Inputs and outputs are stored unsharded along it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshwright.errors import MeshError
from meshwright.machine import Mesh
from meshwright.partitioner.lower.lowered import Lowered, Origin
from meshwright.program.ir import Atom, Op, Program, Sharding, Value
from meshwright.program.ops import COLLECTIVES, Builder

CROSSINGS = ("all_reduce", "all_gather")
"""Kinds of collectives along the sequential axis that remain after the rewrite."""


def is_crossing(op: Op, axis: str) -> bool:
    """Whether an op reduces or gathers over all iterations of the sequential axis."""
    return op.kind in CROSSINGS and op.params["axes"] == (axis,)


def separate(lowered: Lowered, axis: str) -> Lowered:
    """The device program with `axis` alone in its collectives, not in its inputs."""
    rewrite = _Separation(lowered.mesh, axis, dict(lowered.origins))
    inputs, slices = rewrite.whole_inputs(lowered)
    ops = [*slices]
    for op in lowered.program.ops:
        ops += rewrite.alone(op)
    outputs, gathers = rewrite.whole_outputs(lowered)
    ops += gathers
    constants = lowered.program.constants
    return Lowered(
        Program(inputs, tuple(ops), outputs, constants),
        lowered.mesh,
        tuple(_without(s, axis) for s in lowered.inputs),
        tuple(_without(s, axis) for s in lowered.outputs),
        rewrite.origins,
        lowered.stored,
    )


def _without(sharding: Sharding, axis: str) -> Sharding:
    dims = tuple(tuple(a for a in axes if a != axis) for axes in sharding.dims)
    return Sharding(dims, sharding.partial, sharding.monoid)


class _Separation:
    """Rewrites collectives along a sequential axis so that they name no other axis.

    origins: the recorded reasons for collectives, extended by the new ones.
    """

    def __init__(self, mesh: Mesh, axis: str, origins: dict[Op, Origin]) -> None:
        self.mesh = mesh
        self.axis = axis
        self.origins = origins

    def alone(self, op: Op) -> Sequence[Op]:
        """The ops that replace an op; the last one has the same result values."""
        self._require_outside(op)
        if "mesh_axes" in op.params:  # an effect, which runs on one device, and once
            axes = tuple(a for a in self.mesh.axes if a != self.axis)
            return (replace(op, params={**op.params, "mesh_axes": axes}),)
        axes: object = op.params.get("axes", ())
        is_along = op.kind in COLLECTIVES and self.axis in axes  # pyright: ignore[reportOperatorIssue]
        if not is_along or is_crossing(op, self.axis):
            return (op,)
        builder = Builder(
            self.mesh, source=op.source, reason=str(op.params.get("reason", ""))
        )
        self._write(builder, op)
        ops = builder.ops
        ops[-1] = replace(ops[-1], results=op.results)
        origin = self.origins.get(op)
        for made in ops:
            if origin is not None and made.kind in COLLECTIVES:
                self.origins[made] = replace(origin, axes=_axes(made))
        return ops

    def _write(self, builder: Builder, op: Op) -> None:
        x, params, axis = op.operands[0], op.params, self.axis
        axes = _axes(op)
        at = axes.index(axis)
        major, minor = axes[:at], axes[at + 1 :]
        dim, monoid = params.get("dim"), str(params.get("monoid", "sum"))
        if op.kind == "all_reduce":
            x = builder.all_reduce(x, (axis,), monoid)
            builder.all_reduce(x, (*major, *minor), monoid)
        elif op.kind == "all_gather" and isinstance(dim, int):
            x = builder.all_gather(x, dim, minor) if minor else x
            x = builder.all_gather(x, dim, (axis,))
            x = builder.all_gather(x, dim, major) if major else x
        elif op.kind == "reduce_scatter" and isinstance(dim, int):
            x = builder.all_reduce(x, (axis,), monoid)
            x = builder.reduce_scatter(x, dim, major, monoid) if major else x
            x = builder.all_slice(x, dim, (axis,))
            x = builder.reduce_scatter(x, dim, minor, monoid) if minor else x
        elif op.kind == "all_to_all" and axes == (axis,):
            x = builder.all_gather(x, int(str(params["gather"])), axes)
            builder.all_slice(x, int(str(params["split"])), axes)
        else:
            raise MeshError(
                f"{op.source}: {op.kind} along {', '.join(axes)} ({builder.reason}) moves "
                f"values between iterations of the sequential axis {axis!r}, which is "
                "possible only between devices; cut that value along another axis"
            )

    def _require_outside(self, op: Op) -> None:
        """Raise `MeshError` for a collective along the axis within a loop or branch."""
        for body in op.bodies:
            for inner in body.walk():
                if inner.kind in COLLECTIVES and self.axis in _axes(inner):
                    raise MeshError(
                        f"{inner.source}: {inner.kind} along the sequential axis "
                        f"{self.axis!r} inside of a {op.kind} "
                        f"({inner.params.get('reason')}): each iteration of that "
                        "needs all iterations in time; write the loop without it, or "
                        "make the axis one of devices"
                    )

    # -- ends --------------------------------------------------------------------------

    def whole_inputs(self, lowered: Lowered) -> tuple[tuple[Value, ...], list[Op]]:
        """The inputs unsharded along the sequential axis, and the ops that slice them."""
        builder, inputs = Builder(self.mesh), list[Value]()
        for value, sharding in zip(lowered.program.inputs, lowered.inputs, strict=True):
            dim = self._dim(sharding, "an argument")
            if dim is None:
                inputs.append(value)
                continue
            shape = list(value.shape)
            shape[dim] *= self.mesh.size(self.axis)
            stored = Value(tuple(shape), value.dtype)
            inputs.append(stored)
            builder.all_slice(stored, dim, (self.axis,))
            builder.ops[-1] = replace(builder.ops[-1], results=(value,))
        return tuple(inputs), builder.ops

    def whole_outputs(self, lowered: Lowered) -> tuple[tuple[Atom, ...], list[Op]]:
        """The outputs unsharded along the sequential axis, and their all-gathers."""
        builder, outputs = Builder(self.mesh), list[Atom]()
        for atom, sharding in zip(
            lowered.program.outputs, lowered.outputs, strict=True
        ):
            dim = self._dim(sharding, "a result")
            if dim is not None:
                builder.reason = "a result is whole along a sequential axis"
                atom = builder.all_gather(atom, dim, (self.axis,))
            outputs.append(atom)
        return tuple(outputs), builder.ops

    def _dim(self, sharding: Sharding, what: str) -> int | None:
        """The dim that the sequential axis shards.

        Raises `MeshError` if another axis shards the dim after it.
        """
        dim = sharding.dim_of(self.axis)
        if dim is not None and sharding.dims[dim][-1] != self.axis:
            axes = sharding.dims[dim]
            minor = reversed(axes[axes.index(self.axis) + 1 :])
            raise MeshError(
                f"dim {dim} of {what} is cut along the sequential axis {self.axis!r} and "
                f"then along {', '.join(minor)}, so that one device's part of an "
                "iteration is no part of what it stores; apply the tactics of "
                f"{self.axis!r} last"
            )
        return dim


def _axes(op: Op) -> tuple[str, ...]:
    axes = op.params["axes"]
    assert isinstance(axes, tuple), f"{op.kind} along {axes!r}"
    return axes  # pyright: ignore[reportUnknownVariableType]


def rename(op: Op, known: Mapping[Atom, Atom], origins: dict[Op, Origin]) -> Op:
    """The op with operands replaced as in `known`; `origins` is kept up to date."""
    if not any(atom in known for atom in op.operands):
        return op
    made = replace(op, operands=tuple(known.get(a, a) for a in op.operands))
    if op in origins:
        origins[made] = origins[op]
    return made
