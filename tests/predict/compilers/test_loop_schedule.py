"""Order of fusions in a loop iteration, and inlined remat calls."""

import jax
import jax.numpy as jnp
from jax import lax

from meshwright.predict.compilers.model.compilation import Origins
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.compilers.tpu.loop_schedule import iteration_order
from meshwright.predict.compilers.xla.call_inliner import Inliner
from meshwright.program.capture import capture
from meshwright.program.ir import num_bytes
from tests.predict.compilers.compiled import fused_memory, fusions_of

X = jax.ShapeDtypeStruct((64, 128), jnp.float32)
XS = jax.ShapeDtypeStruct((4, 64, 128), jnp.float32)
W = jax.ShapeDtypeStruct((128, 128), jnp.float32)


def loop_of(fn, *args):
    """The loop of a program, and its body's fusions in the order of an iteration."""
    (fusion,) = (
        u for u in fusions_of(capture(fn, args).program) if u.kind is FusionKind.REGION
    )
    return fusion, iteration_order(fusion.root, 0, fusion.bodies[0])


def backward(c, xs, w):
    """A loop that carries two products in a row, and stacks one per iteration."""

    def body(c, x):
        first = jnp.tanh(c @ w)
        for_weights = x.T @ first
        return jnp.tanh(first @ w), for_weights

    return lax.scan(body, c, xs)


def test_stacked_products_come_after_those_that_the_next_iteration_needs():
    loop, fusions = loop_of(backward, X, XS, W)
    before = [u.writes[0].shape for u in loop.bodies[0]]
    assert before == [X.shape, W.shape, X.shape]
    assert [u.writes[0].shape for u in fusions] == [X.shape, X.shape, W.shape]


def test_fusions_moved_to_the_end_keep_their_operands_alive():
    """Live besides the slices: the carried value, the one before, and the next."""
    program = capture(backward, (X, XS, W)).program
    inputs = sum(map(num_bytes, program.inputs))
    stacked = num_bytes(program.outputs[1])
    peak = fused_memory(program).peak_bytes
    assert peak == inputs + stacked + 3 * num_bytes(program.inputs[0])


def test_branches_keep_the_order_of_the_program():
    def fn(x, w):
        return lax.cond(x[0, 0] > 0, lambda: (x @ w, w @ w), lambda: (x, w @ w))

    (fusion,) = (
        u
        for u in fusions_of(capture(fn, (X, W)).program)
        if u.kind is FusionKind.REGION
    )
    assert iteration_order(fusion.root, 0, fusion.bodies[0]) is fusion.bodies[0]


def test_concatenated_products_run_in_the_order_of_the_whole():
    def fn(c, w):
        def body(c, _):
            first = jnp.sin(c @ w)
            last = jnp.sin(first @ w)
            later, earlier = first.T @ first, last.T @ last
            return last, jnp.stack([earlier, later])

        return lax.scan(body, c, length=4)

    _, fusions = loop_of(fn, X, W)
    joined = [u.reads for u in fusions if u.writes[0].shape == W.shape]
    made = [u.writes[0] for u in fusions if u.writes[0].shape == X.shape]
    assert joined == [(made[1],), (made[0],)]


# -- remat -----------------------------------------------------------------------------


def test_remat_calls_are_inlined():
    again = jax.checkpoint(lambda x, w: jnp.sin(x @ w) @ w)
    original = capture(jax.grad(lambda x, w: again(x, w).sum()), (X, W)).program
    origins = Origins()
    program = Inliner().program(original, origins)
    assert not any(op.bodies for op in program.ops)
    assert not origins


def test_operands_of_a_barrier_are_in_memory():
    """The recomputed ops read the operand of the barrier, and do not fuse it."""
    again = jax.checkpoint(lambda y, w: jnp.sin(y) @ w)

    def fn(x, w):
        return jax.vjp(again, x * 2, w)[1](x)

    program = Inliner().program(capture(fn, (X, W)).program, Origins())
    written = [u.root.kind for u in fusions_of(program) if u.writes]
    assert "mul" in written
