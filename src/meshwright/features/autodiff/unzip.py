"""Unzip: split a program with tangents into a nonlinear program and a linear one.

The nonlinear program computes the original outputs and the residuals, which are all
values that the linear program reads. Any choice of saved values is possible here: the
linear program recomputes a value that is not saved. So rematerialization
(checkpointing) needs no transformation of its own. By default, only values that take no
time are recomputed: broadcasts, and values that depend on no input.

A scan becomes two scans, and the first one stacks residuals for the second. The
branches of a cond share results for their residuals. The body of a remat, and the
iterations of a while loop, are computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from meshwright.features.autodiff.check_linear import check_linear
from meshwright.features.autodiff.explicit import make_explicit, make_implicit
from meshwright.features.autodiff.region_links import (
    Body,
    Link,
    fresh,
    links_of,
    region_op,
)
from meshwright.features.autodiff.residual_places import Hoisted, Slots
from meshwright.features.autodiff.typing import LinearProgram
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.program.rewrite.recomputation import (
    Recomputation,
    behind_barrier,
    copied,
)


@dataclass(frozen=True, slots=True, eq=False)
class Unzipped:
    """The nonlinear and the linear part of a program with tangents.

    nonlinear: takes the original inputs; returns the original outputs, then the
        residuals.
    linear: takes residuals and tangents; returns the tangents of the outputs.
    residuals: the values that `linear` reads from `nonlinear`; inputs may be among
        them.
    """

    nonlinear: Program
    linear: LinearProgram
    residuals: tuple[Value, ...]


def unzip(
    forward: LinearProgram, num_outputs: int, keep: Collection[Value] | None = None
) -> Unzipped:
    """The nonlinear and the linear part of a program with tangents.

    num_outputs: number of the original outputs, which come before their tangents.
    keep: values to save, also in nested programs. All other values are computed again
        from saved values, from inputs, and from results of loops and of ops with side
        effects, which are always saved. By default, all values that take time to
        compute are saved.
    """
    program = make_implicit(forward.program)
    level = _Level(forward.linear, keep)
    level.run(program.ops)
    outputs, tangents = program.outputs[:num_outputs], program.outputs[num_outputs:]
    level.recompute(outer=True)
    residuals = level.free(tangents, {*forward.linear_inputs, *program.constants})
    nonlinear = eliminate_dead_code(
        Program(
            forward.other_inputs,
            tuple(level.ops),
            (*outputs, *residuals),
            program.constants,
        )
    )
    linear = copied(
        Program(
            (*residuals, *forward.linear_inputs),
            tuple(level.linear_ops),
            tangents,
            program.constants,
        )
    )
    typed = make_explicit(linear, linear.inputs[len(residuals) :])
    return Unzipped(nonlinear, check_linear(typed), residuals)


@dataclass(slots=True)
class _Level:
    """The two parts of one program, or of one nested program, while they are built.

    linear: all linear values. keep: values to save, as in `unzip`.
    ops: the ops of the nonlinear part. linear_ops: the ops of the linear part, which at
        first read all values of the nonlinear part.
    """

    linear: Collection[Value]
    keep: Collection[Value] | None
    ops: list[Op] = field(default_factory=list[Op])
    linear_ops: list[Op] = field(default_factory=list[Op])

    def run(self, ops: Iterable[Op]) -> None:
        """Put each op into its part; a loop or branch is split into two ops."""
        for op in ops:
            ends = (*op.operands, *op.results)
            if not any(end in self.linear for end in ends):
                self.ops.append(op)
            elif not op.bodies:
                self.linear_ops.append(op)
            elif op.kind == "scan":
                self._scan(op)
            elif op.kind == "cond":
                self._cond(op)
            else:
                self._recomputed_region(op)

    def free(
        self, outputs: Sequence[Atom], bound: Collection[Value]
    ) -> tuple[Value, ...]:
        """Values that the linear ops read, do not compute and are not in `bound`."""
        made = {r for op in self.linear_ops for r in op.results}.union(bound)
        read = [a for op in self.linear_ops for a in op.operands]
        found = dict.fromkeys((*read, *outputs))
        return tuple(a for a in found if isinstance(a, Value) and a not in made)

    def recompute(self, outer: bool) -> None:
        """Add ops to the linear part that recompute the values that are not saved.

        outer: whether this is the whole program. Its saved values then get optimization
            barriers, so that XLA does not merge recomputed ops with the original ones.
        """
        kept = _saved(self.ops, self.keep)
        fenced = outer and self.keep is not None
        fetch = behind_barrier if fenced else lambda value: (value, ())
        second = Recomputation(self.ops, kept, fetch)
        ops: list[Op] = []
        for op in self.linear_ops:
            for operand in op.operands:
                ops += second.ops_for(operand)
            operands = tuple(second.copies.get(a, a) for a in op.operands)
            ops.append(replace(op, operands=operands))
        self.linear_ops = ops

    def _inner(
        self, body: Program, ends: Iterable[Value]
    ) -> tuple[_Level, tuple[Value, ...]]:
        """The two parts of a nested program, and what its linear part reads.

        ends: the nested program's linear inputs.
        """
        inner = _Level(self.linear, self.keep)
        inner.run(body.ops)
        inner.recompute(outer=False)
        return inner, inner.free((), {*ends})

    def _split(self, op: Op) -> tuple[list[Link], list[Link]]:
        """The links of a region op: first of nonlinear, then of linear values."""
        other: list[Link] = []
        linear: list[Link] = []
        for link in links_of(op):
            (linear if link.is_in(self.linear) else other).append(link)
        return other, linear

    def _scan(self, op: Op) -> None:
        other, linear = self._split(op)
        (body,) = op.bodies
        inputs = [link.inputs[0] for link in linear if link.inputs]
        inner, needed = self._inner(body, inputs)
        hoisted = Hoisted(inner.ops, other)
        names: dict[Atom, Value] = {}
        constants: dict[Value, object] = {}
        reads: list[Link] = []
        stacks: list[Link] = []
        for value in needed:
            names[value] = inside = fresh(value)
            link = next((k for k in other if k.inputs.get(0) is value), None)
            if value in body.constants:
                constants[inside] = body.constants[value]
            elif link is not None and not link.outputs:
                reads.append(replace(link, inputs={0: inside}))
            elif value in hoisted.invariant:
                reads.append(Link(hoisted.outside(value), {0: inside}))
            else:
                stacked = Value(
                    (int(str(op.params["length"])), *value.shape), value.dtype
                )
                stacks.append(Link(None, {}, {0: value}, stacked, True))
                reads.append(Link(stacked, {0: inside}, is_stacked=True))
        self.ops += hoisted.ops
        part = Body(inner.ops, body.constants)
        self.ops.append(region_op(op, [*other, *stacks], [part]))
        renamed = Body(_renamed(inner.linear_ops, names), constants)
        ends = [_renamed_outputs(link, names) for link in linear]
        self.linear_ops.append(region_op(op, [*reads, *ends], [renamed]))

    def _cond(self, op: Op) -> None:
        other, linear = self._split(op)
        slots = Slots(len(op.bodies))
        reads: dict[int, Link] = {}
        parts: list[Body] = []
        linear_parts: list[Body] = []
        for b, body in enumerate(op.bodies):
            inputs = [link.inputs[b] for link in linear if b in link.inputs]
            inner, needed = self._inner(body, inputs)
            names: dict[Atom, Value] = {}
            constants: dict[Value, object] = {}
            for value in needed:
                names[value] = inside = fresh(value)
                at = next(
                    (i for i, k in enumerate(other) if k.inputs.get(b) is value), None
                )
                if value in body.constants:
                    constants[inside] = body.constants[value]
                elif at is not None:
                    before = reads.get(at, Link(other[at].operand))
                    reads[at] = replace(before, inputs={**before.inputs, b: inside})
                else:
                    slots.add(b, value, inside)
            parts.append(Body(inner.ops, body.constants))
            linear_parts.append(Body(_renamed(inner.linear_ops, names), constants))
            linear = [_renamed_outputs(link, names, b) for link in linear]
        parts = slots.fill(parts)
        self.ops.append(region_op(op, [*other, *slots.writes()], parts))
        index = [link for link in other if not link.inputs and not link.outputs]
        links = [
            *index,
            *_complete([*reads.values(), *slots.reads()], len(parts)),
            *linear,
        ]
        self.linear_ops.append(region_op(op, links, linear_parts))

    def _recomputed_region(self, op: Op) -> None:
        """Split a remat or while loop; its linear part recomputes all values."""
        other, linear = self._split(op)
        parts: list[Body] = []
        both: list[Body] = []
        for body in op.bodies:
            inner = _Level(self.linear, self.keep)
            inner.run(body.ops)
            parts.append(Body(inner.ops, body.constants))
            both.append(Body([*inner.ops, *inner.linear_ops], body.constants))
        self.ops.append(region_op(op, other, parts))
        params = {**op.params, "barrier": True} if op.kind == "remat" else op.params
        unread = [replace(k, result=k.result and fresh(k.result)) for k in other]
        again = region_op(op, [*unread, *linear], both, params=params)
        self.linear_ops.append(replace(again, bodies=tuple(map(copied, again.bodies))))


def _saved(ops: Sequence[Op], keep: Collection[Value] | None) -> Collection[Value]:
    """The results to save: `keep`, or by default all that take time to compute."""
    if keep is not None:
        return keep
    free: set[Value] = set()
    for op in ops:
        inputs = [a for a in op.operands if isinstance(a, Value)]
        is_constant = all(a in free for a in inputs) and not (
            op.has_effect or op.bodies or has_trait(op.kind, Trait.DRAWS_FROM_STATE)
        )
        if is_constant or has_trait(op.kind, Trait.REPEATS):
            free.update(op.results)
    return {r for op in ops for r in op.results if r not in free}


def _complete(links: Sequence[Link], count: int) -> list[Link]:
    """The links, each as an input of all branches of a cond, as a cond requires."""
    complete: list[Link] = []
    for link in links:
        assert link.operand is not None, "a residual enters without an operand"
        inputs = {b: link.inputs.get(b) or fresh(link.operand) for b in range(count)}
        complete.append(replace(link, inputs=inputs))
    return complete


def _renamed(ops: Iterable[Op], names: Mapping[Atom, Value]) -> list[Op]:
    return [
        replace(op, operands=tuple(names.get(a, a) for a in op.operands)) for op in ops
    ]


def _renamed_outputs(link: Link, names: Mapping[Atom, Value], body: int = 0) -> Link:
    outputs = {b: names.get(a, a) if b == body else a for b, a in link.outputs.items()}
    return replace(link, outputs=outputs)
