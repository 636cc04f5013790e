"""Slices of elementwise results, as elementwise ops on slices of the operands.

The fluxes through the 65 faces between 64 cells are read by two slices of 64, and so is
a sum of padded gradients. Eight devices divide 64 rows, not 65. So each slice gets ops
of its own, whose operands are slices, up to values that other ops make.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from meshwright.program.ir import Atom, Literal, Op, Program, Value
from meshwright.program.ops import Trait, has_trait, rule_of
from meshwright.program.rewrite.window_moves import is_near, moves_of

type Window = tuple[tuple[int, int], ...]
"""For each dim of a value, the position of a slice's first element, and their number."""


def slice_early(program: Program, parts: int) -> Program:
    """The program with slices to even dims ahead of the elementwise ops that they read.

    These are slices that alone read a value of a nearly equal extent which `parts` does
    not divide. Bodies stay as they are. Law: the result computes the same.
    """
    windows = {op: w for op in program.ops if (w := _even_window(op, parts))}
    sliced = _sliced_values(program, windows) if windows else {}
    if not sliced:
        return program
    writer = _Writer(sliced)
    for op in program.ops:
        if op in windows and op.operands[0] in sliced:
            writer.slice(op, windows[op])
        elif not any(value in sliced for value in op.results):
            writer.append(op)
    outputs = tuple(writer.same.get(atom, atom) for atom in program.outputs)
    return replace(program, ops=tuple(writer.ops), outputs=outputs)


def _even_window(op: Op, parts: int) -> Window | None:
    """The window that a slice takes of its operand, if it makes an uneven dim even."""
    if op.kind not in ("slice", "pad"):
        return None
    moves = moves_of(op, {})
    if not moves or any(
        len(move.parts) != 1 or move.parts[0].length != move.result.shape[move.dim]
        for move in moves
    ):
        return None
    starts = {move.dim: move.parts[0].start for move in moves}
    (result,), (operand, *_) = op.results, op.operands
    sizes = list(zip(operand.shape, result.shape, strict=True))
    if not any(n % parts and not m % parts and is_near(n, m) for n, m in sizes):
        return None
    return tuple((starts.get(dim, 0), m) for dim, (_, m) in enumerate(sizes))


def _sliced_values(program: Program, slices: Collection[Op]) -> dict[Value, Op]:
    """The ops of elementwise results that only slices, or such ops, read, by result."""
    kept = {atom for atom in program.outputs if isinstance(atom, Value)}
    found: dict[Value, Op] = {}
    for op in reversed(program.ops):
        (result, *others) = op.results or (None,)
        if (
            result is not None
            and not others
            and result not in kept
            and has_trait(op.kind, Trait.ELEMENTWISE)
            and not op.has_effect
            and all(atom.shape in ((), result.shape) for atom in op.operands)
        ):
            found[result] = op
        elif op not in slices:
            kept.update(atom for atom in op.operands if isinstance(atom, Value))
    return found


class _Writer:
    """The ops written so far; `same` has the values that others replace."""

    def __init__(self, sliced: Mapping[Value, Op]) -> None:
        self.sliced = sliced
        self.ops: list[Op] = []
        self.same: dict[Atom, Atom] = {}
        self._windows: dict[tuple[Atom, Window], Value] = {}

    def append(self, op: Op) -> None:
        """Write an op on the values that its operands are now."""
        if any(atom in self.same for atom in op.operands):
            operands = tuple(self.same.get(atom, atom) for atom in op.operands)
            op = replace(op, operands=operands)
        self.ops.append(op)

    def slice(self, op: Op, window: Window) -> None:
        """Write what a slice of an elementwise result takes."""
        self.same[op.results[0]] = self._taken(op.operands[0], window, op)

    def _taken(self, atom: Atom, window: Window, source: Op) -> Atom:
        """A window of a value; `source` is the slice that takes it."""
        value = self.same.get(atom, atom)
        if not value.shape or not isinstance(value, Value):
            return value
        key = value, window
        if key not in self._windows:
            made = Value(tuple(size for _, size in window), value.dtype)
            op = self.sliced.get(value)
            self.ops.append(
                _slice_of(value, made, window, source)
                if op is None
                else self._on_windows(op, made, window, source)
            )
            self._windows[key] = made
        return self._windows[key]

    def _on_windows(self, op: Op, made: Value, window: Window, source: Op) -> Op:
        """An elementwise op on windows of its operands."""
        operands = tuple(self._taken(atom, window, source) for atom in op.operands)
        rule, params = rule_of(op), op.params
        if rule.local_params is not None:
            shapes = tuple(atom.shape for atom in operands)
            params = rule.local_params(op, shapes, (made.shape,))
        return replace(op, operands=operands, results=(made,), params=params)


def _slice_of(value: Value, made: Value, window: Window, source: Op) -> Op:
    """The op that takes a window of a value, of the kind of the slice that wants it."""
    extents = zip(window, value.shape, strict=True)
    if source.kind == "pad":  # by less than nothing
        edges = tuple((-start, start + size - n, 0) for (start, size), n in extents)
        fill = Literal(0, value.dtype)
        params = {"padding_config": edges}
        return replace(source, operands=(value, fill), results=(made,), params=params)
    starts = tuple(start for start, _ in window)
    stops = tuple(start + size for start, size in window)
    limits = {"start_indices": starts, "limit_indices": stops, "strides": None}
    return replace(source, operands=(value,), results=(made,), params=limits)
