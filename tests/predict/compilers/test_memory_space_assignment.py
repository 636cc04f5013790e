"""Memory space assignment: short live ranges first, never more than fits."""

import jax
import jax.numpy as jnp
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.predict.compilers.model.compilation import compile_program
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.predict.compilers.xla.memory_space_assignment import on_chip_candidates
from meshwright.predict.memory.buffer_assignment import memory_of
from meshwright.program.capture import capture
from tests.predict.compilers.compiled import fusions_of

SQUARE = jax.ShapeDtypeStruct((256, 256), jnp.float32)
BYTES = 4 * 256 * 256


def chain(x, w):
    for _ in range(4):
        x = jnp.tanh(x @ w) @ w
    return x


def kept(fn, *args, room):
    program = capture(fn, args).program
    fusions = fusions_of(program)
    return (
        program,
        fusions,
        on_chip_candidates(fusions, program.outputs, Layouts()).fitting(room),
    )


def test_values_read_at_once_stay_in_scratch_memory():
    program, fusions, found = kept(chain, SQUARE, SQUARE, room=100 * BYTES)
    made = {v for fusion in fusions for v in fusion.writes}
    assert found == made - set(program.outputs)


def test_nothing_stays_in_scratch_memory_that_is_too_small():
    assert not kept(chain, SQUARE, SQUARE, room=BYTES - 1)[2]


def test_a_value_that_a_loop_reads_is_in_main_memory():
    def fn(x, w):
        y = jnp.tanh(x @ w)
        return jax.lax.scan(lambda c, _: (c @ y, None), x, length=3)[0]

    assert not kept(fn, SQUARE, SQUARE, room=100 * BYTES)[2]


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 10))
def test_values_in_scratch_memory_fit_at_all_times(room):
    def fn(x, w):
        a, b = jnp.tanh(x @ w), jnp.sin(x @ w)
        c = a @ b
        return a @ c + b @ (c @ w)

    _, fusions, found = kept(fn, SQUARE, SQUARE, room=room * BYTES)
    made = {v: i for i, u in enumerate(fusions) for v in u.writes}
    last = {v: i for i, u in enumerate(fusions) for v in u.reads}
    for index in range(len(fusions)):
        alive = [v for v in found if made[v] <= index <= last[v]]
        assert BYTES * len(alive) <= room * BYTES


def test_values_in_scratch_memory_take_no_main_memory():
    program = capture(chain, (SQUARE, SQUARE)).program
    found = compile_program(program, TPU, (1, 1))
    outside = memory_of(found).peak_bytes
    layouts = found.layouts_on(100 * BYTES)
    assert memory_of(found, layouts=layouts).peak_bytes == 3 * BYTES
    assert outside > 3 * BYTES


def test_an_output_that_is_a_bitcast_is_in_main_memory():
    def fn(x, w):
        y = x @ w
        return y.reshape(128, 512), jnp.sin(y)

    found = compile_program(capture(fn, (SQUARE, SQUARE)).program, TPU, (1, 1))
    made = {v for fusion in found.fusions for v in fusion.writes}
    layouts = found.layouts_on(100 * BYTES)
    assert [layouts.size(v) for v in made] == [BYTES, BYTES]
    assert not found.kernels.on_chip.fitting(100 * BYTES)
    memory = memory_of(found, layouts=layouts)
    assert memory.peak_bytes == 4 * BYTES


def test_a_bitcast_that_a_loop_body_returns_is_in_main_memory():
    def fn(x, w):
        def body(c, _):
            y = c @ w
            return y.reshape(c.shape[::-1]).T, jnp.sin(y).sum()

        return jax.lax.scan(body, x, length=3)

    found = compile_program(capture(fn, (SQUARE, SQUARE)).program, TPU, (1, 1))
    ends = {
        v
        for fusion in found.fusions
        for body in fusion.root.bodies
        for v in body.outputs
    }
    kept = {v for each in found.on_chip for v in each.fitting(100 * BYTES)}
    assert kept.isdisjoint(ends)
