"""Traits of ops, checked on every example of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from meshwright.program.ir import Op, num_bytes
from meshwright.program.ops import Trait, has_trait, known_ops, ops_with, rule_of
from tests.program.ops.test_numbers import all_examples, captured

WITHOUT_A_RULE = {
    Trait.REGION: {"cond", "remat", "scan", "while"},
    Trait.COLLECTIVE: {
        "all_gather", "all_reduce", "all_to_all", "permute", "reduce_scatter",
    },
    Trait.DRAWS_FROM_STATE: {"rng_uniform"},
    Trait.EXPENSIVE: {"random_bits_window"},
    Trait.STANDALONE: {"columns"},
}  # fmt: skip


@pytest.fixture(scope="module")
def ops() -> list[Op]:
    examples = all_examples() + all_examples("TRACED")
    programs = (captured(e).program for e in examples)
    return [op for program in programs for op in program.walk()]


def having(ops: list[Op], trait: Trait) -> Iterator[Op]:
    found = [op for op in ops if has_trait(op.kind, trait)]
    assert found, f"no example has {trait}"
    return iter(found)


@pytest.mark.parametrize(
    ("part", "of"),
    [
        (Trait.TRANSCENDENTAL, Trait.ELEMENTWISE),
        (Trait.ADDS, Trait.ELEMENTWISE),
        (Trait.CHOOSES, Trait.ELEMENTWISE),
        (Trait.JOINS, Trait.MOVES),
        (Trait.SLICES, Trait.MOVES),
        (Trait.READS_AT_INDEX, Trait.MOVES),
        (Trait.CONTRACTION, Trait.EXPENSIVE),
        (Trait.REDUCTION, Trait.EXPENSIVE),
        (Trait.SCATTERS, Trait.EXPENSIVE),
        (Trait.LOOP, Trait.REGION),
        (Trait.COLLECTIVE_REDUCTION, Trait.COLLECTIVE),
    ],
)
def test_ops_with_one_trait_have_the_other(part: Trait, of: Trait):
    assert ops_with(part) < ops_with(of)


@pytest.mark.parametrize("trait", Trait)
def test_only_ops_that_have_a_rule_have_traits_but_for_those_listed(trait: Trait):
    listed = set().union(*WITHOUT_A_RULE.values())
    assert ops_with(trait)
    assert ops_with(trait) - set(known_ops()) <= listed


def test_every_dim_of_an_elementwise_result_is_a_factor_of_its_own(ops: list[Op]):
    for op in having(ops, Trait.ELEMENTWISE):
        (dims,) = rule_of(op).results
        assert dims == tuple((d,) for d in range(len(op.results[0].shape)))


def test_an_alias_has_the_bytes_of_its_operand(ops: list[Op]):
    for op in having(ops, Trait.ALIASES_OPERAND):
        assert [*map(num_bytes, op.results)] == [*map(num_bytes, op.operands)]


def test_a_reduction_has_no_more_elements_than_its_operand(ops: list[Op]):
    for op in having(ops, Trait.REDUCTION):
        assert len(op.results[0].shape) <= len(op.operands[0].shape)
        assert np.prod(op.results[0].shape) <= np.prod(op.operands[0].shape)


def test_ops_that_move_choose_or_alias_change_no_dtype(ops: list[Op]):
    for trait in (Trait.MOVES, Trait.CHOOSES, Trait.ALIASES_OPERAND, Trait.SCATTERS):
        for op in having(ops, trait):
            assert op.results[0].dtype in {a.dtype for a in op.operands}, op


def test_a_region_has_bodies_and_no_other_op_has(ops: list[Op]):
    for op in ops:
        assert bool(op.bodies) == has_trait(op.kind, Trait.REGION)
