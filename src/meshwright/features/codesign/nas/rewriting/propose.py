"""Proposals: networks with one subgraph replaced, as three methods draw them.

`properties` is alphaNAS. The others are its ablations under the same budget: `enumeration`
replaces the same subgraphs by random pieces of the right shape, and `mutation` inserts,
drops or exchanges one op, as AutoML-Zero and Primer do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from random import Random

from meshwright.features.codesign.nas.properties.mixing import NONE, Mixing
from meshwright.features.codesign.nas.properties.properties import (
    Properties,
    PropertyTarget,
    properties_of,
    target_of,
)
from meshwright.features.codesign.nas.rewriting.cones import Cone, cones_of
from meshwright.features.codesign.nas.rewriting.network import ModelProgram
from meshwright.features.codesign.nas.rewriting.replace import replace_cone
from meshwright.features.codesign.nas.rewriting.roles import roles_of
from meshwright.features.codesign.nas.synthesis.choices import Typed
from meshwright.features.codesign.nas.synthesis.expression import Expression, Roles
from meshwright.features.codesign.nas.synthesis.synthesize import (
    enumerate_randomly,
    one_piece,
    synthesize,
)
from meshwright.program.ir import Atom, Program, Value

MUTATES = 0.8
"""How likely the properties of a subgraph are mutated, as alphaNAS has it for ImageNet."""

_DROPS = 0.25
"""How likely a mutation drops what is wanted of one dim of an input, or of its depth."""

_DEEPEST = 2
"""The most runs by which a mutation changes a depth (alphaNAS)."""

_TRIES = 200
"""Subgraphs that are tried before a proposal is given up."""

type Method = Callable[
    [ModelProgram, Cone, Mapping[Atom, Roles], Random], Expression | None
]


def propose(
    network: ModelProgram,
    method: str,
    allows: Callable[[ModelProgram], bool],
    rng: Random,
) -> ModelProgram | None:
    """The network with one subgraph replaced, drawn until `allows` accepts it.

    `None` if no draw was accepted.
    """
    roles = roles_of(network)
    cones = _usable(network, roles, method)
    for _ in range(_TRIES if cones else 0):
        cone = rng.choice(rng.choice(cones))
        expression = METHODS[method](network, cone, roles, rng)
        if expression is None or (
            expression == Expression((cone.output.shape,), (), 0)
            and cone.inputs == (cone.output,)
        ):
            continue
        found = replace_cone(network, cone, expression)
        if allows(found):
            return found
    return None


def _usable(
    network: ModelProgram, roles: Mapping[Atom, Roles], method: str
) -> list[list[Cone]]:
    """The cones whose ends have examples and one dtype, grouped by their outputs."""
    every = _single_ops(network) if method == "mutation" else cones_of(network)
    usable = [
        cone
        for cone in every
        if cone.output in roles
        and all(v in roles and v.dtype == cone.output.dtype for v in cone.inputs)
    ]
    return [list(group) for _, group in groupby(usable, key=lambda c: id(c.output))]


def _single_ops(network: ModelProgram) -> list[Cone]:
    """Each op alone, and each value, behind which a piece can be inserted."""
    found: list[Cone] = []
    for cone in cones_of(network):
        if len(cone.ops) == 1:
            found += [cone, Cone((), (cone.output,), cone.output)]
    return found


# -- methods -----------------------------------------------------------------------


def _typed(values: Sequence[Value], roles: Mapping[Atom, Roles]) -> list[Typed]:
    return [Typed(v.shape, roles[v]) for v in values]


def by_properties(
    network: ModelProgram, cone: Cone, roles: Mapping[Atom, Roles], rng: Random
) -> Expression | None:
    """A subgraph with the cone's properties, or with mutated ones."""
    target = target_of(cone_properties(network, cone))
    if rng.random() < MUTATES:
        target = mutated(target, rng)
    (wanted,) = _typed([cone.output], roles)
    return synthesize(target, wanted, _typed(cone.inputs, roles), rng)


def by_enumeration(
    network: ModelProgram, cone: Cone, roles: Mapping[Atom, Roles], rng: Random
) -> Expression | None:
    """A subgraph of random pieces with the cone's shape."""
    del network
    (wanted,) = _typed([cone.output], roles)
    return enumerate_randomly(wanted, _typed(cone.inputs, roles), rng)


def by_mutation(
    network: ModelProgram, cone: Cone, roles: Mapping[Atom, Roles], rng: Random
) -> Expression | None:
    """No piece or one random piece, which drops, exchanges or inserts an op."""
    del network
    (wanted,) = _typed([cone.output], roles)
    return one_piece(wanted, _typed(cone.inputs, roles), rng)


METHODS: Mapping[str, Method] = {
    "properties": by_properties,
    "enumeration": by_enumeration,
    "mutation": by_mutation,
}


def cone_properties(network: ModelProgram, cone: Cone) -> Properties:
    """The properties of the cone's output with respect to its inputs."""
    ops = tuple(network.program.ops[at] for at in cone.ops)
    body = Program(cone.inputs, ops, (cone.output,))
    return properties_of(body, cone.output, cone.inputs)


def mutated(target: PropertyTarget, rng: Random) -> PropertyTarget:
    """The target with other properties; its shape stays.

    What is wanted of a dim, or of the depth, is dropped with some probability. Other depths
    change up or down by a number of runs that is drawn geometrically.
    """
    steps = sum(rng.random() < 0.5 for _ in range(_DEEPEST))
    sign = rng.choice((-1, 1))
    return replace(
        target,
        mixing=tuple(None if m is None else _weaker(m, rng) for m in target.mixing),
        depth=tuple(
            0 if rng.random() < _DROPS else max(runs + sign * steps, 0)
            for runs in target.depth
        ),
    )


def _weaker(mixing: Mixing, rng: Random) -> Mixing:
    dropped = [rng.random() < _DROPS for _ in mixing.reach]
    return replace(
        mixing,
        reach=tuple(
            NONE if d else r for d, r in zip(dropped, mixing.reach, strict=True)
        ),
    )
