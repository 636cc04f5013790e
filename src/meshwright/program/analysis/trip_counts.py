"""Limits on the iterations of a `while` (XLA: `WhileLoopTripCountAnnotator`)."""

from dataclasses import dataclass

from meshwright.program.ir import Atom, Literal, Op, Program, Value, Wire

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}
"""The comparisons of integers that end a loop, each with its operands exchanged."""


@dataclass(frozen=True, slots=True)
class TripLimit:
    """The most iterations of a loop.

    is_exact: whether the loop always runs so often.
    """

    iterations: int
    is_exact: bool


def trip_limit(loop: Op) -> TripLimit | None:
    """The limit that counters in the condition of a `while` set to its iterations.

    A counter is an integer that starts at a constant and changes by a constant. `None` if
    the condition compares no counter with a constant.
    """
    return _Loop(loop).limit(loop.bodies[0].outputs[0])


class _Loop:
    """A `while` whose condition is analysed."""

    def __init__(self, loop: Op) -> None:
        self.loop = loop
        self.makers = [_makers(body) for body in loop.bodies]

    def limit(self, condition: Atom) -> TripLimit | None:
        """The limit that a value of the condition's body sets, if it must be true."""
        op = self.makers[0].get(self._unconverted(0, condition))
        if op is None:
            return None
        if op.kind == "and":
            limits = [self.limit(operand) for operand in op.operands]
            known = [limit for limit in limits if limit is not None]
            if not known:
                return None
            is_exact = all(limit is not None and limit.is_exact for limit in limits)
            return TripLimit(min(limit.iterations for limit in known), is_exact)
        if op.kind not in _MIRRORED:
            return None
        left, right = op.operands
        count = self._count(op.kind, left, right)
        if count is None:
            count = self._count(_MIRRORED[op.kind], right, left)
        return None if count is None else TripLimit(count, is_exact=True)

    def _count(self, comparison: str, counter: Atom, limit: Atom) -> int | None:
        """Iterations for which a counter compares as true with a limit."""
        end, progress = self._constant(0, limit), self._progress(counter)
        if end is None or progress is None:
            return None
        start, step = progress
        distance = end - start
        if comparison in ("gt", "ge"):  # the same with all signs exchanged
            distance, step = -distance, -step
        if comparison == "ne":
            count, rest = divmod(distance, step)
            return count if count >= 0 and not rest else None
        distance += comparison in ("le", "ge")
        if distance <= 0:
            return 0
        return -(-distance // step) if step > 0 else None

    def _progress(self, counter: Atom) -> tuple[int, int] | None:
        """The start of a counter, and its change per iteration, which is not 0."""
        wire = self._wire(0, self._unconverted(0, counter))
        if wire is None or not wire.outputs:
            return None
        start = self._outside(wire)
        position, after = dict(wire.inputs).get(1), self._after(wire)
        op = self.makers[1].get(after)
        if start is None or position is None or op is None:
            return None
        here = self.loop.bodies[1].inputs[position]
        terms = [self._unconverted(1, operand) for operand in op.operands]
        if op.kind == "add" and terms[1:] == [here]:
            terms.reverse()
        if op.kind not in ("add", "sub") or terms[0] is not here:
            return None
        step = self._constant(1, terms[1])
        if not step:
            return None
        return start, step if op.kind == "add" else -step

    def _constant(self, body: int, atom: Atom) -> int | None:
        """An integer that is the same constant in all iterations."""
        if isinstance(atom, Literal):
            return _integer(atom)
        wire = self._wire(body, self._unconverted(body, atom))
        if wire is None:
            return None
        position = dict(wire.inputs).get(1)
        is_carried = bool(wire.outputs)
        if is_carried and (
            position is None
            or self._after(wire) is not self.loop.bodies[1].inputs[position]
        ):
            return None
        return self._outside(wire)

    def _wire(self, body: int, atom: Atom) -> Wire | None:
        """The wire whose array a value at the start of a body is."""
        inputs = self.loop.bodies[body].inputs
        ends = [(body, i) for i, value in enumerate(inputs) if value is atom]
        return next((w for w in self.loop.wires if {*ends} & {*w.inputs}), None)

    def _outside(self, wire: Wire) -> int | None:
        """The integer constant with which the array of a wire enters the loop."""
        return (
            None if wire.operand is None else _integer(self.loop.operands[wire.operand])
        )

    def _after(self, wire: Wire) -> Atom:
        """The value of a carried array after an iteration."""
        after = self.loop.bodies[1].outputs[dict(wire.outputs)[1]]
        return self._unconverted(1, after)

    def _unconverted(self, body: int, atom: Atom) -> Atom:
        """The value before conversions from bool to bool or from integer to integer."""
        op = self.makers[body].get(atom)
        while op is not None and op.kind == "convert_element_type":
            (operand,) = op.operands
            if operand.dtype != atom.dtype and not (
                "int" in operand.dtype and "int" in atom.dtype
            ):
                break
            atom, op = operand, self.makers[body].get(operand)
        return atom


def _makers(body: Program) -> dict[Atom, Op]:
    return {result: op for op in body.ops for result in op.results}


def _integer(atom: Atom) -> int | None:
    if isinstance(atom, Value) or "int" not in atom.dtype:
        return None
    return int(str(atom.value))
