"""The grid dims along which Pallas kernels are split (test_numbers.py has the numbers)."""

import jax
import numpy as np
import pytest

import meshwright as mw
from meshwright.program.capture import capture
from meshwright.program.ops import rule_of
from tests.program.ops.catalogue import pallas


def rule_for(fn):
    """The rule of the kernel that an example calls."""
    example = next(e for e in pallas.EXAMPLES if e.fn is fn)
    ops = capture(fn, example.args).program.ops
    return rule_of(next(op for op in ops if op.kind == "pallas_call"))


@pytest.mark.parametrize(
    ("fn", "cut"),
    [
        (pallas.blocks, ["10", "01", "11"]),
        (pallas.summed, ["10", "00", "10"]),
        (pallas.placed, ["01", "01"]),
        (pallas.picked, ["0", "01", "01"]),
        (pallas.squeezed, ["1100", "110"]),
        (pallas.in_place, ["11", "11"]),
    ],
)
def test_grid_dims_with_independent_steps_are_factors(fn, cut):
    rule = rule_for(fn)
    values = (*rule.operands, *rule.results)
    assert ["".join("01"[bool(fs)] for fs in dims) for dims in values] == cut


def test_a_kernel_without_a_grid_is_opaque_and_says_why():
    told = "the steps of its grid depend on each other along every dim"
    assert rule_for(pallas.whole).opaque == told


def test_a_split_kernel_needs_no_collective():
    args = pallas.EXAMPLES[0].args
    tactics = [mw.shard({"x": 0}, "x"), mw.shard({"w": 1}, "y")]
    step = mw.partition(pallas.blocks, {"x": 4, "y": 2}, tactics)
    assert not step.plan(*args).collectives
    np.testing.assert_allclose(step(*args), jax.jit(pallas.blocks)(*args), rtol=1e-6)
