"""The builder of device programs: ops on local shapes, with explicit collectives.

Ops that it writes have no JAX primitive. Their kinds are the names of `jax.lax`
functions and of the collectives below. Their parameters are Meshwright's own and do not
change between releases of JAX. `run/local/device_ops.py` executes them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from meshwright.machine import Mesh
from meshwright.program.ir import Atom, Literal, Op, Value

COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "permute")
"""Kinds of op that move bytes between devices, unlike `all_slice` and `axis_index`."""


@dataclass
class Builder:
    """The ops of one device program so far.

    Each method appends ops and returns their results.

    source, reason: stored in each op, so that `explain` can say why a collective is
        there.
    """

    mesh: Mesh
    ops: list[Op] = field(default_factory=list)
    source: object = ""
    reason: str = ""

    # -- any op ---------------------------------------------------------------------

    def emit(
        self,
        kind: str,
        operands: Sequence[Atom],
        shape: tuple[int, ...],
        dtype: str,
        /,
        **params: object,
    ) -> Value:
        """Append an op with one result; `kind` is the name of a `jax.lax` function."""
        result = Value(tuple(shape), dtype)
        self.ops.append(Op(kind, tuple(operands), (result,), params, (), self.source))
        return result

    def apply(
        self,
        op: Op,
        operands: Sequence[Atom],
        shapes: Iterable[tuple[int, ...]],
        params: Mapping[str, object] | None = None,
    ) -> tuple[Value, ...]:
        """Append a copy of `op` on other operands, with results of the given shapes.

        params: the copy's parameters; by default those of `op`.
        """
        made = zip(shapes, op.results, strict=True)
        results = tuple([Value(tuple(shape), old.dtype) for shape, old in made])
        chosen = op.params if params is None else params
        self.ops.append(
            Op(
                op.kind,
                tuple(operands),
                results,
                chosen,
                (),
                op.source,
                op.primitive,
                has_effect=op.has_effect,
                is_backward=op.is_backward,
                is_recomputed=op.is_recomputed,
            )
        )
        return results

    # -- elementwise ----------------------------------------------------------------

    def literal(self, value: object, like: Atom | str) -> Literal:
        """A scalar constant, with the dtype `like` or the dtype of the value `like`."""
        return Literal(value, like if isinstance(like, str) else like.dtype)

    def unary(self, kind: str, x: Atom) -> Value:
        """Append an elementwise op on one value: `neg`, `not`, `exp`, ..."""
        return self.emit(kind, (x,), x.shape, x.dtype)

    def binary(self, kind: str, x: Atom, y: Atom | float | int) -> Value:
        """Append an elementwise op on two values, such as `add`; scalars broadcast."""
        other = y if isinstance(y, Value | Literal) else self.literal(y, x)
        return self.emit(kind, (x, other), x.shape or other.shape, x.dtype)

    def clamp(self, x: Atom, low: int, high: int) -> Value:
        """`x` clamped to the range [low, high].

        An unsigned `x` is clamped to `high` only, since it cannot be below 0.
        """
        if not x.dtype.startswith("u"):
            x = self.binary("max", x, low)
        return self.binary("min", x, high)

    def compare(self, kind: str, x: Atom, y: Atom | float | int) -> Value:
        """Append a comparison to bools: `eq`, `ne`, `lt`, `le`, `gt` or `ge`."""
        other = y if isinstance(y, Value | Literal) else self.literal(y, x)
        return self.emit(kind, (x, other), x.shape or other.shape, "bool")

    def select(self, which: Atom, on_false: Atom, on_true: Atom) -> Value:
        """Elements of `on_true` where `which` is true, else elements of `on_false`.

        The condition `which` may be a scalar.
        """
        shape = on_true.shape or on_false.shape
        return self.emit("select_n", (which, on_false, on_true), shape, on_true.dtype)

    def convert(self, x: Atom, dtype: str) -> Value:
        """`x` converted to another dtype."""
        return self.emit("convert_element_type", (x,), x.shape, dtype, new_dtype=dtype)

    # -- shapes ---------------------------------------------------------------------

    def full(self, shape: tuple[int, ...], value: object, dtype: str) -> Value:
        """An array of this shape whose elements all have the same value."""
        return self.broadcast(Literal(value, dtype), shape, ())

    def iota(self, shape: tuple[int, ...], dim: int, dtype: str = "int32") -> Value:
        """An array that counts 0, 1, 2, ... along `dim`."""
        return self.emit("iota", (), shape, dtype, shape=shape, dim=dim)

    def broadcast(
        self, x: Atom, shape: tuple[int, ...], dims: tuple[int, ...]
    ) -> Value:
        """`x` broadcast to `shape`.

        Dim i of `x` becomes dim `dims[i]` of the result.
        """
        return self.emit(
            "broadcast_in_dim", (x,), shape, x.dtype, shape=shape, dims=dims
        )

    def reshape(self, x: Atom, shape: tuple[int, ...]) -> Value:
        """`x` in another shape, with its elements in the same row-major order."""
        return self.emit("reshape", (x,), shape, x.dtype, shape=shape)

    def transpose(self, x: Atom, permutation: tuple[int, ...]) -> Value:
        """`x` with its dims in the order of `permutation`."""
        shape = tuple(x.shape[dim] for dim in permutation)
        return self.emit("transpose", (x,), shape, x.dtype, permutation=permutation)

    def fence(self, x: Atom, after: Sequence[Atom] = ()) -> Value:
        """`x` behind an optimization barrier, across which XLA does not simplify.

        after: values that are computed before an op may read the result.
        """
        return self.emit("optimization_barrier", (x, *after), x.shape, x.dtype)

    def slice(self, x: Atom, dim: int, start: int, limit: int) -> Value:
        """The elements `start` to `limit` (excluded) of `x` along one dim."""
        shape = x.shape[:dim] + (limit - start,) + x.shape[dim + 1 :]
        return self.emit(
            "slice", (x,), shape, x.dtype, dim=dim, start=start, limit=limit
        )

    def columns(self, x: Atom, sizes: Sequence[int]) -> tuple[Value, ...]:
        """The columns of a matrix, as several matrices of `sizes` columns each."""
        parts = tuple([Value((x.shape[0], n), x.dtype) for n in sizes])
        params = {"sizes": tuple(sizes)}
        self.ops.append(Op("columns", (x,), parts, params, (), self.source))
        return parts

    def concatenate(self, values: Sequence[Atom], dim: int) -> Value:
        """Values concatenated along `dim`."""
        first = values[0]
        total = sum(v.shape[dim] for v in values)
        shape = first.shape[:dim] + (total,) + first.shape[dim + 1 :]
        return self.emit("concatenate", values, shape, first.dtype, dim=dim)

    def sort_by_first(self, keys: Atom, x: Atom, dim: int) -> tuple[Value, Value]:
        """`keys` in ascending order along `dim`, and the elements of `x` that go along.

        Equal keys keep their order.
        """
        sorted_keys, along = Value(keys.shape, keys.dtype), Value(x.shape, x.dtype)
        params = {"dimension": dim}
        op = Op("sort", (keys, x), (sorted_keys, along), params, (), self.source)
        self.ops.append(op)
        return sorted_keys, along

    def pad_with_zeros(self, x: Atom, dim: int, margin: int) -> Value:
        """`x` with `margin` zeros before and after it along one dim."""
        shape = (*x.shape[:dim], margin, *x.shape[dim + 1 :])
        zeros = self.full(shape, 0, x.dtype)
        return self.concatenate((zeros, x, zeros), dim)

    def reduce(self, x: Atom, dims: tuple[int, ...], monoid: str = "sum") -> Value:
        """`x` reduced over `dims`; `monoid` is sum, max, min, prod, and, or, or xor."""
        shape = tuple(n for d, n in enumerate(x.shape) if d not in dims)
        return self.emit("reduce", (x,), shape, x.dtype, dims=dims, monoid=monoid)

    # -- devices --------------------------------------------------------------------

    def axis_index(self, axes: tuple[str, ...]) -> Value:
        """This device's int32 position along several mesh axes taken together.

        The first axis is the major one: the position is the index in row-major order.
        """
        return self.emit("axis_index", (), (), "int32", axes=axes)

    def all_slice(self, x: Atom, dim: int, axes: tuple[str, ...]) -> Value:
        """This device's chunk along `dim` of a value that it has completely.

        It moves no bytes between devices.
        """
        shape = self._resized(x, dim, 1, self.mesh.size(axes))
        return self.emit("all_slice", (x,), shape, x.dtype, dim=dim, axes=axes)

    def part_slice(
        self,
        x: Atom,
        dim: int,
        axes: tuple[str, ...],
        offset: int,
        piece: tuple[int, int] = (0, 1),
    ) -> Value:
        """The chunk that belongs to the device `offset` positions after this one.

        The value is complete on every device along `axes`, so that no bytes move
        between devices.
        piece: (index, number): if `number` > 1, the chunk is split into that many equal
            pieces, and the piece with this index is taken.
        """
        shape = self._resized(x, dim, 1, self.mesh.size(axes) * piece[1])
        return self.emit(
            "all_slice", (x,), shape, x.dtype,
            dim=dim, axes=axes, offset=offset, piece=piece,
        )  # fmt: skip

    def all_gather(self, x: Atom, dim: int, axes: tuple[str, ...]) -> Value:
        """The chunks of all devices along `axes`, concatenated along `dim`."""
        shape = self._resized(x, dim, self.mesh.size(axes), 1)
        return self._collective("all_gather", x, shape, dim=dim, axes=axes)

    def all_reduce(self, x: Atom, axes: tuple[str, ...], monoid: str = "sum") -> Value:
        """The reduction of `x` over the devices along `axes`, on each of them."""
        return self._collective("all_reduce", x, x.shape, axes=axes, monoid=monoid)

    def reduce_scatter(
        self, x: Atom, dim: int, axes: tuple[str, ...], monoid: str = "sum"
    ) -> Value:
        """This device's chunk (along `dim`) of the reduction of `x` over `axes`."""
        shape = self._resized(x, dim, 1, self.mesh.size(axes))
        return self._collective(
            "reduce_scatter", x, shape, dim=dim, axes=axes, monoid=monoid
        )

    def all_to_all(
        self, x: Atom, gather: int, split: int, axes: tuple[str, ...]
    ) -> Value:
        """`x`, sharded along `axes` on dim `split` rather than on dim `gather`.

        On each device, dim `gather` grows by the number of devices, and dim `split`
        shrinks by it.
        """
        n = self.mesh.size(axes)
        shape = list(x.shape)
        shape[gather] *= n
        shape[split] //= n
        return self._collective(
            "all_to_all", x, tuple(shape), gather=gather, split=split, axes=axes
        )

    def permute(
        self, x: Atom, axes: tuple[str, ...], pairs: tuple[tuple[int, int], ...]
    ) -> Value:
        """The value received from another device along `axes`; zeros if none sends.

        pairs: (from, to) positions along the axes. The op lists the axes in the mesh's
            order, since JAX accepts no other order.
        """
        order = tuple(a for a in self.mesh.axes if a in axes)
        if order != axes:
            ends = [tuple(self.moved(p, axes, order) for p in pair) for pair in pairs]
            pairs = tuple(sorted((a, b) for a, b in ends))
        return self._collective("permute", x, x.shape, axes=order, pairs=pairs)

    def moved(self, position: int, old: tuple[str, ...], new: tuple[str, ...]) -> int:
        """A device's position along axes in order `new`, from that in order `old`.

        Both orders have the same axes; a position counts devices in row-major order of
        the axes.
        """
        coordinates: dict[str, int] = {}
        for axis in reversed(old):
            position, coordinates[axis] = divmod(position, self.mesh.size(axis))
        for axis in new:
            position = position * self.mesh.size(axis) + coordinates[axis]
        return position

    def _collective(
        self, kind: str, x: Atom, shape: tuple[int, ...], **params: object
    ) -> Value:
        return self.emit(kind, (x,), shape, x.dtype, reason=self.reason, **params)

    @staticmethod
    def _resized(x: Atom, dim: int, times: int, over: int) -> tuple[int, ...]:
        shape = list(x.shape)
        shape[dim] = shape[dim] * times // over
        return tuple(shape)
