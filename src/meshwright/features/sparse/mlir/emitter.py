"""Writing of MLIR text in the linalg dialect: names, types, ops over loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from meshwright.features.sparse.mlir.formats import Format
from meshwright.features.sparse.mlir.scalars import MLIR_DTYPES, constant_text
from meshwright.program.ir import Value
from meshwright.program.rules.rule import Dims

Body = Callable[[Sequence[str]], str]
"""A function that writes the ops on one element and returns the result's name."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An MLIR tensor that holds a value of the program.

    A transposition changes only `order`, and moves no data.

    order: for each dim of the value, the dim of the tensor that holds it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    format: Format | None
    order: tuple[int, ...]

    @classmethod
    def dense(cls, shape: tuple[int, ...], dtype: str) -> Tensor:
        """A dense tensor without a name, whose dims are those of the value."""
        return cls("", shape, dtype, None, tuple(range(len(shape))))

    @classmethod
    def held(cls, value: Value, form: Format | None) -> Tensor:
        """A tensor without a name that holds a value in a format, or densely."""
        if form is None:
            return cls.dense(value.shape, value.dtype)
        return replace(cls.in_order(value, form.order), format=form.held)

    @classmethod
    def in_order(cls, value: Value, order: tuple[int, ...]) -> Tensor:
        """A dense tensor without a name, each dim of the value where `order` says."""
        shape = tuple(value.shape[order.index(t)] for t in range(len(order)))
        return cls("", shape, value.dtype, None, order)

    @property
    def value_shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return tuple(self.shape[t] for t in self.order)

    @property
    def is_plain(self) -> bool:
        """Whether the tensor's dims are in the order of the value's dims."""
        return self.order == tuple(range(len(self.order)))


@dataclass(slots=True)
class Emitter:
    """The lines of one MLIR function so far.

    encodings: by format, the alias of its encoding, such as `#F0`.
    count: the number of names given so far.
    functions: the text of other functions of the module.
    unordered: names of computed sparse tensors whose columns are in any order.
    ordered: names of sparse tensors that are read in the order of their columns.
    """

    lines: list[str] = field(default_factory=list[str])
    encodings: dict[Format, str] = field(default_factory=dict[Format, str])
    count: int = 0
    functions: list[str] = field(default_factory=list[str])
    unordered: set[str] = field(default_factory=set[str])
    ordered: set[str] = field(default_factory=set[str])

    def fresh(self) -> str:
        """A new name, such as `%7`."""
        self.count += 1
        return f"%{self.count - 1}"

    def emit(self, right: str) -> str:
        """Append a line that assigns `right` to a new name, and return the name."""
        name = self.fresh()
        self.lines.append(f"{name} = {right}")
        return name

    def type_of(self, tensor: Tensor) -> str:
        """The MLIR type of a tensor, such as `tensor<6x8xf32, #F0>`."""
        extents = "".join(f"{n}x" for n in tensor.shape)
        kind = MLIR_DTYPES[tensor.dtype]
        if tensor.format is None:
            return f"tensor<{extents}{kind}>"
        alias = self.encodings.setdefault(tensor.format, f"#F{len(self.encodings)}")
        return f"tensor<{extents}{kind}, {alias}>"

    def empty(self, like: Tensor) -> Tensor:
        """A tensor of this type whose elements are not set yet."""
        return replace(like, name=self.emit(f"tensor.empty() : {self.type_of(like)}"))

    def filled(self, value: Value, number: float) -> Tensor:
        """A dense tensor that is filled with one number."""
        tensor = Tensor.dense(value.shape, value.dtype)
        start = self.emit(f"arith.constant {constant_text(number, value.dtype)}")
        empty = self.empty(tensor)
        kind, whole = MLIR_DTYPES[value.dtype], self.type_of(tensor)
        right = (
            f"linalg.fill ins({start} : {kind}) outs({empty.name} : {whole}) -> {whole}"
        )
        return replace(tensor, name=self.emit(right))

    # -- loops over memory -------------------------------------------------------------

    def index(self, number: int) -> str:
        """The name of a constant that counts or indexes."""
        return self.emit(f"arith.constant {number} : index")

    def buffer(self, tensor: Tensor) -> str:
        """The memory of a dense tensor, to be read only."""
        types = f"{self.type_of(tensor)} to {memory_type(tensor)}"
        return self.emit(f"bufferization.to_buffer {tensor.name} read_only : {types}")

    def allocated(self, tensor: Tensor) -> str:
        """New memory for a dense tensor."""
        return self.emit(f"memref.alloc() : {memory_type(tensor)}")

    def on_buffer(self, tensor: Tensor, memory: str) -> Tensor:
        """The dense tensor of this type on memory that nothing else writes to."""
        types = f"{memory_type(tensor)} to {self.type_of(tensor)}"
        right = f"bufferization.to_tensor {memory} restrict writable : {types}"
        return replace(tensor, name=self.emit(right))

    def index_at(self, memory: str, place: str) -> str:
        """The position or coordinate at a place of an array of these."""
        read = self.emit(f"memref.load {memory}[{place}] : memref<?xi32>")
        return self.emit(f"arith.index_castui {read} : i32 to index")

    def loop(
        self,
        low: str,
        high: str,
        step: int,
        starts: Sequence[tuple[str, str]],
        body: Callable[[str, Sequence[str]], Sequence[str]],
    ) -> list[str]:
        """A loop from `low` to below `high`; returns the names of what it carried.

        starts: name and type of each value that is carried from iteration to iteration.
        body: writes one iteration. It gets the index and the carried values, and
            returns their next values.
        """
        at, carried = self.fresh(), [self.fresh() for _ in starts]
        by = self.index(step)
        outside, self.lines = self.lines, []
        yielded = body(at, carried)
        inside, self.lines = self.lines, outside
        types = ", ".join(kind for _, kind in starts)
        pairs = ", ".join(
            f"{name} = {start}"
            for name, (start, _) in zip(carried, starts, strict=True)
        )
        result = self.fresh()
        head = f"{result}:{len(starts)} = " if starts else ""
        kept = f" iter_args({pairs}) -> ({types})" if starts else ""
        last = [f"scf.yield {', '.join(yielded)} : {types}"] if starts else []
        rows = "\n    ".join([*inside, *last])
        self.lines.append(
            f"{head}scf.for {at} = {low} to {high} step {by}{kept} {{\n    {rows}\n  }}"
        )
        return [f"{result}#{i}" for i in range(len(starts))]

    def generic(
        self,
        tensors: Sequence[Tensor],
        maps: Sequence[Dims],
        out: Tensor,
        out_dims: Dims,
        body: Body,
    ) -> Tensor:
        """A `linalg.generic` op, which computes `out` from `tensors` in nested loops.

        maps, out_dims: the factors (loops) that index each dim of the operands and of
            the result.
        body: writes the ops on one element. It gets the names of the operands' elements
            and, last, of the result's element so far.
        """
        if not out.name:
            out = self.empty(out)
        sparse = [t.name for t in (*tensors, out) if t.format is not None]
        if len(sparse) > 1:  # one alone is read in any order, into a dense result
            self.ordered.update(sparse)
        parallel = [f for dims in out_dims for f in dims]
        read = [f for dims in maps for fs in dims for f in fs]
        every = [*zip(tensors, maps, strict=True), (out, out_dims)]
        factors = loops_in_memory_order(dict.fromkeys([*parallel, *read]), every)
        shown = ", ".join(_map_text(t, dims, factors) for t, dims in every)
        kinds = ", ".join(
            '"parallel"' if f in parallel else '"reduction"' for f in factors
        )
        names = [self.fresh() for _ in every]
        arguments = ", ".join(
            f"{name}: {MLIR_DTYPES[tensor.dtype]}"
            for name, (tensor, _) in zip(names, every, strict=True)
        )
        outside, self.lines = self.lines, []
        found = body(names)
        inside, self.lines = self.lines, outside
        given = ", ".join(t.name for t in tensors)
        types = ", ".join(map(self.type_of, tensors))
        ins = f" ins({given} : {types})" if tensors else ""
        rows = "\n    ".join(
            [*inside, f"linalg.yield {found} : {MLIR_DTYPES[out.dtype]}"]
        )
        right = (
            f"linalg.generic {{ indexing_maps = [{shown}], iterator_types = [{kinds}] }}"
            f"{ins} outs({out.name} : {self.type_of(out)}) {{\n  ^bb0({arguments}):\n    "
            f"{rows}\n  }} -> {self.type_of(out)}"
        )
        return replace(out, name=self.emit(right))


def loops_in_memory_order(
    factors: Iterable[int], tensors: Sequence[tuple[Tensor, Dims]]
) -> list[int]:
    """The factors in the order of the loops, outermost first.

    The inner loops read adjacent elements: a factor is further inside, the more tensors
    it indexes at their last dim, and the fewer at another dim. A product of matrices
    `ik,kj->ij` (each letter is a factor) loops over i, k, j. Dense code keeps this
    order; the sparsifier changes it where a format needs another.
    """
    score = dict.fromkeys(factors, 0)
    for tensor, dims in tensors:
        for dim, named in enumerate(dims):
            for factor in named[:1]:
                is_last = tensor.order[dim] == len(dims) - 1
                score[factor] += 1 if is_last else -1
    return sorted(score, key=score.__getitem__)


def _map_text(tensor: Tensor, dims: Dims, factors: Sequence[int]) -> str:
    """The affine map from loops over `factors` to the tensor's dims, as MLIR text."""
    loops = ", ".join(f"d{i}" for i in range(len(factors)))
    places = [""] * len(dims)
    for dim, named in enumerate(dims):
        place = f"d{factors.index(named[0])}" if named else "0"
        places[tensor.order[dim]] = place
    return f"affine_map<({loops}) -> ({', '.join(places)})>"


def loop_order(tensor: Tensor, dims: Dims) -> tuple[int, ...]:
    """The factors that index a tensor, in the order of its dims."""
    places = [0] * len(dims)
    for dim, named in enumerate(dims):
        places[tensor.order[dim]] = named[0]
    return tuple(places)


def memory_type(tensor: Tensor) -> str:
    """The MLIR type of a dense tensor's memory, such as `memref<6x8xf32>`."""
    extents = "".join(f"{n}x" for n in tensor.shape)
    return f"memref<{extents}{MLIR_DTYPES[tensor.dtype]}>"
