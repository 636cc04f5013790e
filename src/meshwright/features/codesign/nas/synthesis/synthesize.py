"""Progressive synthesis: pieces are appended until a subgraph has the wanted properties.

Each piece must bring the subgraph nearer to the target. Among the kinds of piece that do,
one is drawn uniformly, and then one of its pieces (alphaNAS, OOPSLA 2022). So the number
of candidates that are looked at grows with the length of the subgraph, not with the
number of subgraphs of that length. Properties of a longer subgraph follow from those of
the shorter one by composition, without a look at its ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from meshwright.features.codesign.nas.properties.properties import (
    Properties,
    PropertyTarget,
    compose,
    distance,
    input_properties,
)
from meshwright.features.codesign.nas.synthesis.choices import (
    Typed,
    result_of,
    unary_pieces,
)
from meshwright.features.codesign.nas.synthesis.expression import (
    Expression,
    Step,
    step_properties,
)
from meshwright.features.codesign.nas.synthesis.pieces import SubgraphPiece

MOST_STEPS = 10
"""Pieces of a synthesised subgraph at most; an inverted bottleneck has about 10."""

CONTINUES = 0.2
"""How likely one more piece is added to a subgraph that has the properties already."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A subgraph so far: its steps, and its values with their properties by number."""

    values: tuple[Typed, ...]
    properties: tuple[Properties, ...]
    steps: tuple[Step, ...]
    at: int

    def extended(self, piece: SubgraphPiece, operands: tuple[int, ...]) -> Draft:
        """The draft with one more step, whose result is the output."""
        shapes = tuple(self.values[i].shape for i in operands)
        own = step_properties(piece, shapes)
        found = compose([self.properties[i] for i in operands], own)
        typed = result_of(piece, self.values[operands[0]], own.shape)
        return Draft(
            (*self.values, typed),
            (*self.properties, found),
            (*self.steps, Step(piece, operands)),
            len(self.values),
        )

    def expression(self, num_inputs: int) -> Expression:
        """The draft as an expression of its inputs."""
        shapes = tuple(v.shape for v in self.values[:num_inputs])
        return Expression(shapes, self.steps, self.at)


def synthesize(
    target: PropertyTarget, wanted: Typed, inputs: Sequence[Typed], rng: Random
) -> Expression | None:
    """A subgraph of `inputs` that has the properties of `target`.

    wanted: shape and roles of its output. `None` if no piece brings a subgraph nearer.
    """
    draft = _start(inputs, rng.randrange(len(inputs)))
    left = distance(target, draft.properties[draft.at])
    while len(draft.steps) < MOST_STEPS:
        if left == 0 and rng.random() >= CONTINUES:
            return draft.expression(len(inputs))
        nearer = [
            (each, gap)
            for each in _longer(draft, wanted, len(inputs))
            if (gap := distance(target, each.properties[each.at])) < left or gap == 0
        ]
        if not nearer:
            break
        draft, left = _by_kind(nearer, rng)
    return draft.expression(len(inputs)) if left == 0 else None


def enumerate_randomly(
    wanted: Typed, inputs: Sequence[Typed], rng: Random, tries: int = 200
) -> Expression | None:
    """A subgraph of random pieces whose output has the wanted shape, without a target."""
    for _ in range(tries):
        draft = _start(inputs, rng.randrange(len(inputs)))
        for _ in range(rng.randrange(MOST_STEPS + 1)):
            longer = [(each, 0.0) for each in _longer(draft, wanted, len(inputs))]
            draft, _ = _by_kind(longer, rng)
        if draft.values[draft.at].shape == wanted.shape:
            return draft.expression(len(inputs))
    return None


def _start(inputs: Sequence[Typed], which: int) -> Draft:
    shapes = [each.shape for each in inputs]
    found = tuple(input_properties(shapes, i) for i in range(len(inputs)))
    return Draft(tuple(inputs), found, (), which)


def _longer(draft: Draft, wanted: Typed, num_inputs: int) -> Iterator[Draft]:
    """The draft with each piece that can be applied to its output."""
    own = draft.values[draft.at]
    for piece in unary_pieces(own, wanted):
        yield draft.extended(piece, (draft.at,))
    for other, typed in enumerate(draft.values):
        if other != draft.at and len(typed.shape) == len(own.shape):
            fitted = draft if typed.shape == own.shape else _fitted(draft, other, own)
            if fitted is not None:
                at = other if fitted is draft else fitted.at
                for kind in ("add", "mul"):
                    yield fitted.extended(SubgraphPiece(kind), (draft.at, at))


def _fitted(draft: Draft, other: int, own: Typed) -> Draft | None:
    """The draft with value `other` brought to the shape of `own`, if two pieces can."""
    value = draft.values[other]
    for change in _fitting(value, own):
        draft = draft.extended(change, (other,))
        other = draft.at
    return draft if draft.values[other].shape == own.shape else None


def _fitting(value: Typed, own: Typed) -> Iterator[SubgraphPiece]:
    """A pool that shrinks the space, and a dense layer that changes the channels."""
    roles = value.roles
    shrunk = [
        (value.shape[a], own.shape[b])
        for a, b in zip(value.space, own.space, strict=True)
    ]
    ratios = {-(-n // m) for n, m in shrunk}
    if len(ratios) == 1 and (stride := ratios.pop()) > 1:
        yield SubgraphPiece(
            "average_pool", roles.feature, value.space, roles.batch, 0, stride, stride
        )
    if value.shape[roles.feature] != own.shape[own.roles.feature]:
        size = own.shape[own.roles.feature]
        yield SubgraphPiece("dense", roles.feature, batch=roles.batch, size=size)


def _by_kind(found: Sequence[tuple[Draft, float]], rng: Random) -> tuple[Draft, float]:
    """One of the drafts: the kind of its last piece is drawn first, then the piece."""
    kinds = sorted({draft.steps[-1].piece.kind for draft, _ in found})
    kind = rng.choice(kinds)
    return rng.choice([each for each in found if each[0].steps[-1].piece.kind == kind])


def one_piece(wanted: Typed, inputs: Sequence[Typed], rng: Random) -> Expression | None:
    """One input as it is, or one random piece on it, of the wanted shape."""
    draft = _start(inputs, rng.randrange(len(inputs)))
    found = [(each, 0.0) for each in _longer(draft, wanted, len(inputs))]
    fitting = [(d, g) for d, g in found if d.values[d.at].shape == wanted.shape]
    is_same = draft.values[draft.at].shape == wanted.shape
    if is_same and (not fitting or rng.random() < 1 / 3):
        return draft.expression(len(inputs))
    return _by_kind(fitting, rng)[0].expression(len(inputs)) if fitting else None
