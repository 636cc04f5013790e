"""What a value is to a step, and so how long a collective on it may take unnoticed.

Weights are there from the start, gradients are wanted by the optimiser only, and new
weights by nobody before the next step: collectives on them run beside computation.
Whatever else is made is wanted at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum

from meshwright.predict.compilers.hlo.fusion import FusionKind, kind_of
from meshwright.predict.simulate.timeline import Timeline, collective_overlaps
from meshwright.program.ir import Op, Program, Value
from meshwright.program.ops import Trait, has_trait


class Role(Enum):
    """Of a value in a step."""

    WEIGHT = "weight"  # there from the start, or made of nothing else by light ops
    GRADIENT = "gradient"  # leads to the end by light ops alone
    UPDATE = "update"  # a gradient that weights or other state went into
    OTHER = "other"


EXPOSED: Mapping[Role, float] = {
    Role.WEIGHT: 0.35,
    Role.GRADIENT: 0.3,
    Role.UPDATE: 0.8,
    Role.OTHER: 1.0,
}
"""Share of a collective beside computation that a step waits for: about what simulated
steps of transformers and ResNets under ZeRO and sequence parallelism come to."""

LEAST_EXPOSED = 0.05
"""Share of any collective that a step is taken to wait for at least."""

_LIGHT = frozenset({FusionKind.LOOP, FusionKind.REDUCTION, FusionKind.COLLECTIVE})


def roles_of(program: Program) -> dict[Value, Role]:
    """The role of each value, in bodies of loops for one turn; those of others left out."""
    roles: dict[Value, Role] = {}
    for each in _programs(program):
        roles |= _roles(each)
    return roles


def exposed_by_role(
    program: Program, timeline: Timeline, beside: Collection[str]
) -> dict[Role, float]:
    """By role the share of its collectives beside computation that was waited for.

    program: the device program of a simulated step. beside: kinds that can run beside
    computation; the others are always waited for. What has none is left out.
    """
    roles = roles_of(program)
    waited = dict.fromkeys(Role, 0.0)
    hidden = dict.fromkeys(Role, 0.0)
    for unit, exposed_s, hidden_s in collective_overlaps(timeline):
        if unit.root.kind not in beside:
            continue
        operands = _operands(unit.root)
        role = roles.get(operands[0], Role.OTHER) if operands else Role.OTHER
        waited[role] += exposed_s
        hidden[role] += hidden_s
    return {
        role: max(LEAST_EXPOSED, waited[role] / (waited[role] + hidden[role]))
        for role in Role
        if waited[role] + hidden[role] > 0
    }


def _programs(program: Program) -> Iterator[Program]:
    yield program
    for op in program.ops:
        for body in op.bodies:
            yield from _programs(body)


def _roles(program: Program) -> dict[Value, Role]:
    light = {op for op in program.ops if _is_light(op)}
    roles = dict.fromkeys((*program.inputs, *program.constants), Role.WEIGHT)
    for op in program.ops:
        if op in light and all(v in roles for v in _operands(op)):
            roles |= dict.fromkeys(op.results, Role.WEIGHT)
    late_ops: set[Op] = set()
    late: set[Value] = set()
    readers = _readers(program.ops)
    for op in reversed(program.ops):
        ends = [r for r in op.results if late_ops.issuperset(readers.get(r, ()))]
        late.update(ends)
        if op in light and len(ends) == len(op.results):
            late_ops.add(op)
    for op in program.ops:
        known = {roles.get(v) for v in _operands(op)}
        is_update = op in late_ops and not known.isdisjoint({Role.WEIGHT, Role.UPDATE})
        for result in op.results:
            if result in late and result not in roles:
                roles[result] = Role.UPDATE if is_update else Role.GRADIENT
    return roles


def _is_light(op: Op) -> bool:
    return has_trait(op.kind, Trait.ALIASES_OPERAND) or kind_of(op) in _LIGHT


def _readers(ops: Iterable[Op]) -> dict[Value, list[Op]]:
    readers: dict[Value, list[Op]] = {}
    for op in ops:
        for value in dict.fromkeys(_operands(op)):
            readers.setdefault(value, []).append(op)
    return readers


def _operands(op: Op) -> list[Value]:
    return [v for v in op.operands if isinstance(v, Value)]
