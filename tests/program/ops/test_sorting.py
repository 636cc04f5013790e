from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.program.ops.letters import f32, letters, rule_for


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: lax.top_k(x, 2), "abc->ab-,ab-"),
        (lambda x: lax.top_k(x, 2, axis=1), "acb->a-b,a-b"),
        (lambda x: lax.approx_max_k(x, 2), "abc->ab-,ab-"),
        (lambda x: lax.approx_min_k(x, 1, 0), "cab->-ab,-ab"),
        (
            lambda x: lax.approx_max_k(x, 2, aggregate_to_topk=False),
            "ab-->ab-,ab-",
        ),
    ],
)
def test_the_searched_dim_of_top_k_is_a_factor(fn, expected):
    assert letters(rule_for(fn, f32(4, 8, 16))) == expected


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: lax.sort(x, dimension=0), "cab->cab"),
        (
            lambda x: lax.sort((x, x, x), dimension=1, num_keys=2),
            "acb,acb,acb->acb,acb,acb",
        ),
        (lambda x: lax.sort(x[:, :7, :6], dimension=1), "a-b->a-b"),
        (lambda x: lax.sort(x[0, 0], dimension=0), "-->-"),
    ],
)
def test_a_sorted_dim_is_a_factor_if_another_dim_has_as_many_parts(fn, expected):
    assert letters(rule_for(fn, f32(4, 8, 16))) == expected


@pytest.mark.parametrize(
    ("search", "dtype", "least"),
    [
        (lax.top_k, jnp.float32, 8),
        (lax.top_k, jnp.bfloat16, 12),
        (lax.approx_max_k, jnp.float32, 8),
        (lax.approx_min_k, jnp.bfloat16, 12),
    ],
)
def test_a_part_has_as_many_bytes_as_its_candidates_with_their_positions(
    search, dtype, least
):
    rule = rule_for(lambda x: search(x, 4), jax.ShapeDtypeStruct((64,), dtype))
    assert rule.least == {0: least}
