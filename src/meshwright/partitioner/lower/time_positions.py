"""Rewrites ops that read their position along a sequential axis, in its scan."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshwright.machine import Mesh
from meshwright.partitioner.lower.lowered import Origin
from meshwright.partitioner.lower.time_crossings import rename
from meshwright.partitioner.lower.time_stages import reads_position
from meshwright.program.ir import Atom, Op, Program, Value, Wire
from meshwright.program.ops import Builder


@dataclass(frozen=True, eq=False)
class Positions:
    """Rewrites ops that read their position along an axis that is a loop in time."""

    mesh: Mesh
    axis: str
    origins: dict[Op, Origin]

    def resolved(self, op: Op, position: Atom, known: dict[Atom, Atom]) -> Sequence[Op]:
        """The ops that replace `op`, with `position` as the index along the axis.

        known: the values that replace others, which gets the index if `op` computes it.
        """
        op = rename(op, known, self.origins)
        if not reads_position(op, self.axis):
            return (op,)
        if op.bodies:
            return (self._region(op, position),)
        axes = op.params["axes"]
        assert isinstance(axes, tuple), f"{op.kind} along {axes!r}"
        builder = Builder(self.mesh, source=op.source)
        index = self._index(builder, axes, position)  # pyright: ignore[reportUnknownArgumentType]
        if op.kind == "axis_index":
            known[op.results[0]] = index
            return builder.ops
        dim, (result,) = int(str(op.params["dim"])), op.results
        zero = builder.literal(0, "int32")
        starts: list[Atom] = [zero] * len(result.shape)
        starts[dim] = builder.binary("mul", index, result.shape[dim])
        operands = (op.operands[0], *starts)
        params = {"sizes": result.shape}
        part = Op("dynamic_slice", operands, op.results, params, source=op.source)
        return (*builder.ops, part)

    def _index(self, builder: Builder, axes: tuple[str, ...], position: Atom) -> Atom:
        """The index of this device and iteration along `axes`, major to minor."""
        index: Atom | None = None
        for axis in axes:
            here = position if axis == self.axis else builder.axis_index((axis,))
            if index is not None:
                scaled = builder.binary("mul", index, self.mesh.size(axis))
                here = builder.binary("add", scaled, here)
            index = here
        assert index is not None, "an op along no axis"
        return index

    def _region(self, op: Op, position: Atom) -> Op:
        """A loop, branch or remat region whose bodies get the position as an input."""
        ends: list[tuple[int, int]] = []
        bodies: list[Program] = []
        for number, body in enumerate(op.bodies):
            if not any(reads_position(inner, self.axis) for inner in body.ops):
                bodies.append(body)
                continue
            inside = Value((), "int32")
            ends.append((number, len(body.inputs)))
            bodies.append(self._body(body, inside))
        wire = Wire(len(op.operands), tuple(ends))
        return replace(
            op,
            operands=(*op.operands, position),
            bodies=tuple(bodies),
            wires=(*op.wires, wire),
        )

    def _body(self, body: Program, position: Value) -> Program:
        known: dict[Atom, Atom] = {}
        ops: list[Op] = []
        for op in body.ops:
            ops += self.resolved(op, position, known)
        outputs = tuple(known.get(a, a) for a in body.outputs)
        return replace(
            body, inputs=(*body.inputs, position), ops=tuple(ops), outputs=outputs
        )
