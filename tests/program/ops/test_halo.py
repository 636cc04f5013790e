from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.program.ops.arithmetic.halo import (
    Halo,
    Sliding,
    output_halo,
    window_halo,
)


def dilated(x: np.ndarray, step: int) -> np.ndarray:
    spread = np.zeros((len(x) - 1) * step + 1, x.dtype)
    spread[::step] = x
    return spread


def correlate(x, window, dim: Sliding, padding) -> np.ndarray:
    """A convolution of one dim, as JAX defines it, by enumeration."""
    low, high = padding
    x = dilated(x, dim.base)
    x = np.concatenate([np.zeros(max(low, 0)), x, np.zeros(max(high, 0))])
    x = x[max(-low, 0) : len(x) - max(-high, 0)]
    window = dilated(window, dim.dilation)
    starts = range(0, len(x) - len(window) + 1, dim.stride)
    return np.array([x[s : s + len(window)] @ window for s in starts])


def with_halo(x: np.ndarray, parts: int, halo: Halo) -> list[np.ndarray]:
    size = len(x) // parts
    padded = np.concatenate([np.zeros(halo.left), x, np.zeros(halo.right)])
    return [padded[i * size : (i + 1) * size + halo.moved] for i in range(parts)]


numbers = st.integers(1, 4)


@st.composite
def slidings(draw, lined_up_with: str) -> Sliding:
    base, stride, dilation, window = (draw(numbers) for _ in range(4))
    step = stride if lined_up_with == "out" else dilation
    size = draw(st.sampled_from([4, 8, 12, 24])) * step
    low = draw(st.integers(-3, 5))
    if lined_up_with == "window":
        assume(size * base % dilation == 0)
        window = size * base // dilation
        out = draw(numbers)
    else:
        assume(size * base % stride == 0)
        out = size * base // stride
    reach = (window - 1) * dilation + 1
    high = (out - 1) * stride + reach - low - (size - 1) * base - 1
    assume(low + high + (size - 1) * base + 1 >= 0)
    assume(max(-low, 0) + max(-high, 0) <= (size - 1) * base + 1)
    return Sliding(size, window, out, stride, (low, high), base, dilation)


@given(slidings("out"))
def test_an_output_part_equals_its_input_part_with_its_halo(dim):
    halo = output_halo(dim)
    assert halo is not None
    x, window = np.arange(1.0, dim.size + 1), np.arange(1.0, dim.window + 1)
    whole = correlate(x, window, dim, dim.padding)
    parts = 2
    assume(halo.factor % parts == 0)
    pieces = [
        correlate(part, window, dim, halo.padding) for part in with_halo(x, parts, halo)
    ]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


@given(slidings("window"))
def test_outputs_of_window_parts_add_up(dim):
    halo = window_halo(dim)
    assert halo is not None
    x, window = np.arange(1.0, dim.size + 1), np.arange(1.0, dim.window + 1)
    whole = correlate(x, window, dim, dim.padding)
    parts = 2
    assume(halo.factor % parts == 0)
    pieces = [
        correlate(part, piece, dim, halo.padding)
        for part, piece in zip(
            with_halo(x, parts, halo), np.split(window, parts), strict=True
        )
    ]
    np.testing.assert_array_equal(sum(pieces), whole)


@pytest.mark.parametrize(
    "dim",
    [
        Sliding(16, 3, 14),  # valid
        Sliding(15, 3, 8, stride=2, padding=(1, 1)),
        Sliding(0, 1, 0),
    ],
)
def test_parts_that_do_not_correspond_have_no_halo(dim):
    assert output_halo(dim) is None


def test_adjacent_windows_need_no_exchange():
    halo = output_halo(Sliding(16, 4, 4, stride=4))
    assert halo is not None
    assert (halo.is_plain, halo.factor, halo.minor, halo.least) == (True, 4, 4, 1)


def test_one_neighbour_has_the_whole_halo():
    halo = output_halo(Sliding(16, 7, 8, stride=2, padding=(3, 3)))
    assert halo is not None
    assert (halo.left, halo.right, halo.least) == (3, 2, 2)
