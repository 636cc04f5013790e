"""Mixing, against the Jacobian of generated functions and by its composition law."""

import jax
import numpy as np
import pytest

from meshwright.features.codesign.nas.properties.mixing import (
    ALL_TO_ONE,
    MANY_TO_ONE,
    Mixing,
    mixing_of,
)
from meshwright.program.capture import capture
from tests.features.codesign.nas.properties.subgraphs import generated


def measured(fn, shape: tuple[int, ...]) -> Mixing | None:
    """The mixing that the Jacobian shows, which is not 0 where there is a dependence."""
    jacobian = jax.jit(jax.jacrev(fn))
    points = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    depends = sum(np.abs(np.asarray(jacobian(x), np.float64)) > 0 for x in points) > 0
    out = depends.ndim - len(shape)
    centre = tuple(n // 2 for n in depends.shape[:out])
    if not depends[centre].any():
        return None

    def positions(part: np.ndarray, d: int) -> np.ndarray:
        """Positions along dim d of the input on which a part of the output depends."""
        flat = part.reshape(-1, *shape)
        return flat.any(axis=tuple(i for i in range(flat.ndim) if i != d + 1))

    reach, paired = [], []
    for d, n in enumerate(shape):
        count = int(positions(depends[centre], d).sum())
        reach.append(ALL_TO_ONE if count == n > 1 else min(count, MANY_TO_ONE))
        slices = [
            depends[(*centre[:e], slice(None), *centre[e + 1 :])] for e in range(out)
        ]
        pairs = [e for e, part in enumerate(slices) if positions(part, d).all()]
        paired.append(frozenset(pairs if n > 1 else ()))
    return Mixing(tuple(reach), tuple(paired), out)


def check_seed(seed: int) -> None:
    fn, shape = generated(seed)
    program = capture(fn, (jax.ShapeDtypeStruct(shape, "float32"),)).program
    (found,) = mixing_of(program, program.outputs[0], program.inputs)
    assert found == measured(fn, shape), f"seed {seed}\n{program}"


@pytest.mark.parametrize("seed", range(12))
def test_mixing_is_that_of_the_jacobian(seed: int):
    check_seed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(12, 312, 20))
def test_mixing_is_that_of_the_jacobian_of_300_subgraphs(start: int):
    for seed in range(start, start + 20):
        check_seed(seed)
