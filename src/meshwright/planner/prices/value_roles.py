"""Roles of values in a training step, which decide if a step waits for collectives.

Weights are known from the start, only the optimizer needs gradients, and new weights
are needed only in the next step. So collectives on these values overlap with
computation. A step waits for collectives on all other values.
"""

from collections.abc import Collection, Mapping
from enum import Enum

from meshwright.predict.compilers.model.fusion import FusionKind, kind_of
from meshwright.predict.simulate.timeline import Timeline, collective_overlaps
from meshwright.program.ir import Op, Program, Value
from meshwright.program.ops import Trait, has_trait


class Role(Enum):
    """The role of a value in a training step: weight, gradient, update or other."""

    WEIGHT = "weight"  # an input, or computed from inputs alone by light ops
    GRADIENT = "gradient"  # light ops alone lead from it to the outputs
    UPDATE = "update"  # a gradient that is combined with weights or optimizer state
    OTHER = "other"


EXPOSED: Mapping[Role, float] = {
    Role.WEIGHT: 0.35,
    Role.GRADIENT: 0.3,
    Role.UPDATE: 0.8,
    Role.OTHER: 1.0,
}
"""Share of an asynchronous collective's time that a step waits for, by role.

The shares are about the mean of simulated steps of transformers and ResNets under ZeRO
and sequence parallelism.
"""

LEAST_EXPOSED = 0.05
"""Lowest share of a collective's time that a step is assumed to wait for.

It holds even if a simulated step hides all of the time.
"""

_LIGHT = frozenset({FusionKind.LOOP, FusionKind.REDUCTION, FusionKind.COLLECTIVE})


def roles_of(program: Program) -> dict[Value, Role]:
    """Roles of the values of a program and its bodies.

    Values of role OTHER are left out.
    """
    roles: dict[Value, Role] = {}
    bodies = (body for op in program.walk() for body in op.bodies)
    for each in (program, *bodies):
        roles |= _roles(each)
    return roles


def exposed_by_role(
    program: Program, timeline: Timeline, asynchronous: Collection[str]
) -> dict[Role, float]:
    """Share of asynchronous collectives' time that a step waits for, by role.

    program: the device program that was simulated.
    timeline: the simulated step.
    asynchronous: kinds of collective that can run at the same time as computation.
        Roles without such collectives are left out.
    """
    roles = roles_of(program)
    exposed = dict.fromkeys(Role, 0.0)
    hidden = dict.fromkeys(Role, 0.0)
    for fusion, exposed_s, hidden_s in collective_overlaps(timeline):
        if fusion.root.kind not in asynchronous:
            continue
        operands = _operands(fusion.root)
        role = roles.get(operands[0], Role.OTHER) if operands else Role.OTHER
        exposed[role] += exposed_s
        hidden[role] += hidden_s
    return {
        role: max(LEAST_EXPOSED, exposed[role] / (exposed[role] + hidden[role]))
        for role in Role
        if exposed[role] + hidden[role] > 0
    }


def _roles(program: Program) -> dict[Value, Role]:
    """Roles (weight, gradient, ...) of the values of one program or body.

    Its inputs count as weights.
    """
    light = {  # ops that take little time: no product, convolution or region
        op
        for op in program.ops
        if has_trait(op.kind, Trait.ALIASES_OPERAND) or kind_of(op) in _LIGHT
    }
    roles = dict.fromkeys((*program.inputs, *program.constants), Role.WEIGHT)
    for op in program.ops:
        if op in light and all(v in roles for v in _operands(op)):
            roles |= dict.fromkeys(op.results, Role.WEIGHT)
    # Values and ops from which light ops alone lead to the outputs.
    late_ops: set[Op] = set()
    late: set[Value] = set()
    early: set[Value] = set()
    for op in reversed(program.ops):
        late.update(r for r in op.results if r not in early)
        if op in light and early.isdisjoint(op.results):
            late_ops.add(op)
        else:
            early.update(_operands(op))
    for op in program.ops:
        known = {roles.get(v) for v in _operands(op)}
        is_update = op in late_ops and not known.isdisjoint({Role.WEIGHT, Role.UPDATE})
        for result in op.results:
            if result in late and result not in roles:
                roles[result] = Role.UPDATE if is_update else Role.GRADIENT
    return roles


def _operands(op: Op) -> list[Value]:
    return [v for v in op.operands if isinstance(v, Value)]
