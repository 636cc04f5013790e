"""A device program as XLA's CPU compiler hands it to its libraries.

Products and convolutions read operands that lie in one order of dims, so that others are
copied first; they write where a transpose or a conversion would put the result; and a
scatter that starts from zeros, to be added to something, starts from that instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshwright.predict.compilers.xla.fusion import is_zeros
from meshwright.program.ir import Atom, Op, Program, Value


def prepare(program: Program) -> tuple[Program, Mapping[Op, Op]]:
    """The program so changed.

    The second result says, for each op made anew, which one it was.
    """
    pass_ = _Prepare()
    return pass_.program(program), pass_.origins


class _Prepare:
    def __init__(self) -> None:
        self.origins: dict[Op, Op] = {}

    def program(self, program: Program) -> Program:
        """The program with its ops changed, those of bodies included."""
        scope = _Scope(program)
        ops: list[Op] = []
        for op in program.ops:
            if op not in scope.dropped:
                ops += self.ops(op, scope)
        return replace(program, ops=tuple(ops))

    def ops(self, op: Op, scope: _Scope) -> list[Op]:
        """What stands in an op's place: copies of operands, and the op."""
        made = scope.moved.get(op, op)
        copies: list[Op] = []
        operands: list[Atom] = list(made.operands)
        for position in _misread(made, scope.maker):
            operand = operands[position]
            copy = Value(operand.shape, operand.dtype)
            copies.append(Op("copy_p", (operand,), (copy,), source=op.source))
            operands[position] = copy
        if copies or op.bodies:
            bodies = tuple(map(self.program, op.bodies))
            made = replace(made, operands=tuple(operands), bodies=bodies)
        if made is not op:
            self.origins[made] = op
        return [*copies, made]


class _Scope:
    """Of one program, who makes and reads its values, and what changes for that.

    moved: by op, what stands in its place. dropped: ops that others do the work of.
    """

    def __init__(self, program: Program) -> None:
        self.maker = {result: op for op in program.ops for result in op.results}
        self.readers: Counter[Atom] = Counter(program.outputs)
        self.readers.update(v for op in program.ops for v in op.operands)
        self.moved: dict[Op, Op] = {}
        self.dropped: set[Op] = set()
        for op in program.ops:
            if op.kind == "transpose":
                made_by = self.only(op.operands[0])
                if made_by is not None and _can_write(made_by, op):
                    # Its operands change places, and it writes the transpose.
                    self.moved[op] = replace(op, kind="reshape")
            elif op.kind == "convert_element_type":
                made_by = self.only(op.operands[0])
                if made_by is not None and made_by.kind == "dot_general":
                    self.moved[op] = replace(made_by, results=op.results)
                    self.dropped.add(made_by)
            elif op.kind in {"add", "add_any"}:
                self._start_scatter(op)

    def only(self, atom: Atom) -> Op | None:
        """What makes a value that is read once."""
        if not isinstance(atom, Value) or self.readers[atom] != 1:
            return None
        return self.maker.get(atom)

    def _start_scatter(self, op: Op) -> None:
        """Of zeros, scattered into and then added, scatter into the other addend."""
        for addend, other in (op.operands, op.operands[::-1]):
            made_by = self.only(addend)
            if made_by is None or made_by.kind != "scatter-add":
                continue
            if is_zeros(self.maker, made_by.operands[0]):
                operands = (other, *made_by.operands[1:])
                self.moved[op] = replace(made_by, operands=operands, results=op.results)
                self.dropped.add(made_by)
                return


def _can_write(product: Op, transpose: Op) -> bool:
    """Whether a product with its operands in turn writes what a transpose makes of it."""
    if product.kind != "dot_general":
        return False
    order: Any = transpose.params["permutation"]
    num_batch = len(_dims(product)[1][0])
    swapped = (*range(num_batch), num_batch + 1, num_batch)
    return not num_batch or (_is_stack(product) and tuple(order) == swapped)


def _misread(op: Op, maker: Mapping[Value, Op]) -> list[int]:
    """Positions of operands that neither lie in order nor are moved into it anyway."""
    if op.kind == "conv_general_dilated":
        numbers: Any = op.params["dimension_numbers"]
        return [
            position
            for position, spec in enumerate((numbers.lhs_spec, numbers.rhs_spec))
            if not _is_image(op.operands[position].shape, spec, position == 1)
        ]
    if op.kind != "dot_general":
        return []
    found: list[int] = []
    for position, operand in enumerate(op.operands[:2]):
        made_by = maker.get(operand) if isinstance(operand, Value) else None
        moved = made_by is not None and made_by.kind == "transpose"
        if not (_lies_in_order(op, position) or (moved and reads_through(op, made_by))):
            found.append(position)
    return found


def _is_image(shape: tuple[int, ...], spec: Sequence[int], is_kernel: bool) -> bool:
    """Whether dims lie as batch, space, features, or of a kernel space, in, out.

    spec: batch and features, of a kernel those that go out and come in; then space.
    """
    first, second, *space = spec
    order = (*space, second, first) if is_kernel else (first, *space, second)
    places = [d for d in order if shape[d] > 1]
    return places == sorted(places)


def reads_through(product: Op, transpose: Op | None) -> bool:
    """Whether a product reads what a transpose reads, in the order it lies in."""
    if product.kind != "dot_general" or transpose is None:
        return False
    order: Any = transpose.params["permutation"]
    (moved,) = transpose.results
    return all(
        _lies_in_order(product, position, tuple(order))
        for position, operand in enumerate(product.operands[:2])
        if operand is moved
    )


def _lies_in_order(op: Op, position: int, order: tuple[int, ...] | None = None) -> bool:
    """Whether an operand is a stack of matrices whose rows, or columns, are multiplied.

    Left: batch, free and contracted dims in turn; right: batch, contracted and free.

    order: the places of its dims in memory, from the outermost; as counted if None.
    """
    contracted, batch = _dims(op)
    shape = op.operands[position].shape
    inner, outer = contracted[position], batch[position]
    free = [d for d in range(len(shape)) if d not in inner and d not in outer]
    if _is_stack(op):  # of matrices, which are read by rows as well as by columns
        places = [d if order is None else order[d] for d in outer]
        return places == list(range(len(outer)))
    wanted = (*outer, *inner, *free) if position else (*outer, *free, *inner)
    places = [d if order is None else order[d] for d in wanted if shape[d] > 1]
    return places == sorted(places)


def _is_stack(op: Op) -> bool:
    """Whether both operands are batches of matrices already."""
    contracted, batch = _dims(op)
    return all(
        list(outer) == list(range(len(outer)))
        and len(inner) == 1
        and len(operand.shape) == len(outer) + 2
        for operand, inner, outer in zip(
            op.operands[:2], contracted, batch, strict=True
        )
    )


def _dims(op: Op) -> tuple[Any, Any]:
    """Contracted dims of both operands, and their batch dims."""
    numbers: Any = op.params["dimension_numbers"]
    return numbers
