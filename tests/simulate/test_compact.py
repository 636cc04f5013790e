"""What is stored without padding, where a program does not fit, and no more than that."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from meshwright.capture import capture
from meshwright.simulate.compact import compacted
from meshwright.simulate.layout import Layout
from meshwright.simulate.memory import memory_of

NARROW = jax.ShapeDtypeStruct((144, 144, 144), jnp.float32)
PLAIN, PADDED = 144 * 144 * 144 * 4, 144 * 144 * 256 * 4
COUNT = 6


def waiting(x):
    """Many values that wait for the end, where they are added up."""
    found = [lax.sort(x)]
    for _ in range(COUNT - 1):
        found.append(lax.sort(found[-1]))
    return sum(lax.sort(y, dimension=0) for y in found)


PROGRAM = capture(waiting, (NARROW,)).program


def within(limit):
    layout = Layout((8, 128))
    memory = memory_of(PROGRAM, layout=layout)
    fixed = {*PROGRAM.inputs, *PROGRAM.outputs}
    found = compacted(
        memory, layout, limit, fixed, lambda tried: memory_of(PROGRAM, layout=tried)
    )
    return memory, *found


def test_what_fits_stays_as_it_is():
    memory, found, layout = within(1e12)
    assert found is memory
    assert not layout.tight


def test_what_does_not_is_stored_without_padding():
    memory, found, layout = within(
        memory_of(PROGRAM, layout=Layout((8, 128))).peak_bytes - 1
    )
    assert found.peak_bytes < memory.peak_bytes
    assert layout.tight
    assert {layout.size(v) for v in layout.tight} == {PLAIN}
    assert found.beside_bytes == memory.beside_bytes + PADDED


def test_what_fits_neither_way_stays_as_it_is():
    memory, found, layout = within(PLAIN)
    assert found is memory
    assert not layout.tight


@given(st.floats(0.5, 1.1))
def test_so_little_is_as_fits(share):
    memory, *_ = within(1e12)
    limit = share * memory.peak_bytes
    _, found, layout = within(limit)
    assert bool(layout.tight) == (found.peak_bytes <= limit < memory.peak_bytes)
    assert layout.tight.isdisjoint((*PROGRAM.inputs, *PROGRAM.outputs))


@pytest.mark.parametrize("columns", [128, 248])
def test_padding_of_little_is_not_worth_a_copy(columns):
    value = jax.ShapeDtypeStruct((columns, columns), jnp.float32)
    program = capture(waiting, (value,)).program
    layout = Layout((8, 128))
    memory = memory_of(program, layout=layout)
    found, _ = compacted(
        memory,
        layout,
        0.9 * memory.peak_bytes,
        program.inputs,
        lambda tried: memory_of(program, layout=tried),
    )
    assert found is memory
