"""The graph of a program for placement on chips.

A scan whose iterations read weights of their own is a loop over layers: it is unrolled.
Other loops and branches are one op each. Ops on weights alone run once, before the
first input, and their results stay on the chips that read them. Cheap ops on inputs
alone, such as masks, run on each chip that reads their results; if a mask that all
layers read were placed on one chip, all layers would have to be on two chips.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from meshwright.errors import ChipsError
from meshwright.features.chips.graph.chip_graph import ChipGraph, pairs_of
from meshwright.features.chips.graph.op_times import OpTimes
from meshwright.machine import Machine
from meshwright.program.analysis.executions import num_iterations
from meshwright.program.ir import Atom, Literal, Op, Program, Value, Wire, num_bytes

_MOST_OPS = 20_000
"""Largest number N of ops of a graph; sets of ops between all pairs take N^2 bits."""

_CHEAP = 1e-3
"""Largest time of ops that each chip repeats for itself, relative to the program's."""


@dataclass(frozen=True, slots=True)
class _OpResult:
    """An operand that an op of the graph computes; value: the number of the value."""

    value: int


@dataclass(frozen=True, slots=True)
class _ChipCopy:
    """An operand that each chip that reads it has for itself, such as a weight.

    weight: number of the value among the graph's weights.
    seconds: time to compute it on each chip.
    is_weight: whether it is the same for all inputs of the pipeline.
    """

    weight: int
    seconds: float
    is_weight: bool


_Source = _OpResult | _ChipCopy | None
"""The origin of an op's operand: an op of the graph, or a copy on each chip.

It is `None` for a literal.
"""


def program_graph(
    program: Program, machine: Machine, weights: Collection[int]
) -> ChipGraph:
    """The graph of a program, for placement on the chips of a machine.

    weights: positions of the inputs that stay the same from one run to the next.
    """
    times = OpTimes(program, machine)
    total_s = sum(map(times.seconds, program.ops))
    builder = _Builder(times, _CHEAP * total_s)
    sources: dict[Value, _Source] = {
        value: builder.chip_copy(num_bytes(value), 0.0, True)
        for value in program.constants
    }
    for number, value in enumerate(program.inputs):
        sources[value] = builder.chip_copy(num_bytes(value), 0.0, number in weights)
    builder.add(program, sources)
    return builder.graph()


@dataclass(slots=True)
class _Builder:
    """Collects ops, values and weights of a graph; the lists are fields of `ChipGraph`.

    slices: slices of stacked arrays by iteration, each made once.
    """

    times: OpTimes
    cheap_s: float
    names: list[str] = field(default_factory=list[str])
    seconds: list[float] = field(default_factory=list[float])
    producers: list[int] = field(default_factory=list[int])
    value_bytes: list[int] = field(default_factory=list[int])
    reads: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    weight_bytes: list[int] = field(default_factory=list[int])
    weight_reads: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    slices: dict[tuple[_Source, int, int], _Source] = field(
        default_factory=dict[tuple[_Source, int, int], _Source]
    )

    def chip_copy(self, size: int, seconds: float, is_weight: bool) -> _ChipCopy:
        """Register a value of `size` bytes of which each chip has its own copy."""
        self.weight_bytes.append(size)
        return _ChipCopy(len(self.weight_bytes) - 1, seconds, is_weight)

    def add(self, program: Program, sources: dict[Value, _Source]) -> None:
        """Add all ops of a program to the graph.

        sources: origin of each value; has the program's inputs, and gets all other
            values.
        """
        for op in program.ops:
            if op.kind == "remat" or (
                op.kind == "scan" and self._has_layers(op, sources)
            ):
                self._unroll(op, sources)
            else:
                self._add_op(op, sources)

    def _add_op(self, op: Op, sources: dict[Value, _Source]) -> None:
        read = [_source(a, sources) for a in op.operands]
        copies = [s for s in read if isinstance(s, _ChipCopy)]
        seconds = self.times.seconds(op)
        if not any(isinstance(s, _OpResult) for s in read):
            is_weight = all(s.is_weight for s in copies)
            cost_s = 0.0 if is_weight else seconds + sum(s.seconds for s in copies)
            has_weights = any(s.is_weight and self._is_large(s) for s in copies)
            if is_weight or (cost_s <= self.cheap_s and not has_weights):
                for result in op.results:
                    sources[result] = self.chip_copy(
                        num_bytes(result), cost_s, is_weight
                    )
                return
        number = self._new_op(_name(op), seconds + sum(s.seconds for s in copies), read)
        for result in op.results:
            sources[result] = self._new_value(number, num_bytes(result))

    def _is_large(self, source: _ChipCopy) -> bool:
        return self.weight_bytes[source.weight] > 1024

    def _new_op(self, name: str, seconds: float, read: list[_Source]) -> int:
        number = len(self.names)
        if number >= _MOST_OPS:
            raise ChipsError(
                f"the program has more than {_MOST_OPS} ops once its layers are unrolled: "
                "give one with fewer layers"
            )
        self.names.append(name)
        self.seconds.append(seconds)
        for source in read:
            if isinstance(source, _OpResult):
                self.reads.append((source.value, number))
            elif source is not None:
                self.weight_reads.append((source.weight, number))
        return number

    def _new_value(self, producer: int, size: int) -> _OpResult:
        self.producers.append(producer)
        self.value_bytes.append(size)
        return _OpResult(len(self.producers) - 1)

    def _has_layers(self, op: Op, sources: Mapping[Value, _Source]) -> bool:
        """Whether each iteration of a scan reads a slice of weights of its own."""
        for wire in op.wires:
            if wire.is_stacked and wire.operand is not None:
                source = _source(op.operands[wire.operand], sources)
                if isinstance(source, _ChipCopy) and source.is_weight:
                    return True
        return False

    def _unroll(self, op: Op, sources: dict[Value, _Source]) -> None:
        """Add the ops of each iteration of a scan (or of the one body of a remat)."""
        (body,) = op.bodies
        length = num_iterations(op)
        inside: dict[Value, _Source] = {}
        stacked: dict[int, list[_Source]] = {}
        carried: dict[int, _Source] = {}
        order = range(length)
        for step in reversed(order) if op.params.get("reverse") else order:
            for number, wire in enumerate(op.wires):
                source = carried.get(number) or self._entering(op, wire, sources, step)
                inside |= {body.inputs[i]: source for _, i in wire.inputs}
            self._add_constants(body, inside)
            self.add(body, inside)
            for number, wire in enumerate(op.wires):
                for _, i in wire.outputs:
                    left = _source(body.outputs[i], inside)
                    if wire.is_stacked:
                        stacked.setdefault(number, []).append(left)
                    else:
                        carried[number] = left
        for number, wire in enumerate(op.wires):
            if wire.result is not None:
                result = op.results[wire.result]
                parts = stacked.get(number)
                sources[result] = (
                    self._stack(parts, result) if parts else carried[number]
                )

    def _add_constants(self, body: Program, inside: dict[Value, _Source]) -> None:
        for value in body.constants:
            if value not in inside:
                inside[value] = self.chip_copy(num_bytes(value), 0.0, True)

    def _entering(
        self, op: Op, wire: Wire, sources: Mapping[Value, _Source], step: int
    ) -> _Source:
        """The origin of a loop's operand in one iteration; a slice if it is stacked."""
        if wire.operand is None:
            return None
        source = _source(op.operands[wire.operand], sources)
        if not wire.is_stacked or source is None:
            return source
        key = (source, step, num_iterations(op))
        if key not in self.slices:
            self.slices[key] = self._slice(source, num_iterations(op))
        return self.slices[key]

    def _slice(self, source: _OpResult | _ChipCopy, length: int) -> _Source:
        if isinstance(source, _OpResult):
            size = self.value_bytes[source.value] // length
            return self._new_value(self.producers[source.value], size)
        size = self.weight_bytes[source.weight] // length
        return self.chip_copy(size, source.seconds / length, source.is_weight)

    def _stack(self, parts: list[_Source], result: Value) -> _Source:
        """The results of all iterations as one value, stacked by an op without cost."""
        if not any(isinstance(part, _OpResult) for part in parts):
            copies = [part for part in parts if isinstance(part, _ChipCopy)]
            seconds = sum(part.seconds for part in copies)
            is_weight = all(part.is_weight for part in copies)
            return self.chip_copy(num_bytes(result), seconds, is_weight)
        number = self._new_op("stack", 0.0, parts)
        return self._new_value(number, num_bytes(result))

    def graph(self) -> ChipGraph:
        """The graph of all ops added so far."""
        return ChipGraph(
            tuple(self.names),
            np.array(self.seconds, np.float64),
            np.array(self.producers, np.int64),
            np.array(self.value_bytes, np.int64),
            pairs_of(self.reads),
            np.array(self.weight_bytes, np.int64),
            pairs_of(self.weight_reads),
        )


def _source(atom: Atom, sources: Mapping[Value, _Source]) -> _Source:
    return None if isinstance(atom, Literal) else sources[atom]


def _name(op: Op) -> str:
    return f"{op.kind} ({op.source})" if str(op.source) else op.kind
