"""Ranges of a program's inputs: which are indices, and which must be positive.

`mw.check` draws random inputs within these ranges. A forward walk over the captured
program follows each input through ops that pass its numbers on unchanged or nearly so,
up to the ops that limit the numbers, such as a gather that uses them as indices.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, ops_with

_PASS_ON = frozenset(
    {
        *ops_with(Trait.ALIASES_OPERAND), *ops_with(Trait.CHOOSES),
        *(ops_with(Trait.MOVES) - {"gather"}), "convert_element_type",
        "reduce_precision",
    }
)  # fmt: skip
"""Ops whose results consist of numbers of their operands.

A gather's indices are not such numbers.
"""

_INDEX_KINDS = _PASS_ON | {"add", "sub", "rem", "sort", "reduce_max"}
_POSITIVE_KINDS = _PASS_ON | {"add", "mul", "div", "reduce_sum", "reduce_max"}
_NEEDS_POSITIVE = frozenset({"sqrt", "rsqrt", "log", "log1p", "pow", "lgamma"})
"""Ops whose first operand must not be negative."""


@dataclass
class InputRanges:
    """The allowed numbers of a program's inputs, by position of the input.

    bounds: exclusive upper bounds; the smallest extent of a dim that the input indexes.
    positive: positions of inputs that must not be negative.
    """

    bounds: dict[int, int] = field(default_factory=dict)
    positive: set[int] = field(default_factory=set)


def find_ranges(program: Program) -> InputRanges:
    """The ranges of a program's inputs, as implied by the ops that read them."""
    walk = _Walk()
    origins = {value: frozenset({i}) for i, value in enumerate(program.inputs)}
    walk.run(program, origins, {})
    return walk.ranges


Origins = dict[Value, frozenset[int]]


class _Walk:
    """A forward walk that finds the inputs whose numbers each value may contain."""

    def __init__(self) -> None:
        self.ranges = InputRanges()

    def run(self, program: Program, origins: Origins, iotas: dict[Value, int]) -> None:
        for op in program.ops:
            if op.bodies:
                self._region(op, origins, iotas)
                continue
            self._record(op, origins, iotas)
            is_float = bool(op.results) and "float" in op.results[0].dtype
            kinds = _POSITIVE_KINDS if is_float else _INDEX_KINDS
            is_square = op.kind == "mul" and op.operands[0] is op.operands[1]
            if op.kind == "iota":
                iotas[op.results[0]] = max(op.results[0].shape, default=1)
            if op.kind in kinds and not is_square:
                found = _union(origins, _values(op))
                extents = [iotas[a] for a in _values(op) if a in iotas]
                for result in op.results:
                    if found:
                        origins[result] = found
                    if extents:
                        iotas[result] = max(extents)

    def _region(self, op: Op, origins: Origins, iotas: dict[Value, int]) -> None:
        """Walk the bodies of a loop or branch twice.

        The second walk knows what the first one found about values that the loop
        carries.
        """
        for _ in range(2):
            for wire in op.wires:
                outer = None if wire.operand is None else op.operands[wire.operand]
                ends: list[Atom] = [op.bodies[b].outputs[i] for b, i in wire.outputs]
                ends += [] if outer is None else [outer]
                found = _union(origins, ends)
                for body, i in wire.inputs:
                    origins[op.bodies[body].inputs[i]] = found
                if wire.result is not None:
                    origins[op.results[wire.result]] = found
            for body in op.bodies:
                self.run(body, origins, iotas)

    def _record(self, op: Op, origins: Origins, iotas: Mapping[Value, int]) -> None:
        """Record the limits that an op implies for the inputs that it depends on."""
        if op.kind in _NEEDS_POSITIVE and isinstance(op.operands[0], Value):
            self.ranges.positive |= origins.get(op.operands[0], frozenset())
        for atom, extent in (*_indexed(op), *_compared(op, iotas)):
            if isinstance(atom, Value):
                for i in origins.get(atom, ()):
                    known = self.ranges.bounds.get(i, extent)
                    self.ranges.bounds[i] = max(1, min(known, extent))


def _union(origins: Origins, atoms: Iterable[Atom]) -> frozenset[int]:
    """Positions of the inputs whose numbers any of the atoms may contain."""
    none = frozenset[int]()
    return none.union(*(origins.get(a, none) for a in atoms if isinstance(a, Value)))


def _values(op: Op) -> Iterator[Value]:
    """The operands whose numbers an op's results may contain."""
    first = 1 if op.kind == "select_n" else 0
    return (a for a in op.operands[first:] if isinstance(a, Value))


def _indexed(op: Op) -> Iterator[tuple[Atom, int]]:
    """(operand, extent) pairs: operands that index an array, and the indexed extent."""
    numbers = op.params.get("dimension_numbers")
    if op.kind == "gather":
        sizes = op.params["slice_sizes"]
        dims = getattr(numbers, "start_index_map", ())
        extents = [op.operands[0].shape[d] - sizes[d] + 1 for d in dims]
        yield op.operands[1], min(extents, default=1)
    elif op.kind.startswith("scatter"):
        dims = getattr(numbers, "scatter_dims_to_operand_dims", ())
        extents = [op.operands[0].shape[d] for d in dims]
        yield op.operands[1], min(extents, default=1)
    elif op.kind in ("dynamic_slice", "dynamic_update_slice"):
        is_read = op.kind == "dynamic_slice"
        part = op.results[0] if is_read else op.operands[1]
        starts = op.operands[1 if is_read else 2 :]
        pairs = zip(op.operands[0].shape, part.shape, strict=True)
        yield from zip(starts, (n - m + 1 for n, m in pairs), strict=True)


def _compared(op: Op, iotas: Mapping[Value, int]) -> Iterator[tuple[Atom, int]]:
    """(operand, extent) pairs of class labels, and the number of classes.

    Labels are recognized by their comparison with an iota (0, 1, 2, ...), as in
    `one_hot`.
    """
    if op.kind == "eq":
        a, b = op.operands
        if isinstance(b, Value) and b in iotas:
            yield a, iotas[b]
        if isinstance(a, Value) and a in iotas:
            yield b, iotas[a]
