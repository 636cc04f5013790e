"""Work of the transposed program against that of the function, by our own counts."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.program.analysis.executions import op_executions
from meshwright.program.ir import Program
from meshwright.program.ops import work_of
from tests.compile.autodiff.test_linearize import FUNCTIONS

AT_MOST = 8
"""The constant: largest ratio of 100 generated programs was 5.1."""


def work(program: Program) -> int:
    """Operations, and elements read and written, so that moving elements counts, too."""
    total = 0
    for op, times in op_executions(program):
        if not op.bodies:
            counted = work_of(op)
            moved = sum(math.prod(a.shape) for a in (*op.operands, *op.results))
            total += times * (counted.flops + counted.transcendentals + moved)
    return total


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"a while loop"}))
def test_the_transposed_program_does_at_most_a_constant_times_the_work(name):
    fn, *args = FUNCTIONS[name]
    lin = mw.linearize(fn, *args)
    transposed = work(lin.transpose().plain)
    ends = sum(np.size(x) for x in jax.tree.leaves((args, jax.eval_shape(fn, *args))))
    assert transposed <= AT_MOST * (work(lin.captured.program) + ends)


def test_layers_of_products_cost_two_products_each_and_sums():
    def loss(weights, x):
        for w in weights:
            x = jnp.sin(x @ w)
        return jnp.sum(x)

    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    flops = [
        mw.linearize(loss, [shape] * n, shape).transpose().work.flops for n in (2, 6)
    ]
    products = 2 * 2 * 64**3
    assert 4 * products <= flops[1] - flops[0] <= 4 * (products + 4 * 64**2)
