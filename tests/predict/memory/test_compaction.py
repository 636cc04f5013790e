"""What is stored without padding, where a program does not fit, and what never is."""

import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from meshwright.predict.compilers.xla.instruction_fusion import fuse
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.predict.memory.buffer_assignment import memory_of
from meshwright.predict.memory.compaction import compacted
from meshwright.program.capture import capture

NARROW = jax.ShapeDtypeStruct((144, 144, 144), jnp.float32)
PLAIN, PADDED = 144 * 144 * 144 * 4, 144 * 144 * 256 * 4
COUNT = 6


def waiting(x, count=COUNT):
    """Many values that wait for the end, where they are added up one by one."""
    found = [lax.sort(x)]
    for _ in range(count - 1):
        found.append(lax.sort(found[-1]))
    total = jnp.zeros(())
    for y in found[::-1]:
        total += lax.sort(y, dimension=0).sum()
    return total


def together(x):
    """As many that one unit reads at once."""
    found = [lax.sort(x)]
    for _ in range(COUNT - 1):
        found.append(lax.sort(found[-1]))
    return lax.sort(jnp.tanh(math.prod(found))).sum()


def program_of(fn, shape=NARROW):
    return capture(fn, (shape,)).program


PROGRAM = program_of(waiting)


def within(limit, program=PROGRAM):
    """Memory as it was, as it is within a limit in bytes, and the layout there."""
    layout, units = Layout((8, 128)), fuse(program)

    def measure(tried):
        return memory_of(program, layout=tried, units=units)

    memory, fixed = measure(layout), {*program.inputs, *program.outputs}
    return memory, *compacted(memory, layout, limit, units, fixed, measure)


def peak_of(program):
    return memory_of(program, layout=Layout((8, 128))).peak_bytes


def test_what_fits_stays_as_it_is():
    memory, found, layout = within(1e12)
    assert found is memory
    assert not layout.tight


def test_what_does_not_is_stored_without_padding():
    memory, found, layout = within(peak_of(PROGRAM) - 1)
    assert found.peak_bytes < memory.peak_bytes
    assert {layout.size(v) for v in layout.tight} == {PLAIN}
    padding = PADDED - PLAIN
    assert found.extra_bytes - memory.extra_bytes in (padding, 2 * padding)


def test_what_fits_neither_way_stays_as_it_is():
    memory, found, layout = within(PLAIN)
    assert found is memory
    assert not layout.tight


def test_what_one_unit_reads_at_once_has_its_padding_then():
    program = program_of(together)
    memory, found, layout = within(peak_of(program) - 1, program)
    assert found is memory
    assert not layout.tight


@given(st.floats(0.5, 1.1))
def test_what_is_smaller_fits(share):
    limit = share * peak_of(PROGRAM)
    memory, found, layout = within(limit)
    assert bool(layout.tight) == (found.peak_bytes <= limit < memory.peak_bytes)
    assert layout.tight.isdisjoint((*PROGRAM.inputs, *PROGRAM.outputs))
    for unit in fuse(PROGRAM):
        touched = {*unit.reads, *unit.writes}
        padding = sum(PADDED - PLAIN for v in touched & layout.tight)
        assert padding <= found.extra_bytes


@pytest.mark.parametrize(("columns", "is_worth_it"), [(248, False), (192, True)])
def test_padding_of_little_is_not_worth_a_copy(columns, is_worth_it):
    shape = jax.ShapeDtypeStruct((columns, columns), jnp.float32)
    program = program_of(lambda x: waiting(x, 60), shape)
    memory, found, _ = within(peak_of(program) - 1, program)
    assert (found is not memory) == is_worth_it
