"""Rewrite of values with uneven dims, such as `u[1:-1]`, as windows of even ones.

Eight devices divide a dim of n elements, but not one of n - 2. So the value of n - 2
elements becomes a window of a value of n elements, its *frame*. What lies in the frame
beside the window is arbitrary. Ops that treat all elements of the dim alike run on frames;
ops that reduce the dim first replace what is beside the window. A slice of a frame is
another window of it. Only where values with other windows meet, a frame is shifted, and
elements move between devices. Slices of joined values are slices of their parts: a roll
becomes one op from n to n elements.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.program.ir import Atom, Literal, Op, Program, Value
from meshwright.program.ops import FactorRule, has_trait, rule_of
from meshwright.program.ops.arithmetic.reduction import identity_of
from meshwright.program.ops.movement.joined_slices import Join, Piece
from meshwright.program.ops.movement.slices import LARGE
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rewrite.early_slices import slice_early
from meshwright.program.rewrite.frames import (
    RESIZABLE,
    EvenFrame,
    Window,
    are_alike,
    grown,
    has_gap,
    is_resizable,
    ordered,
    size_of,
    windows_of,
    within,
)
from meshwright.program.rewrite.known_positions import positions_inside, positions_of
from meshwright.program.rewrite.window_moves import (
    Interval,
    Move,
    added_window,
    even_gaps,
    even_strides,
    is_near,
    moves_of,
    nothing_of,
)


@dataclass(frozen=True, slots=True)
class EvenDims:
    """The rewrite of a program to one with even dims, as plain data.

    stuck: positions, in the order of `Program.walk`, of ops that become joins of slices,
        whether dims are even or not.
    parts: the number that divides the dims of frames.
    """

    stuck: tuple[int, ...]
    parts: int

    def __call__(self, program: Program) -> Program:
        """The program with uneven dims as windows of dims that `parts` divides.

        Law: inputs and outputs stay as they are, and the result computes the same.
        """
        chosen = frozenset(self.stuck)
        stuck = frozenset(op for i, op in enumerate(program.walk()) if i in chosen)
        found = _even_body(program, stuck, self.parts, {})
        return found if found is program else eliminate_dead_code(found)


def _even_body(
    program: Program,
    stuck: Collection[Op],
    parts: int,
    known: Mapping[Value, Sequence[int]],
) -> Program:
    """The program rewritten; `known` has constant positions among its inputs."""
    sliced = slice_early(program, parts)
    writer = _Writer(stuck, parts, known)
    for op in sliced.ops:
        writer.write(op)
    outputs = tuple(map(writer.plain, sliced.outputs))
    if not writer.is_changed and sliced is program:
        return program
    return replace(program, ops=tuple(writer.ops), outputs=outputs)


class _Writer:
    """The rewritten ops of one program or body so far.

    stuck, parts: as in `EvenDims`, ops in place of positions.
    frames: the frame of each value that is computed. moves: how values are made that are
        not computed until an op reads them; by `origins` if no part was replaced.
    same: values that are others.
    """

    def __init__(
        self,
        stuck: Collection[Op],
        parts: int,
        known: Mapping[Value, Sequence[int]],
    ) -> None:
        self.stuck = stuck
        self.parts = parts
        self.ops: list[Op] = []
        self.is_changed = False
        self.frames: dict[Value, EvenFrame] = {}
        self.moves: dict[Value, Move] = {}
        self.origins: dict[Value, Op] = {}
        self.same: dict[Value, Value] = {}
        self.known = dict(known)
        self.source: object = ""
        self._plain: dict[Value, Value] = {}
        self._placed: dict[tuple[Value, int, int, int], Value] = {}

    def write(self, op: Op) -> None:
        """Write one op, on frames where it can run on them."""
        self.source = op.source
        if op.bodies:
            bodies = tuple(
                _even_body(
                    body, self.stuck, self.parts, positions_inside(op, i, self.known)
                )
                for i, body in enumerate(op.bodies)
            )
            is_same = all(a is b for a, b in zip(bodies, op.bodies, strict=True))
            self.is_changed |= not is_same
            self._append(op if is_same else replace(op, bodies=bodies))
            return
        self.known.update(positions_of(op, self.known))
        added = added_window(op, self.known)
        if added:
            self._defer(added, None)
            if self._is_uneven(self.moves[added[-1].result]):
                operands = (op.operands[0], added[-1].result)
                self._plain_op(Op("add", operands, op.results, {}, (), op.source))
                return
        moves = moves_of(op, self.known)
        if moves:
            self._defer(moves, op)
        elif op.kind == "slice":
            self._strided(op)
        elif gaps := even_gaps(op):
            self._defer(gaps[0], None)
            self._plain_op(gaps[1])
        else:
            self._plain_op(op)

    def _strided(self, op: Op) -> None:
        """Write a slice with strides, of the value that a slice of its operand takes."""
        value = op.operands[0]
        assert isinstance(value, Value)
        inner = self.moves.get(self.same.get(value, value))
        if inner is not None and len(inner.parts) == 1 and not has_gap(inner):
            part, params = inner.parts[0], dict(op.params)
            for name in ("start_indices", "limit_indices"):
                positions = list(params[name])
                positions[inner.dim] += part.start
                params[name] = tuple(positions)
            op = replace(op, operands=(part.value,), params=params)
        strided = even_strides(op)
        self._plain_op(strided[0] if strided else op)
        if strided:
            self._defer(strided[1], None)

    def _is_uneven(self, move: Move) -> bool:
        """Whether a move makes or reads a value with an uneven dim."""
        return any(
            self.frame(part.value).starts
            or is_near(part.value.shape[move.dim], move.result.shape[move.dim])
            for part in move.parts
        )

    def _defer(self, moves: Sequence[Move], op: Op | None) -> None:
        """Note how values are made; parts of such values become parts of their parts.

        op: the op that makes them if no part is replaced.
        """
        is_own = True
        for move in self._ahead(moves):
            parts: list[Interval] = []
            nothing: list[Interval] = []
            fills = [move.fill] if has_gap(move) else []
            for part in move.parts:
                value = self.same.get(part.value, part.value)
                inner = self.moves.get(value)
                if inner is None or inner.dim != move.dim:
                    parts.append(replace(part, value=value))
                    continue
                is_own = False
                parts += within(part, inner)
                nothing = [nothing_of(inner.parts[0].value)]
                fills += [inner.fill] if has_gap(inner) else []
            parts = parts or nothing
            if are_alike(fills):
                fill = fills[0] if fills else move.fill
                move = replace(move, parts=tuple(parts), fill=fill)
            if len(parts) == 1 and parts[0].is_all(move.dim, size_of(move)):
                self.same[move.result] = parts[0].value
            else:
                self.moves[move.result] = move
        if op is not None and is_own:
            self.origins.update(dict.fromkeys(op.results, op))

    def _ahead(self, moves: Sequence[Move]) -> Iterator[Move]:
        """The moves, with slices ahead of moves along other dims, which commute with them.

        So the slices of a field that is padded in both dims reach the field, whose dims
        are even. Slices go ahead of moves along their own dim, and small ones of any move
        that makes a dim uneven.
        """
        for move in moves:
            inner = self._moved_first(move)
            if inner is None:
                yield move
                continue
            slices: dict[Value, Value] = {}
            for value in dict.fromkeys(part.value for part in inner.parts):
                shape = list(value.shape)
                shape[move.dim] = size_of(move)
                slices[value] = Value(tuple(shape), value.dtype)
                window = replace(move.parts[0], value=value)
                yield from self._ahead([Move(slices[value], move.dim, (window,))])
            parts = tuple(replace(p, value=slices[p.value]) for p in inner.parts)
            yield replace(inner, result=move.result, parts=parts)

    def _moved_first(self, move: Move) -> Move | None:
        """The move of the operand of a slice, if the slice goes ahead of it."""
        if len(move.parts) != 1 or has_gap(move):
            return None
        value = move.parts[0].value
        inner = self.moves.get(self.same.get(value, value))
        if inner is None or inner.dim == move.dim:
            return None
        is_small = LARGE * size_of(move) < value.shape[move.dim]
        if (is_small and self._is_uneven(inner)) or any(
            self._is_moved(p.value, move.dim) for p in inner.parts
        ):
            return inner
        return None

    def _is_moved(self, value: Value, dim: int) -> bool:
        """Whether a value is made by a move along a dim, at last or before others."""
        move = self.moves.get(self.same.get(value, value))
        return move is not None and (
            move.dim == dim or any(self._is_moved(p.value, dim) for p in move.parts)
        )

    # -- values -----------------------------------------------------------------------

    def frame(self, value: Value) -> EvenFrame:
        """The frame of a value; itself if it is even."""
        value = self.same.get(value, value)
        if value not in self.frames and value in self.moves:
            op = self.origins.get(value)
            if op is None or op in self.stuck or self._is_uneven(self.moves[value]):
                self.frames[value] = self._made(self.moves[value])
            else:
                self._append(op)
                self.frames.update({result: EvenFrame(result) for result in op.results})
        return self.frames.get(value, EvenFrame(value))

    def plain(self, atom: Atom) -> Atom:
        """A value in its own shape."""
        if isinstance(atom, Literal):
            return atom
        atom = self.same.get(atom, atom)
        frame = self.frame(atom)
        if not frame.starts:
            return frame.value
        if atom not in self._plain:
            now = frame.value
            for dim, start in frame.starts.items():
                size = atom.shape[dim]
                now = self._join(Move(now, dim, (Interval(now, start, 0, size),)), size)
            self._plain[atom] = now
        return self._plain[atom]

    def _made(self, move: Move) -> EvenFrame:
        """Compute a deferred value, as a window if a part's frame is nearly as large."""
        dim, size = move.dim, move.result.shape[move.dim]
        frames = [self.frame(part.value) for part in move.parts]
        windows = windows_of(frames, dim)
        values = [self._in(frame, windows) for frame in frames]
        total = max((v.shape[dim] for v in values), default=size)
        if total < size or not is_near(total, size) or total % self.parts:
            total = size
        starts = {each: start for each, (_, start) in windows.items()}
        first = (total - size) // 2
        parts: list[Interval] = []
        for part, frame, value in zip(move.parts, frames, values, strict=True):
            start, at = part.start + frame.starts.get(dim, 0), part.at + first
            if is_near(value.shape[dim], total) and total % self.parts == 0:
                value = self._moved(value, dim, at - start, total)
                start = at
            parts.append(Interval(value, start, at, part.length))
        if total != size:
            starts[dim] = first
            parts = grown(parts, total, dim, (first, first + size))
        if len(parts) == 1 and parts[0].is_all(dim, total):
            return EvenFrame(parts[0].value, starts)
        return EvenFrame(self._join(replace(move, parts=tuple(parts)), total), starts)

    def _in(self, frame: EvenFrame, windows: Mapping[int, Window]) -> Value:
        """A frame's value, moved to where all values have their windows."""
        now = frame.value
        for dim, (size, start) in windows.items():
            own = frame.starts.get(dim, 0)
            if (now.shape[dim], own) != (size, start):
                now = self._moved(now, dim, start - own, size)
        return now

    def _moved(self, value: Value, dim: int, by: int, size: int) -> Value:
        """A value moved by some elements into `size` elements; zeros where none arrive."""
        key = (value, dim, by, size)
        if key not in self._placed:
            start, at = max(0, -by), max(0, by)
            length = min(value.shape[dim] - start, size - at)
            part = Interval(value, start, at, length)
            self._placed[key] = self._join(Move(value, dim, (part,)), size)
        return self._placed[key]

    def _join(self, move: Move, size: int) -> Value:
        """Write the op that joins values along a dim to `size` elements."""
        self.is_changed = True
        values = list(dict.fromkeys(part.value for part in move.parts))
        first = values[0]
        pieces = tuple(
            Piece(values.index(p.value), p.start, p.at, p.length)
            for p in move.parts
            if p.length
        )
        extents = tuple(value.shape[move.dim] for value in values)
        shape = (*first.shape[: move.dim], size, *first.shape[move.dim + 1 :])
        fill = (move.fill,) if isinstance(move.fill, Value) else ()
        filled = 0 if fill else getattr(move.fill, "value", 0)
        join = Join(move.dim, size, extents, ordered(pieces))
        made = Value(shape, first.dtype)
        params = {"join": join, "fill": filled}
        self.ops.append(
            Op("joined_slices", (*values, *fill), (made,), params, (), self.source)
        )
        return made

    # -- ops --------------------------------------------------------------------------

    def _append(self, op: Op) -> None:
        """Write an op on values in their own shape."""
        operands = tuple(map(self.plain, op.operands))
        is_same = all(a is b for a, b in zip(operands, op.operands, strict=True))
        self.ops.append(op if is_same else replace(op, operands=operands))

    def _plain_op(self, op: Op) -> None:
        """Write an op that moves no windows: on frames if it can, else on plain values."""
        op = self._renamed(op)
        frames = {v: self.frame(v) for v in op.operands if isinstance(v, Value)}
        if not any(frame.starts for frame in frames.values()):
            self._append(op)
            return
        rule = rule_of(op)
        windows = self._windows(op, rule, frames)
        if windows is None:
            self._append(op)
            return
        operands = [
            self._resized(op, rule, i, frames, windows) for i in range(len(op.operands))
        ]
        results: list[Value] = []
        for value, dims in zip(op.results, rule.results, strict=True):
            starts = {
                d: windows[fs[0]][1]
                for d, fs in enumerate(dims)
                if fs and fs[0] in windows
            }
            shape = tuple(
                windows[fs[0]][0] if d in starts else n
                for d, (fs, n) in enumerate(zip(dims, value.shape, strict=True))
            )
            results.append(Value(shape, value.dtype) if starts else value)
            if starts:
                self.frames[value] = EvenFrame(results[-1], starts)
        params = op.params
        if rule.local_params is not None:
            shapes = tuple(a.shape for a in operands)
            params = rule.local_params(op, shapes, tuple(r.shape for r in results))
        self.ops.append(
            replace(op, operands=tuple(operands), results=tuple(results), params=params)
        )

    def _renamed(self, op: Op) -> Op:
        """The op on the values that its operands are."""
        known = self.same
        operands = tuple(
            known.get(a, a) if isinstance(a, Value) else a for a in op.operands
        )
        is_same = all(a is b for a, b in zip(operands, op.operands, strict=True))
        return op if is_same else replace(op, operands=operands)

    def _windows(
        self, op: Op, rule: FactorRule, frames: Mapping[Value, EvenFrame]
    ) -> dict[int, Window] | None:
        """For each factor with frames, their extent and start; `None` if it has none."""
        found: dict[int, Window] = {}
        if not any(has_trait(op.kind, trait) for trait in RESIZABLE) or op.has_effect:
            return None
        for value, dims in zip(op.operands, rule.operands, strict=True):
            if not isinstance(value, Value):
                continue
            frame = frames[value]
            for dim, start in frame.starts.items():
                if len(dims[dim]) != 1 or not is_resizable(op, rule, dims[dim][0]):
                    return None
                found.setdefault(dims[dim][0], (frame.value.shape[dim], start))
        return found

    def _resized(
        self,
        op: Op,
        rule: FactorRule,
        position: int,
        frames: Mapping[Value, EvenFrame],
        windows: Mapping[int, Window],
    ) -> Atom:
        """An operand as a window of a frame, along all factors that have windows."""
        value, dims = op.operands[position], rule.operands[position]
        if not isinstance(value, Value):
            return value
        frame = frames[value]
        now = frame.value
        for dim, factors in enumerate(dims):
            if not factors or factors[0] not in windows:
                continue
            size, start = windows[factors[0]]
            own = frame.starts.get(dim, 0)
            if (now.shape[dim], own) != (size, start):
                now = self._moved(now, dim, start - own, size)
            if factors[0] in rule.reductions:
                fill = identity_of(rule.monoid, now.dtype)
                part = Interval(now, start, start, value.shape[dim])
                move = Move(now, dim, (part,), Literal(fill, now.dtype))
                now = self._join(move, size)
        return now
