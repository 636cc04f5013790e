from __future__ import annotations

import numpy as np
import pytest
from jax import lax

from meshwright.machine import Mesh
from meshwright.program.ops import Builder, OpCut, rule_of
from tests.program.ops.letters import f32, last_op, letters, rule_for

SCANS = [lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp]


@pytest.mark.parametrize("scan", SCANS)
def test_the_scanned_dim_is_special_and_others_are_not(scan):
    rule = rule_for(lambda x: scan(x, axis=1), f32(4, 8, 2))
    assert letters(rule) == "abc->abc"
    assert rule.special == {1}


def test_only_sums_are_linear():
    linear = [bool(rule_for(lambda x, s=s: s(x), f32(4)).linear) for s in SCANS]
    assert linear == [True, False, False, False, False]


def test_an_empty_dim_and_one_of_complex_numbers_are_no_factors():
    assert letters(rule_for(lambda x: lax.cumsum(x), f32(0, 4))) == "-a->-a"
    numbers = np.zeros((4, 8), np.complex64)
    assert letters(rule_for(lambda x: lax.cummax(x), numbers)) == "-a->-a"
    assert letters(rule_for(lambda x: lax.cumsum(x), numbers)) == "ab->ab"


def test_devices_exchange_totals_only():
    op = last_op(lambda x: lax.cumsum(x, 1), f32(4, 16))
    builder = Builder(Mesh({"x": 8}))
    part = builder.full((4, 2), 0, "float32")
    cut = OpCut(((), ("x",)), (1, 8))
    rule_of(op).expand(builder, op, (part,), cut)
    (gather,) = [o for o in builder.ops if o.kind == "all_gather"]
    assert gather.operands[0].shape == (4, 1)
