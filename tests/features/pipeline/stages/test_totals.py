"""Reductions over microbatches: their neutral elements and their ops."""

import math

import pytest

from meshwright.errors import StageError
from meshwright.features.pipeline.stages.totals import Total, added, first_total
from meshwright.program.ir import Value


def total(monoid, dtype):
    return Total(Value((), dtype), Value((), dtype), monoid)


@pytest.mark.parametrize(
    ("monoid", "dtype", "neutral", "kind"),
    [
        ("sum", "float32", 0, "add"),
        ("sum", "bool", False, "or"),
        ("prod", "complex64", 1, "mul"),
        ("prod", "bool", True, "and"),
        ("max", "bfloat16", -math.inf, "max"),
        ("min", "uint8", 255, "min"),
    ],
)
def test_a_reduction_starts_from_its_neutral_element(monoid, dtype, neutral, kind):
    (literal,) = first_total(total(monoid, dtype)).operands
    assert literal.value == neutral
    assert added(total(monoid, dtype), Value((), dtype)).kind == kind


@pytest.mark.parametrize("dtype", ["complex64", "float8_e4m3fn"])
@pytest.mark.parametrize("monoid", ["max", "min"])
def test_a_reduction_without_a_neutral_element_is_refused(monoid, dtype):
    with pytest.raises(StageError, match=f"{dtype} has no neutral element of {monoid}"):
        first_total(total(monoid, dtype))
