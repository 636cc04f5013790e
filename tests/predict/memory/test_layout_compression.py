"""Values that are stored without padding once a program does not fit its device."""

import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from meshwright.predict.memory.buffer_assignment import memory_of
from meshwright.predict.memory.layout_compression import compressed
from meshwright.program.capture import capture
from tests.predict.compilers.compiled import fused, fused_memory, fusions_of

NARROW = jax.ShapeDtypeStruct((144, 144, 144), jnp.float32)
PLAIN, PADDED = 144 * 144 * 144 * 4, 144 * 144 * 256 * 4
COUNT = 6


def waiting(x, count=COUNT):
    """Sum of values that are all live until the end, where they are added one by one."""
    found = [lax.sort(x)]
    for _ in range(count - 1):
        found.append(lax.sort(found[-1]))
    total = jnp.zeros(())
    for y in found[::-1]:
        total += lax.sort(y, dimension=0).sum()
    return total


def together(x):
    """Sum of as many values, which one fusion reads at once."""
    found = [lax.sort(x)]
    for _ in range(COUNT - 1):
        found.append(lax.sort(found[-1]))
    return lax.sort(jnp.tanh(math.prod(found))).sum()


def program_of(fn, shape=NARROW):
    return capture(fn, (shape,)).program


PROGRAM = program_of(waiting)


def within(limit, program=PROGRAM):
    """Memory before and after compression to a limit in bytes, and the layouts after."""
    found = fused(program, tile=(8, 128))

    def measure(tried):
        return memory_of(found, layouts=tried)

    memory = measure(found.layouts)
    return memory, *compressed(memory, found.layouts, limit, found, measure)


def peak_of(program):
    return fused_memory(program, tile=(8, 128)).peak_bytes


def test_a_program_that_fits_is_not_compressed():
    memory, found, layout = within(1e12)
    assert found is memory
    assert not layout.unpadded


def test_a_program_that_does_not_fit_is_stored_without_padding():
    memory, found, layout = within(peak_of(PROGRAM) - 1)
    assert found.peak_bytes < memory.peak_bytes
    assert {layout.size(v) for v in layout.unpadded} == {PLAIN}
    padding = PADDED - PLAIN
    assert found.extra_bytes - memory.extra_bytes in (padding, 2 * padding)


def test_a_program_that_fits_neither_way_is_not_compressed():
    memory, found, layout = within(PLAIN)
    assert found is memory
    assert not layout.unpadded


def test_values_that_one_fusion_reads_together_are_not_compressed():
    program = program_of(together)
    memory, found, layout = within(peak_of(program) - 1, program)
    assert found is memory
    assert not layout.unpadded


@given(st.floats(0.5, 1.1))
def test_a_compressed_program_fits_the_limit(share):
    limit = share * peak_of(PROGRAM)
    memory, found, layout = within(limit)
    assert bool(layout.unpadded) == (found.peak_bytes <= limit < memory.peak_bytes)
    assert layout.unpadded.isdisjoint((*PROGRAM.inputs, *PROGRAM.outputs))
    for fusion in fusions_of(PROGRAM):
        touched = {*fusion.reads, *fusion.writes}
        padding = sum(PADDED - PLAIN for v in touched & layout.unpadded)
        assert padding <= found.extra_bytes


@pytest.mark.parametrize(("columns", "is_worth_it"), [(248, False), (192, True)])
def test_little_padding_is_not_worth_a_copy(columns, is_worth_it):
    shape = jax.ShapeDtypeStruct((columns, columns), jnp.float32)
    program = program_of(lambda x: waiting(x, 60), shape)
    memory, found, _ = within(peak_of(program) - 1, program)
    assert (found is not memory) == is_worth_it
