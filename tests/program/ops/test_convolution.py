from __future__ import annotations

import numpy as np
import pytest
from jax import lax

from tests.program.ops.catalogue.convolution import _FORMS
from tests.program.ops.letters import f32, last_op, letters, rule_for

NHWC = ("NHWC", "HWIO", "NHWC")


def _rule(lhs, rhs, strides=(1, 1), padding="SAME", **more):
    def fn(x, w):
        return lax.conv_general_dilated(
            x, w, strides, padding, dimension_numbers=NHWC, **more
        )

    return rule_for(fn, f32(*lhs), f32(*rhs))


def test_features_have_the_factors_of_a_matmul():
    rule = _rule((4, 8, 8, 2), (3, 3, 2, 6), padding="VALID")
    assert letters(rule) == "a--b,--bc->a--c"
    assert rule.linear == (frozenset({0}), frozenset({1}))


def test_a_spatial_dim_is_split_with_a_halo():
    rule = _rule((4, 16, 8, 2), (3, 3, 2, 6))
    assert letters(rule) == "adeb,--bc->adec"
    assert rule.special == {3, 4}


def test_a_window_of_one_needs_no_expansion():
    rule = _rule((4, 16, 8, 2), (1, 1, 2, 6))
    assert letters(rule) == "adeb,--bc->adec"
    assert not rule.special


def test_windows_that_do_not_overlap_need_no_expansion():
    rule = _rule((4, 16, 8, 2), (4, 4, 2, 6), (4, 4), "VALID")
    assert letters(rule) == "a(d~)(f~)b,--bc->adfc"
    assert not rule.special


def test_a_stride_is_a_minor_factor_that_cannot_be_split():
    rule = _rule((4, 16, 8, 2), (3, 3, 2, 6), (2, 2))
    assert letters(rule) == "a(d~)(f~)b,--bc->adfc"
    assert rule.special == {3, 5}


def test_an_input_dilation_is_a_minor_factor_of_the_output():
    pads = ((1, 2), (1, 2))
    rule = _rule((4, 8, 8, 2), (3, 3, 2, 6), (1, 1), pads, lhs_dilation=(2, 2))
    assert letters(rule) == "adfb,--bc->a(d~)(f~)c"


def test_a_part_is_at_least_as_large_as_its_halo():
    rule = _rule((4, 32, 8, 2), (15, 1, 2, 6))
    assert rule.least == {3: 7}


def test_groups_are_the_major_factor_of_features():
    rule = _rule((4, 8, 8, 4), (3, 3, 2, 6), padding="VALID", feature_group_count=2)
    assert letters(rule) == "b--(ac),--c(ad)->b--(ad)"


def test_batch_groups_are_the_major_factor_of_the_batch():
    rule = _rule((4, 8, 8, 2), (3, 3, 2, 6), padding="VALID", batch_group_count=2)
    assert letters(rule) == "(ab)--c,--c(ad)->b--(ad)"


@pytest.mark.parametrize(
    ("name", "lhs", "rhs", "out", "features", "batches"),
    [
        ("feature_groups", (2, 8, 4, 4), (3, 3, 2, 4), (2, 8, 4, 4), 2, 1),
        ("depthwise", (2, 8, 4, 1), (3, 3, 1, 1), (2, 8, 4, 1), 1, 1),
        ("batch_groups", (4, 8, 4, 4), (3, 3, 4, 4), (2, 8, 4, 4), 1, 2),
    ],
)
def test_local_parameters_have_the_local_number_of_groups(
    name, lhs, rhs, out, features, batches
):
    fn, *arrays = _FORMS[name]
    op = last_op(fn, *arrays)
    params = rule_for(fn, *arrays).local_params(op, (lhs, rhs), (out,))
    assert params["feature_group_count"] == features
    assert params["batch_group_count"] == batches


def test_the_gradient_of_a_kernel_reduces_over_space():
    pads = ((1, 1), (1, 1))

    def fn(x, g):  # as `jax.grad` writes it
        return lax.conv_general_dilated(
            x, g, (1, 1), pads, dimension_numbers=("CHWN", "IHWO", "HWNC")
        )

    rule = rule_for(fn, f32(4, 16, 16, 2), f32(4, 16, 16, 6))
    assert rule.reductions == {1, 3, 4}
    assert rule.special == {3, 4}
    assert letters(rule) == "bdea,bdec->--ac"


def test_a_convolution_that_widens_integers_is_not_linear():
    def fn(x, w):
        return lax.conv_general_dilated(
            x, w, (1,), "SAME", preferred_element_type=np.int32
        )

    narrow = np.zeros((2, 4, 8), np.int8)
    rule = rule_for(fn, narrow, np.zeros((4, 4, 3), np.int8))
    assert rule.linear == ()


def test_a_convolution_without_elements_is_opaque():
    assert "without elements" in _rule((0, 8, 8, 2), (3, 3, 2, 6)).opaque
