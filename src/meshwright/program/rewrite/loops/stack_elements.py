"""Division of stacked arrays into their elements, each an input and output of its own.

The weights of a loop over layers are one array, whose leading dim counts the layers. Once
the loop is unrolled, each layer can be in another stage of a pipeline, but its weights,
their gradients and the optimizer's state are still parts of one array:

    before: %w: f32[4, 8, 8];  %w0 = slice %w [0:1];  ...;  %new = sub %w, %gradient
    after:  %w0, ..., %w3: f32[1, 8, 8];  %new0 = sub %w0, %gradient0;  ...

An op divides the leading dim of what it reads and makes if its factor rule has one factor
for all of these dims. A sum over the layers becomes sums of elements, which are added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from meshwright.machine import Mesh
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Builder, FactorRule, Trait, has_trait, rule_of
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rules.rule import Dims

_COMBINED = {"sum": "add", "max": "max", "min": "min", "prod": "mul"}
"""For each monoid of a reduction, the op that combines two partial results."""


@dataclass(frozen=True, slots=True)
class DividedStacks:
    """A program whose stacks are divided, and where their elements are.

    inputs, outputs: for each input and output of the source program, the number of its
        elements, which follow each other; 0 for one that is not divided.
    """

    program: Program
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def divide_stacks(program: Program, positions: Collection[int]) -> DividedStacks:
    """The program with stacked inputs divided into elements, where ops read elements.

    positions: the inputs that may be divided. An input is divided if the elements of a
        value that is computed from such inputs alone are all read one by one, and if this
        value and the input are connected by ops that combine stacks element by element.
        It stays whole if an op needs all of its elements together.
    Law: the result computes the same, up to the order of sums over the leading dim.
    """
    stacks = _Stacks(program, positions)
    if not stacks.inputs:
        whole = (0,) * len(program.inputs)
        return DividedStacks(program, whole, (0,) * len(program.outputs))
    return _Division(program, stacks).divided()


class _Stacks:
    """The values of a program whose leading dim is divided into elements.

    values: all of these. inputs: those that are inputs.
    factors: for each op that is written once for each element, the factor of that dim.
    """

    def __init__(self, program: Program, positions: Collection[int]) -> None:
        inputs = [program.inputs[i] for i in sorted(positions)]
        self.allowed = dict.fromkeys(v for v in inputs if v.shape and v.shape[0] > 1)
        self.readers: dict[Atom, list[Op]] = defaultdict(list)
        for op in program.ops:
            for atom in dict.fromkeys(op.operands):
                self.readers[atom].append(op)
        self.producer = {value: op for op in program.ops for value in op.results}
        self.values: dict[Value, None] = {}
        self.factors: dict[Op, int] = {}
        seeds = self._seeds(program)
        while True:
            self._reach(seeds)
            whole = [v for v in self.allowed if v in self.values and self._is_whole(v)]
            if not whole:
                break
            for value in whole:
                del self.allowed[value]
        self.inputs = {v for v in self.allowed if v in self.values}

    def _seeds(self, program: Program) -> Sequence[Value]:
        """The values computed from divisible inputs whose elements are all read."""
        known = dict.fromkeys((*self.allowed, *program.constants))
        for op in program.ops:
            if all(a in known for a in op.operands if isinstance(a, Value)):
                known.update(dict.fromkeys(op.results))
        taken: dict[Value, set[int]] = defaultdict(set)
        for op in program.ops:
            first = op.operands[0] if op.operands else None
            if isinstance(first, Value) and first in known and takes_element(op, first):
                taken[first].add(op.params["start_indices"][0])
        return [v for v, places in taken.items() if len(places) == v.shape[0]]

    def _reach(self, seeds: Sequence[Value]) -> None:
        """Find the stacks that ops combine with seeds, element by element."""
        self.factors.clear()
        self.values = {
            v: None for v in seeds if v in self.producer or v in self.allowed
        }
        todo = list(self.values)
        while todo:
            value = todo.pop()
            made = self.producer.get(value)
            for op in (*self.readers[value], *(() if made is None else (made,))):
                if op in self.factors or takes_element(op, value) or joins_elements(op):
                    continue
                factor = leading_factor(op, value)
                if factor is None:
                    continue
                self.factors[op] = factor
                for each in with_factor(op, factor):
                    is_new = each in self.producer or each in self.allowed
                    if is_new and each not in self.values:
                        self.values[each] = None
                        todo.append(each)

    def _is_whole(self, value: Value) -> bool:
        """Whether an op needs all elements of a stack together."""
        return any(
            not takes_element(op, value)
            and (
                op not in self.factors or value not in with_factor(op, self.factors[op])
            )
            for op in self.readers[value]
        )


def takes_element(op: Op, value: Atom | None) -> bool:
    """Whether an op slices exactly one element of a stack along its leading dim."""
    if value is None or not has_trait(op.kind, Trait.SLICES):
        return False
    is_slice = op.operands == (value,) and "start_indices" in op.params  # and no split
    return is_slice and op.results[0].shape == (1, *value.shape[1:])


def joins_elements(op: Op) -> bool:
    """Whether an op stacks elements along a leading dim."""
    return (
        has_trait(op.kind, Trait.JOINS)
        and op.params.get("dimension") == 0
        and all(atom.shape[0] == 1 for atom in op.operands)
    )


def leading_factor(op: Op, value: Value) -> int | None:
    """The factor along which an op is written once for each element of a stack.

    `None` if the leading dim of the stack has no factor, or if the op cannot be written so:
    another dim has the factor, or the op is more than one primitive on smaller shapes.
    """
    if op.bodies or op.has_effect:
        return None
    rule = rule_of(op)
    sides = _sides(op, rule)
    dims = next(dims for atom, dims in sides if atom is value)
    if not dims or len(dims[0]) != 1:
        return None
    (factor,) = dims[0]
    if factor in rule.special or rule.is_composite or rule.sizes[factor] < 2:
        return None
    if (rule.least or {}).get(factor, 1) > 1 or factor in rule.done:
        return None
    if factor in rule.reductions and rule.monoid not in _COMBINED:
        return None
    for _, each in sides:
        if any(factor in factors for factors in each[1:]):
            return None
        if each and factor in each[0] and len(each[0]) > 1:
            return None
    return factor


def with_factor(op: Op, factor: int) -> Sequence[Value]:
    """The operands and results of an op whose leading dim has a factor."""
    return [
        atom
        for atom, dims in _sides(op, rule_of(op))
        if isinstance(atom, Value) and dims and factor in dims[0]
    ]


def _sides(op: Op, rule: FactorRule) -> Sequence[tuple[Atom, Dims]]:
    """The operands and results of an op, each with the factors of its dims."""
    read = zip(op.operands, rule.operands, strict=True)
    return [*read, *zip(op.results, rule.results, strict=True)]


class _Division:
    """A program that is being rewritten with its stacks divided.

    elements: for each divided stack of the source program, its elements.
    slices: elements of arrays that are not divided.
    known: for other values of the source program, the new atom.
    """

    def __init__(self, source: Program, stacks: _Stacks) -> None:
        self.source = source
        self.stacks = stacks
        self.builder = Builder(Mesh({"all": 1}))
        self.elements: dict[Atom, Sequence[Atom]] = {}
        self.slices: dict[Atom, Sequence[Atom]] = {}
        self.known: dict[Atom, Atom] = {}

    def divided(self) -> DividedStacks:
        """The rewritten program, without ops that nothing reads."""
        source, stacks = self.source, self.stacks
        inputs: list[Value] = []
        for value in source.inputs:
            if value in stacks.inputs:
                shape = (1, *value.shape[1:])
                new = [Value(shape, value.dtype) for _ in range(value.shape[0])]
                self.elements[value] = new
                inputs += new
            else:
                inputs.append(value)
        for op in source.ops:
            self.builder.source = op.source
            self._write(op)
        outputs: list[Atom] = []
        counts: list[int] = []
        for atom in source.outputs:
            parts = self.elements.get(atom, ())
            counts.append(len(parts))
            outputs += parts or [self._whole(atom)]
        program = replace(
            source,
            inputs=tuple(inputs),
            ops=tuple(self.builder.ops),
            outputs=tuple(outputs),
        )
        sizes = (
            len(self.elements[v]) if v in stacks.inputs else 0 for v in source.inputs
        )
        return DividedStacks(eliminate_dead_code(program), tuple(sizes), tuple(counts))

    def _write(self, op: Op) -> None:
        """Write an op of the source program, once or for each element of a stack."""
        first = op.operands[0] if op.operands else None
        if first in self.elements and takes_element(op, first):
            start, *_ = op.params["start_indices"]
            self.known[op.results[0]] = self.elements[first][start]
        elif op.results and op.results[0] in self.stacks.values and joins_elements(op):
            self.elements[op.results[0]] = [self._whole(a) for a in op.operands]
        elif op in self.stacks.factors:
            self._write_each(op, self.stacks.factors[op])
        else:
            operands = tuple(map(self._whole, op.operands))
            self.builder.ops.append(replace(op, operands=operands))

    def _write_each(self, op: Op, factor: int) -> None:
        """Write an op for each element of the stacks that it reads and makes."""
        rule = rule_of(op)
        length = rule.sizes[factor]
        reads = [bool(d) and factor in d[0] for d in rule.operands]
        makes = [bool(d) and factor in d[0] for d in rule.results]
        shapes = [
            (1, *r.shape[1:]) if is_stack else r.shape
            for r, is_stack in zip(op.results, makes, strict=True)
        ]
        found: list[Sequence[Value]] = []
        for k in range(length):
            operands = tuple(
                self._element(atom, k) if is_stack else self._whole(atom)
                for atom, is_stack in zip(op.operands, reads, strict=True)
            )
            params = op.params
            if rule.local_params is not None:
                read = tuple(atom.shape for atom in operands)
                params = rule.local_params(op, read, tuple(shapes))
            found.append(self.builder.apply(op, operands, shapes, params))
        for place, result in enumerate(op.results):
            parts = [each[place] for each in found]
            if makes[place]:
                self.elements[result] = parts
                continue
            total: Value = parts[0]
            if factor in rule.reductions:
                for part in parts[1:]:
                    total = self.builder.binary(_COMBINED[rule.monoid], total, part)
            self.known[result] = total

    def _element(self, atom: Atom, k: int) -> Atom:
        """Element `k` of a stack, sliced from an array that is not divided."""
        if atom in self.elements:
            return self.elements[atom][k]
        if atom not in self.slices:
            whole, each = self.known.get(atom, atom), range(atom.shape[0])
            self.slices[atom] = [self.builder.slice(whole, 0, i, i + 1) for i in each]
        return self.slices[atom][k]

    def _whole(self, atom: Atom) -> Atom:
        """An array of the source program as one array; a stack's elements are joined."""
        if atom not in self.known and atom in self.elements:
            self.known[atom] = self.builder.concatenate(self.elements[atom], 0)
        return self.known.get(atom, atom)
