"""Dataflow graph of a program: the producer and the consumers of each value.

A bitcast (such as a reshape) gives the same memory another name, so it counts as no op
here: its result is replaced by its operand.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from meshwright.predict.compilers.model.fusion import (
    BARRIER,
    FUSES_OPERANDS,
    FusionKind,
    kind_of,
)
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait, ops_with

_MOST_STEPS = 8
"""Largest number of elementwise ops that `Flow.paths_join` follows from a value."""


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """The dataflow graph of one program, or of one body of a loop or branch.

    All mappings leave bitcasts out: ops refer to the value whose memory a bitcast
    shares.
    kinds: the fusion kind of each op, in the order of the program.
    operands: the values that each op reads. If the bodies of a loop keep an operand as
        bfloat16, the loop reads a cast of the value instead.
    producers: the op that computes each value.
    consumers: for each value, one entry for each time that an op reads it.
    stored: values that must be in memory: outputs, operands of barriers and of `casts`.
    casts: conversions to bfloat16 that are done once before a loop instead of in each
        iteration, by their result.
    sources: for each result of a bitcast, the value whose memory it shares.
    positions: index of each op in the order of the program.
    """

    kinds: Mapping[Op, FusionKind]
    operands: Mapping[Op, list[Value]]
    producers: Mapping[Value, Op]
    consumers: Mapping[Value, Sequence[Op]]
    stored: Collection[Value]
    casts: Mapping[Value, Op]
    sources: Mapping[Value, Value]
    positions: Mapping[Op, int]

    def operand(self, op: Op, position: int) -> Value | None:
        """The value that an op reads at an operand position; `None` for a literal."""
        before = sum(isinstance(v, Value) for v in op.operands[:position])
        is_value = isinstance(op.operands[position], Value)
        return self.operands[op][before] if is_value else None

    def chain_links(self) -> dict[Value, Op]:
        """The producer of each value between two elementwise ops that has one reader.

        Such a value need not be stored: its one consumer fuses the producer.
        """
        kinds, stored, loop = self.kinds, self.stored, FusionKind.LOOP
        producer_of = self.producers.get
        return {
            value: producer
            for value, consumers in self.consumers.items()
            if len(consumers) == 1
            and kinds[consumers[0]] is loop
            and value not in stored
            and (producer := producer_of(value)) is not None
            and kinds[producer] is loop
            and len(producer.results) == 1
        }

    def paths_join(self, value: Value) -> bool:
        """Whether all elementwise paths from a value join in one op that is stored.

        For example, the paths from `x` join in `x * logistic(x)` if that product is
        stored. A result that several ops read counts as stored, as most such results
        are.
        """
        ops = set(self.consumers.get(value, ()))
        for _ in range(_MOST_STEPS):
            first = min(ops, key=self.positions.__getitem__)
            if not has_trait(first.kind, Trait.ELEMENTWISE):
                return False
            (made,) = first.results
            consumers = self.consumers.get(made, ())
            if len(ops) == 1:
                is_fused = all(self.kinds[op] in FUSES_OPERANDS for op in consumers)
                return made in self.stored or not is_fused or len(consumers) > 1
            if made in self.stored or not consumers:
                return False
            ops.remove(first)
            ops.update(consumers)
        return False

    def is_reshaped_for(self, consumer: Op, value: Value) -> bool:
        """Whether a convolution reads a value in another shape than its producer's."""
        if consumer.kind != "conv_general_dilated":
            return False
        pairs = zip(consumer.operands, self.operands[consumer], strict=True)
        return any(made is value and read.shape != made.shape for read, made in pairs)


def body_inputs(op: Op, value: Value, sources: Mapping[Value, Value]) -> list[Value]:
    """The inputs of loop or branch bodies that receive `value`, an operand of the op.

    sources: for each result of a bitcast, the value whose memory it shares.
    """
    return [
        op.bodies[body].inputs[i]
        for wire in op.wires
        if wire.operand is not None
        for operand in [op.operands[wire.operand]]
        if isinstance(operand, Value) and sources.get(operand, operand) is value
        for body, i in wire.inputs
    ]


def dataflow_of(program: Program, layouts: Layouts) -> Flow:
    """The dataflow graph of a program whose values are stored with these layouts."""
    sources = bitcast_sources(program)
    source = sources.get
    ops = [op for op in program.ops if not (op.results and op.results[0] in sources)]
    kinds = {op: kind_of(op) for op in ops}
    producers = {result: op for op in ops for result in op.results}
    operands = {
        op: [source(v, v) for v in op.operands if isinstance(v, Value)] for op in ops
    }
    barriers = (op for op in program.ops if op.kind == BARRIER)
    kept = [*program.outputs, *(v for op in barriers for v in op.operands)]
    stored = {source(v, v) for v in kept if isinstance(v, Value)}
    casts: dict[Value, Op] = {}
    if layouts.bfloat16:
        rounded = _round_loop_operands(operands, layouts.bfloat16, sources)
        stored |= rounded.keys()
        casts = {cast.results[0]: cast for cast in rounded.values()}
        producers |= casts
    consumers: defaultdict[Value, list[Op]] = defaultdict(list)
    for op in ops:
        for value in operands[op]:
            consumers[value].append(op)
    positions = {op: i for i, op in enumerate(kinds)}
    return Flow(
        kinds, operands, producers, dict(consumers), stored, casts, sources, positions
    )


def _round_loop_operands(
    operands: dict[Op, list[Value]],
    bfloat16: Collection[Value],
    sources: Mapping[Value, Value],
) -> dict[Value, Op]:
    """Cast loop operands to bfloat16 before the loop if its bodies store bfloat16.

    Returns the new casts, by the value that each one reads.
    operands: the values that each op reads; changed in place.
    """
    casts: dict[Value, Op] = {}
    for op in [op for op in operands if op.bodies]:
        found: list[Value] = []
        for value in operands[op]:
            inside = [] if value in bfloat16 else body_inputs(op, value, sources)
            if not inside or not all(v in bfloat16 for v in inside):
                found.append(value)
                continue
            if value not in casts:
                made = Value(value.shape, "bfloat16")
                cast = Op("convert_element_type", (value,), (made,), source=op.source)
                casts[value], operands[cast] = cast, [value]
            found.append(casts[value].results[0])
        operands[op] = found
    return casts


def stored_outputs(program: Program) -> tuple[Atom, ...]:
    """The program's outputs; a bitcast is replaced by the value that it renames."""
    sources = bitcast_sources(program)
    return tuple(
        [sources.get(v, v) if isinstance(v, Value) else v for v in program.outputs]
    )


def stacked_ends(op: Op) -> list[tuple[Program, Value]]:
    """Body outputs that a loop stacks over its iterations, each with its body."""
    return [
        (op.bodies[body], end)
        for wire in op.wires
        if wire.is_stacked
        for body, i in wire.outputs
        if isinstance(end := op.bodies[body].outputs[i], Value)
    ]


def bitcast_sources(program: Program) -> Mapping[Value, Value]:
    """Results of a program's bitcasts, each with the value whose memory it shares."""
    known = _SOURCES.get(program)
    if known is not None:
        return known
    found: dict[Value, Value] = {}
    bitcasts = ops_with(Trait.ALIASES_OPERAND)
    for op in program.ops:
        if op.kind not in bitcasts or not isinstance(op.operands[0], Value):
            continue
        for result, operand in zip(op.results, op.operands, strict=False):
            assert isinstance(operand, Value), f"{op.kind} of a literal"
            found[result] = found.get(operand, operand)
    _SOURCES[program] = found
    return found


_SOURCES: WeakKeyDictionary[Program, Mapping[Value, Value]] = WeakKeyDictionary()
"""Cache of `bitcast_sources` by program, which every analysis of live ranges needs."""
