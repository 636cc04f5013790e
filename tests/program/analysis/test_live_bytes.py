"""Peaks of live bytes, against counts by hand and against enumeration."""

import jax
import jax.numpy as jnp
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from meshwright.program.analysis.live_ranges import peak_bytes
from meshwright.program.capture import capture

KIB = jax.ShapeDtypeStruct((256,), jnp.float32)


def peak(fn, *args, reused=()):
    return peak_bytes(capture(fn, args).program, reused)


def test_an_argument_and_a_result_are_live_together():
    assert peak(jnp.sin, KIB) == 2048


def test_a_chain_needs_two_values_and_its_kept_argument():
    assert peak(lambda x: jnp.sin(jnp.cos(jnp.tan(x))), KIB) == 3 * 1024


def test_a_donated_argument_dies_at_its_last_reader():
    chain = lambda x: jnp.sin(jnp.cos(jnp.tan(x)))  # noqa: E731
    assert peak(chain, KIB, reused=(0,)) == 2 * 1024


def test_a_value_is_live_until_its_last_reader():
    def fn(x):
        early = jnp.tan(x)
        return jnp.sin(jnp.cos(early)) + early

    assert peak(fn, KIB, reused=(0,)) == 3 * 1024


def test_a_loop_needs_its_body_once():
    def loop(x):
        return lax.scan(lambda c, _: (jnp.sin(jnp.cos(c)), None), x, length=100)[0]

    assert peak(loop, KIB) == peak(
        lambda x: lax.scan(lambda c, _: (jnp.sin(jnp.cos(c)), None), x, length=2)[0],
        KIB,
    )


def test_stacked_results_of_a_loop_are_live_at_its_end():
    def loop(x):
        return lax.scan(lambda c, _: (c, jnp.sin(c)), x, length=10)[1]

    assert peak(loop, KIB) >= 11 * 1024


def brute_force(program):
    """The peak from the set of live values at each op; inputs and outputs stay."""
    kept = {*program.inputs, *(v for v in program.outputs)}
    peaks = []
    for index in range(len(program.ops)):
        made = {r for op in program.ops[: index + 1] for r in op.results}
        needed = {v for op in program.ops[index:] for v in op.operands}
        alive = (made & needed) | set(program.ops[index].results)
        alive |= {v for v in kept if v in made or v in program.inputs}
        peaks.append(sum(4 * v.shape[0] for v in alive))
    return max(peaks)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_the_peak_equals_enumeration(pairs):
    def fn(x):
        made = [x]
        for a, b in pairs:
            made.append(made[a % len(made)] * made[b % len(made)])
        return made[-1]

    program = capture(fn, (KIB,)).program
    assert peak_bytes(program) == brute_force(program)
