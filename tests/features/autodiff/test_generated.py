"""Derivatives of generated programs: loops, branches, integers, zero cotangents."""

import random
from dataclasses import replace

import jax
import pytest

from tests.features.autodiff.compare import assert_equal_jax
from tests.fuzz.case import Case
from tests.fuzz.program import generate


def compare_with_jax(seed: int) -> None:
    """The derivatives of the program of this seed equal JAX's."""
    program = replace(generate(random.Random(seed)), variant="forward")
    case = Case(program, (), (), "shared", False, seed)
    fn, args = case.fn(), case.args()
    rtol = 0.1 if program.is_low_precision else 1e-3
    assert_equal_jax(fn, *args, seed=seed, rtol=rtol, zeros=0.25)
    jax.clear_caches()


@pytest.mark.parametrize("seed", range(4))
def test_a_generated_program_has_the_derivatives_of_jax(seed):
    compare_with_jax(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 500))
def test_each_of_500_generated_programs_has_the_derivatives_of_jax(seed):
    compare_with_jax(seed)
