from __future__ import annotations

import numpy as np
import pytest
from jax import lax

from tests.program.ops.letters import letters, rule_for


@pytest.mark.parametrize(
    ("kind", "dtype", "lengths", "expected"),
    [
        ("FFT", np.complex64, (8,), "ab-->ab-"),
        ("IFFT", np.complex64, (2, 8), "a--->a--"),
        ("RFFT", np.float32, (8,), "ab-->ab-"),
        ("IRFFT", np.complex64, (14,), "ab-->ab-"),
        ("FFT", np.complex64, (4, 2, 8), "---->---"),
    ],
)
def test_transformed_dims_are_no_factors(kind, dtype, lengths, expected):
    rule = rule_for(lambda x: lax.fft(x, kind, lengths), np.zeros((4, 2, 8), dtype))
    assert letters(rule) == expected
    assert rule.linear == (frozenset({0}),)
