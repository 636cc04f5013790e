"""Scans written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.program.capture import capture
from meshwright.program.rewrite.loops.unroll import unroll_scans
from meshwright.run.local.execute import run_program

W = jax.random.normal(jax.random.key(0), (3, 4, 4))
X = jax.random.normal(jax.random.key(1), (2, 4))


def layers(w, x, reverse=False):
    def one(h, weights):
        return jnp.tanh(h @ weights + x), h

    return jax.lax.scan(one, x, w, reverse=reverse)


def no_identity(iteration, carry):
    """Nothing is written between the iterations of an unrolled loop."""


@pytest.mark.parametrize(
    "fn",
    [
        layers,
        lambda w, x: layers(w, x, reverse=True),
        jax.grad(lambda w, x: layers(w, x)[0].sum()),
        lambda w, x: jax.lax.scan(lambda h, i: (h + i, None), x, jnp.arange(3.0)),
    ],
)
def test_an_unrolled_scan_computes_the_same(fn):
    program = capture(fn, (W, X)).program
    scans = [op for op in program.ops if op.kind == "scan"]
    unrolled = unroll_scans(program, dict.fromkeys(scans, no_identity))
    assert not any(op.kind == "scan" for op in unrolled.ops)
    wanted = jax.tree.leaves(fn(W, X))
    for a, b in zip(run_program(unrolled, [W, X]), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_residuals_of_unrolled_loops_are_read_without_a_stack():
    program = capture(jax.grad(lambda w: layers(w, X)[0].sum()), (W,)).program
    scans = [op for op in program.ops if op.kind == "scan"]
    assert len(scans) == 2
    unrolled = unroll_scans(program, dict.fromkeys(scans, no_identity))
    stacks = [op for op in unrolled.ops if op.kind == "concatenate"]
    assert [op.results[0].shape for op in stacks] == [(3, 4, 4)]  # the gradient


def test_a_program_without_chosen_scans_is_itself():
    program = capture(layers, (W, X)).program
    assert unroll_scans(program, {}) is program
