"""What is alive on one device while a program's units run in their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from meshwright.ir import Program, Value, num_bytes
from meshwright.simulate.fusion import Kind, Unit, fuse

SizeFn = Callable[[Value], int]
"""Bytes that a value takes in memory, padding included."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes alive while each unit runs, and what is alive where that is most.

    curve: by unit; the first entry is before any runs.
    peak: unit at which it is largest, -1 for before the first.
    alive: the values there, those of loops' bodies included, largest first.
    """

    curve: tuple[int, ...]
    peak: int
    alive: tuple[Value, ...]

    @property
    def peak_bytes(self) -> int:
        """The most that is alive at once."""
        return max(self.curve)


def memory_of(
    program: Program,
    reused: Collection[int] = (),
    size_fn: SizeFn = num_bytes,
    units: Sequence[Unit] | None = None,
) -> Memory:
    """The memory of one run of a device program.

    reused: positions of inputs whose memory the caller gives up; other inputs stay.
    """
    units = fuse(program) if units is None else units
    given = {v for i, v in enumerate(program.inputs) if i in reused}
    kept = {v for v in program.inputs if v not in given} | set(program.constants)
    kept |= {v for v in program.outputs if isinstance(v, Value)}
    last = {value: i for i, unit in enumerate(units) for value in unit.reads}
    alive = dict.fromkeys((*program.inputs, *program.constants))
    total = sum(map(size_fn, alive))
    curve, peak, at_peak = [total], -1, tuple(alive)
    highest = total
    for index, unit in enumerate(units):
        dies = [v for v in unit.reads if last[v] == index and v not in kept]
        made = [v for v in unit.writes if v not in alive]
        alive |= dict.fromkeys(made)
        total += sum(map(size_fn, made))
        if unit.in_place in dies:
            total -= size_fn(unit.in_place)
            del alive[unit.in_place]
            dies.remove(unit.in_place)
        inner, inside = _inner(unit, size_fn)
        curve.append(total + inner)
        if total + inner > highest:
            highest, peak, at_peak = total + inner, index, (*alive, *inside)
        unread = [v for v in unit.writes if v not in last and v not in kept]
        for value in (v for v in (*dies, *unread) if v in alive):
            del alive[value]
            total -= size_fn(value)
    return Memory(tuple(curve), peak, tuple(sorted(at_peak, key=size_fn, reverse=True)))


def _inner(unit: Unit, size_fn: SizeFn) -> tuple[int, tuple[Value, ...]]:
    """What the largest body of a region needs beside what is alive outside already.

    An operand that is no slice of one is the same memory inside.
    """
    if unit.kind is not Kind.REGION:
        return 0, ()
    op = unit.root
    shared = {p for wire in op.wires if not wire.is_stacked for p in wire.inputs}
    most: tuple[int, tuple[Value, ...]] = 0, ()
    for number, body in enumerate(op.bodies):
        same = {v for i, v in enumerate(body.inputs) if (number, i) in shared}
        inner = memory_of(body, range(len(body.inputs)), size_fn)
        beside = inner.peak_bytes - sum(map(size_fn, same))
        if beside > most[0]:
            most = beside, tuple(v for v in inner.alive if v not in same)
    return most
