from __future__ import annotations

import pytest
from jax.lax import linalg

from tests.program.ops.letters import f32, letters, rule_for


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: linalg.cholesky_p.bind(x), "ab--->ab--"),
        (lambda x: linalg.lu(x), "ab--->ab--,ab-,ab-"),
        (
            lambda x: linalg.eigh_p.bind(
                x,
                lower=True,
                sort_eigenvalues=True,
                subset_by_index=None,
                algorithm=None,
            ),
            "ab--->ab--,ab-",
        ),
        (lambda x: linalg.hessenberg(x), "ab--->ab--,ab-"),
        (
            lambda x: linalg.symmetric_product_p.bind(x, x, alpha=1.0, beta=1.0),
            "ab--,ab--->ab--",
        ),
    ],
)
def test_factorizations_are_split_over_batch_dims(fn, expected):
    assert letters(rule_for(fn, f32(4, 2, 3, 3))) == expected


def test_a_single_matrix_is_not_split():
    assert letters(rule_for(lambda x: linalg.qr(x), f32(5, 3))) == "--->--,--"


@pytest.mark.parametrize(
    ("left", "expected"), [(True, "a--,a-b->a-b"), (False, "a--,ab-->ab-")]
)
def test_right_hand_sides_of_one_matrix_are_a_factor(left, expected):
    def fn(a, b):
        return linalg.triangular_solve_p.bind(
            a,
            b,
            left_side=left,
            lower=True,
            transpose_a=False,
            conjugate_a=False,
            unit_diagonal=False,
        )

    rule = rule_for(fn, f32(4, 3, 3), f32(4, 3, 8) if left else f32(4, 8, 3))
    assert letters(rule) == expected
    assert rule.linear == (frozenset({1}),)


def test_right_hand_sides_of_a_tridiagonal_solve_are_columns():
    rule = rule_for(
        linalg.tridiagonal_solve_p.bind, f32(4, 6), f32(4, 6), f32(4, 6), f32(4, 6, 2)
    )
    assert letters(rule) == "a-,a-,a-,a-b->a-b"
    assert rule.linear == (frozenset({3}),)
