"""cuDNN's attention as an op: its factors, and the work that a mask leaves."""

import jax
import jax.numpy as jnp
import pytest

from meshwright.program.capture import capture
from meshwright.program.ops import rule_of, work_of
from meshwright.program.ops.arithmetic.attention import BACKWARD, FORWARD


def shape(*dims):
    return jax.ShapeDtypeStruct(dims, jnp.bfloat16)


def attention_ops(heads=8, key_heads=4, bias=None, length=512, **options):
    """The forward and the backward op of attention over 4 sequences."""

    def total(q, k, v, *bias):
        out = jax.nn.dot_product_attention(
            q, k, v, *bias, implementation="cudnn", **options
        )
        return out.astype(jnp.float32).sum()

    seen = shape(4, length, key_heads, 64)
    args = (shape(4, length, heads, 64), seen, seen, *([] if bias is None else [bias]))
    ops = capture(jax.grad(total, tuple(range(len(args)))), args).program.ops
    return [next(op for op in ops if op.kind == kind) for kind in (FORWARD, BACKWARD)]


def letters(dims):
    return ["".join("bkg"[f] for f in factors) or "-" for factors in dims]


def test_key_heads_are_cut_with_their_query_heads_and_sequences_stay_whole():
    for op in attention_ops():
        rule = rule_of(op)
        rule.check(op)
        assert rule.sizes == (4, 4, 2)
        assert letters(rule.operands[0]) == ["b", "-", "kg", "-"]
        assert letters(rule.operands[1]) == ["b", "-", "k", "-"]
        assert letters(rule.results[0]) == ["b", "-", "kg", "-"]
    forward, backward = attention_ops()
    assert letters(rule_of(forward).results[1]) == ["b", "kg", "-"]
    # Query heads of one key head give addends of its gradient.
    assert rule_of(backward).special == {2}
    assert not rule_of(attention_ops(key_heads=8)[1]).special


@pytest.mark.parametrize(
    ("bias", "summed"),
    [((4, 8), set()), ((4, 1), {1}), ((1, 8), {0}), ((1, 1), {0, 1})],
)
def test_the_gradient_of_a_bias_is_summed_over_what_broadcasts_it(bias, summed):
    op = attention_ops(key_heads=8, bias=shape(*bias, 512, 512))[1]
    assert rule_of(op).special == summed


def test_masked_blocks_are_no_work_and_the_backward_pass_has_five_products():
    product = 2 * 4 * 8 * 512 * 512 * 64
    forward, backward = attention_ops()
    assert work_of(forward).flops == 2 * product
    assert work_of(forward).transcendentals == 4 * 8 * 512 * 512
    assert work_of(backward).flops == 5 * product
    # 10 of 16 blocks of 128 x 128 are not above the diagonal, 7 in a window of 128.
    assert work_of(attention_ops(is_causal=True)[0]).flops == 2 * product * 10 // 16
    narrow = attention_ops(is_causal=True, local_window_size=(127, 0))
    assert work_of(narrow[0]).flops == 2 * product * 7 // 16
