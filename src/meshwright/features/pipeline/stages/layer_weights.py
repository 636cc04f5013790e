"""Weights of a loop over layers, divided into those of each layer.

They are one array, whose leading dim counts the layers. In a pipeline each stage has the
weights, gradients and optimizer state of its own layers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from meshwright.program.capture import Captured
from meshwright.program.rewrite.loops.stack_elements import divide_stacks
from meshwright.program.rules.factors import is_key


@dataclass(frozen=True, slots=True)
class OpenedStep:
    """A captured step with its loops over layers unrolled, and their weights divided.

    inputs, outputs: for each leaf of the step as it was captured, the number of layers
        into which it is divided; 0 for one that is not.
    """

    captured: Captured
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def unopened(captured: Captured) -> OpenedStep:
    """A captured step as it is, with no array divided into layers."""
    return OpenedStep(
        captured, (0,) * len(captured.paths), (0,) * len(captured.out_paths)
    )


def with_own_weights(captured: Captured, weights: Collection[int]) -> OpenedStep:
    """A captured step whose unrolled layers have weights of their own.

    All layers of a leaf have its path, so that the user's patterns mean each of them.
    weights: positions of the inputs without the batch. PRNG keys stay as they are.
    """
    arrays = [i for i in weights if not is_key(captured.program.inputs[i].dtype)]
    found = divide_stacks(captured.program, arrays)
    if not any(found.inputs):
        return unopened(captured)
    starts, out_starts = _starts(found.inputs), _starts(found.outputs)
    ties = {
        out_starts[o] + k: starts[i] + k
        for o, i in captured.ties.items()
        if found.outputs[o] == found.inputs[i]
        for k in range(max(found.inputs[i], 1))
    }
    divided = replace(
        captured,
        program=found.program,
        paths=_repeated(captured.paths, found.inputs),
        out_paths=_repeated(captured.out_paths, found.outputs),
        avals=_avals(captured.avals, found.inputs),
        out_avals=_avals(captured.out_avals, found.outputs),
        ties=ties,
        donated=tuple(
            starts[i] + k
            for i in captured.donated
            for k in range(max(found.inputs[i], 1))
        ),
    )
    return OpenedStep(divided, found.inputs, found.outputs)


def _starts(counts: Sequence[int]) -> Sequence[int]:
    """The position of the first element of each leaf."""
    return [0, *accumulate(max(count, 1) for count in counts)]


def _repeated[T](leaves: Sequence[T], counts: Sequence[int]) -> tuple[T, ...]:
    """What is known of each leaf, once for each of its elements."""
    return tuple(
        leaf
        for leaf, count in zip(leaves, counts, strict=True)
        for _ in range(max(count, 1))
    )


def _avals(avals: Sequence[Any], counts: Sequence[int]) -> tuple[Any, ...]:
    """Shape and dtype of each element of each leaf."""
    every = zip(_repeated(avals, counts), _repeated(counts, counts), strict=True)
    return tuple(
        aval.update(shape=(1, *aval.shape[1:])) if count else aval
        for aval, count in every
    )
