"""What is alive while a device program runs, and how it fits into a heap."""

import itertools

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from meshwright.capture import capture
from meshwright.ir import Value, itemsize_bytes, num_bytes
from meshwright.simulate.fusion import fuse
from meshwright.simulate.inline import inline
from meshwright.simulate.layout import Layout
from meshwright.simulate.memory import memory_of
from meshwright.simulate.narrow import narrow_values
from meshwright.simulate.pack import Block, packed_bytes, packed_in_time
from meshwright.simulate.rules import CPU, GPU, PLAIN, TPU
from tests.simulate.test_fusion import OPS, build

X = jax.ShapeDtypeStruct((64, 128), jnp.float32)
XS = jax.ShapeDtypeStruct((4, 64, 128), jnp.float32)
W = jax.ShapeDtypeStruct((128, 128), jnp.float32)
X_BYTES, W_BYTES = 64 * 128 * 4, 128 * 128 * 4


def program_of(fn, *args):
    return capture(fn, args).program


# -- lives -----------------------------------------------------------------------------


@given(OPS)
def test_memory_lies_between_the_inputs_and_every_value_written(ops):
    program = build(ops)
    memory = memory_of(program)
    everything = sum(num_bytes(r) for op in program.ops for r in op.results)
    inputs = sum(map(num_bytes, program.inputs))
    assert inputs <= memory.peak_bytes <= inputs + everything
    assert sum(map(num_bytes, memory.alive)) == max(memory.curve)


def test_a_product_and_what_two_make_of_it_stand_side_by_side():
    def fn(x, w):
        y = x @ w
        return jnp.tanh(y), jnp.sin(y)

    memory = memory_of(program_of(fn, X, W))
    assert memory.peak_bytes == W_BYTES + 4 * X_BYTES


def test_what_one_makes_of_a_product_is_its_own_end():
    memory = memory_of(program_of(lambda x, w: jnp.tanh(x @ w), X, W))
    assert memory.peak_bytes == W_BYTES + 2 * X_BYTES


def test_what_is_handed_out_under_another_name_stays_to_the_end():
    def fn(x):
        return jnp.sin(x).reshape(128, 64), lax.sort(lax.sort(x), dimension=0)

    assert memory_of(program_of(fn, X)).curve[-1] == 4 * X_BYTES


def test_what_a_loop_carries_has_one_place():
    def fn(x, d, w):
        def body(c, d):
            return c + jnp.tanh(d @ w), None

        return lax.scan(body, lax.sort(x), d)[0]

    peak = memory_of(program_of(fn, X, XS, W)).peak_bytes
    assert peak == W_BYTES + 6 * X_BYTES


def test_what_a_product_reads_is_not_overwritten_as_it_ends():
    def fn(x, w):
        def body(c, _):
            return c + jnp.tanh(c @ w), None

        return lax.scan(body, lax.sort(x), length=4)[0]

    assert memory_of(program_of(fn, X, W)).peak_bytes == W_BYTES + 3 * X_BYTES


def test_what_a_loop_carries_has_memory_if_nobody_reads_its_end():
    def fn(x, w, d):
        def body(c, d):
            c = c + jnp.tanh(d @ w)
            return c, c.sum()

        return lax.scan(body, x, d)[1]

    def from_zeros(w, d):
        return fn(jnp.zeros((64, 128)), w, d)

    sums = 4 * 4
    peak = memory_of(program_of(fn, X, W, XS)).peak_bytes
    assert 6 * X_BYTES + W_BYTES <= peak <= 6 * X_BYTES + W_BYTES + 2 * sums
    peak = memory_of(program_of(from_zeros, W, XS)).peak_bytes
    assert 5 * X_BYTES + W_BYTES <= peak <= 5 * X_BYTES + W_BYTES + 2 * sums


def test_what_a_loop_hands_on_unchanged_has_no_memory_of_its_own():
    def fn(x):
        return lax.scan(lambda c, _: (c, c.sum()), x, length=4)[1]

    assert memory_of(program_of(fn, X)).peak_bytes < 1.1 * X_BYTES


def test_what_a_loop_stacks_and_carries_is_written_to_the_stack():
    def fn(x, w):
        def body(c, _):
            c = jnp.tanh(c @ w)
            return c, c

        return lax.scan(body, x, length=4)[1]

    peak = memory_of(program_of(fn, X, W)).peak_bytes
    assert peak == W_BYTES + (1 + 4 + 1) * X_BYTES


def test_what_a_loop_carries_and_stacks_stands_beside_the_stack_and_its_next_value():
    def fn(x, w):
        return lax.scan(lambda c, _: (jnp.tanh(c @ w), c), x, length=4)[1]

    peak = memory_of(program_of(fn, X, W)).peak_bytes
    assert peak == W_BYTES + (1 + 4 + 2) * X_BYTES


def test_what_a_loop_reads_in_every_turn_is_not_what_it_carries():
    def fn(x):
        x = lax.sort(x)
        return lax.scan(lambda c, _: (jnp.tanh(c) + x, None), x, length=4)[0]

    assert memory_of(program_of(fn, X)).peak_bytes == 3 * X_BYTES


def test_what_starts_two_carries_is_copied_once():
    def fn(x):
        x = lax.sort(x)
        return lax.scan(lambda c, _: ((c[0] + 1, c[1] * 2), None), (x, x), length=4)[0]

    assert memory_of(program_of(fn, X)).peak_bytes == 3 * X_BYTES


def test_what_is_alive_adds_up_to_the_peak_in_loops_too():
    def fn(x, w):
        def body(c, _):
            return lax.sort(c @ w), jnp.sin(c).sum()

        return lax.scan(body, lax.sort(x), length=4)

    layout = Layout()
    memory = memory_of(program_of(fn, X, W), layout=layout)
    assert sum(map(layout.size, memory.alive)) == max(memory.curve)


def test_what_a_loop_carries_is_copied_if_it_is_read_after_its_next_value_is_made():
    def fn(x, w):
        def body(c, _):
            return lax.sort(c @ w), jnp.sin(c).sum()

        return lax.scan(body, lax.sort(x), length=4)

    assert memory_of(program_of(fn, X, W)).peak_bytes > W_BYTES + 3 * X_BYTES


def test_a_scatter_stands_beside_what_it_starts_from():
    index = jax.ShapeDtypeStruct((4,), jnp.int32)

    def fn(i):
        return jnp.zeros((64, 128)).at[i].add(1.0)

    peak = memory_of(program_of(fn, index)).peak_bytes
    assert 2 * X_BYTES <= peak < 2.2 * X_BYTES


def test_what_a_loop_stacks_is_written_where_it_stays():
    def fn(x):
        return lax.scan(lambda c, _: (c, jnp.sort(c, axis=0)), x, length=8)[1]

    assert memory_of(program_of(fn, X)).peak_bytes < 12 * X_BYTES


def test_a_loop_reads_weights_that_are_rounded_once_before_it():
    weights = jax.ShapeDtypeStruct((8, 128, 128), jnp.float32)

    def fn(x, weights):
        return lax.scan(lambda c, w: (c @ w, None), x, weights)[0]

    program = program_of(fn, X, weights)
    layout = Layout((1, 1), narrow_values(program))
    cast, loop = fuse(program, layout)
    (rounded,) = cast.writes
    assert (rounded.dtype, rounded.shape) == ("bfloat16", (8, 128, 128))
    assert rounded in loop.reads
    assert program.inputs[1] not in loop.reads


def test_images_lie_with_their_batch_and_features_innermost():
    def fn(x, w):
        return lax.conv(x, w, (1, 1), "SAME")

    image = jax.ShapeDtypeStruct((16, 24, 40, 40), jnp.float32)
    kernel = jax.ShapeDtypeStruct((24, 24, 3, 3), jnp.float32)
    program = program_of(fn, image, kernel)
    layout = Layout((8, 128))
    layout.note_images(program)
    (made,) = program.outputs
    assert layout.size(made) == 16 * 128 * 40 * 40 * 4
    assert layout.size(program.inputs[0]) < layout.size(made)


def test_a_step_in_place_of_its_argument_needs_no_more_memory():
    program = program_of(lambda x: x + 1, X)
    assert memory_of(program).peak_bytes == 2 * X_BYTES
    assert memory_of(program, {0: 0}).peak_bytes == X_BYTES


def test_an_argument_that_is_not_overwritten_in_step_is_copied_first():
    """The result is written into its memory while others may still read it."""

    def fn(x, w):
        return jnp.sort(x * 2, axis=0), x @ w

    kept, given_up = (
        memory_of(program_of(fn, X, W), aliases).peak_bytes for aliases in ({}, {0: 0})
    )
    assert given_up == kept


def test_a_loop_needs_its_body_beside_what_is_alive():
    def fn(x, w):
        return lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, length=8)[0]

    memory = memory_of(program_of(fn, X, W))
    assert W_BYTES + 2 * X_BYTES <= memory.peak_bytes <= W_BYTES + 4 * X_BYTES


def test_a_slice_of_what_a_loop_scans_is_part_of_it():
    weights = jax.ShapeDtypeStruct((8, 128, 128), jnp.float32)

    def fn(x, weights):
        return lax.scan(lambda c, w: (c @ w, None), x, weights)[0]

    memory = memory_of(program_of(fn, X, weights))
    assert memory.peak_bytes <= 8 * W_BYTES + 4 * X_BYTES


def test_a_loop_of_one_turn_is_no_loop():
    def body(c, w):
        y = jnp.tanh(c @ w)
        return y @ w, y * 2

    def looped(x, w):
        return lax.scan(body, x, w[None], length=1)

    def plain(x, w):
        end, y = body(x, w)
        return end, y.reshape(1, *y.shape)

    found = inline(program_of(looped, X, W))[0]
    assert not any(op.bodies for op in found.ops)
    wanted = program_of(plain, X, W)
    assert [u.root.kind for u in fuse(found)] == [u.root.kind for u in fuse(wanted)]
    assert memory_of(found).peak_bytes == memory_of(wanted).peak_bytes


def test_a_program_without_loops_of_one_turn_stays_itself():
    def fn(x):
        return lax.scan(lambda c, _: (c + 1, None), x, length=2)[0]

    program = program_of(fn, X)
    assert inline(program) == (program, {})


def test_of_a_choice_by_platform_the_own_branch_is_there():
    def fn(x):
        return lax.platform_dependent(x, tpu=jnp.sin, cuda=jnp.cos, default=jnp.tan)

    program = program_of(fn, X)
    for rules, kind in ((TPU, "sin"), (GPU, "cos"), (CPU, "tan"), (PLAIN, "tan")):
        found = inline(program, rules)[0]
        assert kind in [op.kind for op in found.ops]
        assert not any(op.bodies for op in found.ops)
        (out,) = found.outputs
        assert any(out in op.results for op in found.ops)


def test_a_choice_without_a_branch_for_a_platform_stays():
    program = program_of(
        lambda x: lax.platform_dependent(x, tpu=jnp.sin, cpu=jnp.cos), X
    )
    assert any(op.kind == "cond" for op in inline(program, GPU)[0].ops)


def test_to_add_dims_of_one_element_is_a_new_shape():
    def fn(x):
        return jnp.cumsum(jnp.cumsum(x)[:, None], 0)

    program = program_of(fn, jax.ShapeDtypeStruct((2**16,), "float32"))
    assert inline(program)[0] is program
    found, origins = inline(program, TPU)
    (shaped,) = (op for op in found.ops if op.kind == "reshape")
    assert origins[shaped].kind == "broadcast_in_dim"
    assert [u.root.kind for u in fuse(found)] == ["cumsum", "cumsum"]


def test_what_leaves_a_program_with_dims_of_one_element_is_an_array():
    def fn(x):
        return x[None], jnp.sin(x)

    program = program_of(fn, X)
    assert inline(program, TPU)[0] is program
    assert memory_of(program, rules=TPU).peak_bytes >= 3 * num_bytes(program.inputs[0])


@pytest.mark.parametrize("rules", [TPU, GPU, CPU], ids=["tpu", "gpu", "cpu"])
def test_what_is_handed_out_as_it_came_is_copied_unless_it_was_given_up(rules):
    program = program_of(lambda x, y: (x.reshape(-1), y + 1.0), X, X)
    (x, y), aliases = program.inputs, {0: 0}
    all_three = num_bytes(x) + 2 * num_bytes(y)
    given = memory_of(program, aliases, rules=rules).peak_bytes
    assert memory_of(program, rules=rules).peak_bytes == given + num_bytes(x)
    assert all_three <= given < all_three + num_bytes(x)


def test_what_is_made_again_is_a_region_on_cpus():
    program = program_of(
        jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), X
    )
    assert any(op.kind == "remat" for op in inline(program, CPU)[0].ops)
    assert not any(op.bodies for op in inline(program, TPU)[0].ops)


# -- layout ----------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 300), min_size=2, max_size=4),
    st.sampled_from(["float32", "bfloat16", "int8"]),
)
def test_padding_is_that_of_the_best_two_minor_dims(shape, dtype):
    layout = Layout((8, 128))
    itemsize = itemsize_bytes(dtype)

    def padded(columns, rows):
        size = itemsize
        high = next(n for n in (1, 2, 4, 8) if n >= min(shape[rows], 8))
        tiles = {columns: 128, rows: max(high, 4 // itemsize)}
        for dim, extent in enumerate(shape):
            tile = tiles.get(dim, 1)
            size *= -(-extent // tile) * tile
        return size

    pairs = itertools.permutations(range(len(shape)), 2)
    want = min(padded(*pair) for pair in pairs)
    assert layout.size(Value(tuple(shape), dtype)) == want


@pytest.mark.parametrize(
    ("extent", "dtype", "rows"),
    [  # as libtpu 0.0.50 has them, along the dim before the last
        (5, "float32", 8),
        (4, "float32", 4),
        (1, "float32", 1),
        (1, "bfloat16", 2),
        (3, "bfloat16", 4),
        (1, "bool", 4),
        (9, "float32", 16),
    ],
)
def test_a_tile_has_as_many_rows_as_its_dim_needs(extent, dtype, rows):
    value = Value((extent, 1024), dtype)
    assert Layout((8, 128)).size(value) == rows * 1024 * itemsize_bytes(dtype)


def narrow_results(fn, *args):
    program = program_of(fn, *args)
    narrow = narrow_values(program)
    return [r in narrow for op in program.ops for r in op.results]


def test_what_only_products_read_is_kept_as_bfloat16():
    assert narrow_results(lambda x, w: jnp.tanh(x) @ w, X, W) == [True, False]


def test_what_somebody_reads_in_full_is_kept_in_full():
    def fn(x, w):
        y = jnp.tanh(x)
        return y @ w, y - 1

    assert narrow_results(fn, X, W)[0] is False


def test_a_sum_is_taken_before_its_array_is_rounded():
    def made_here(x, w):
        y = jnp.tanh(x)
        return y @ w, y.sum()

    def made_in_a_loop(x, w):
        y = jax.lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c), x)
        return y @ w, y.sum()

    assert narrow_results(made_here, X, W)[0] is True
    assert not any(narrow_results(made_in_a_loop, X, W))


def test_a_product_of_higher_precision_reads_in_full():
    def fn(x, w):
        return jnp.matmul(jnp.tanh(x), w, precision="highest")

    assert narrow_results(fn, X, W)[0] is False


def test_moves_pass_a_narrow_value_on():
    found = narrow_results(lambda x, w: jnp.tanh(x).reshape(32, 2, 128)[:, 0] @ w, X, W)
    assert found[:-1] == [True] * (len(found) - 1)


def test_a_carry_is_narrow_only_all_around_its_loop():
    def fn(x, w):
        def body(c, _):
            return jnp.tanh(c @ w), c

        end, rows = lax.scan(body, jnp.tanh(x), length=4)
        return end, rows[0] @ w

    program = program_of(fn, X, W)
    narrow = narrow_values(program)
    (scan,) = (op for op in program.ops if op.kind == "scan")
    carried, stacked = scan.results
    assert carried not in narrow
    assert stacked in narrow


# -- the heap --------------------------------------------------------------------------

BLOCKS = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 12), st.integers(0, 5)).map(
        lambda t: Block(t[0], t[1], t[1] + t[2])
    ),
    max_size=20,
)


@given(BLOCKS)
def test_a_heap_holds_what_is_alive_and_no_more_than_all(blocks):
    most = max(
        (sum(b.size for b in blocks if b.start <= t <= b.end) for t in range(20)),
        default=0,
    )
    for pack in (packed_bytes, packed_in_time):
        assert most <= pack(blocks) <= sum(b.size for b in blocks)


@given(BLOCKS)
def test_in_time_blocks_of_one_size_leave_no_gaps(blocks):
    same = [b._replace(size=3) for b in blocks]
    most = max(sum(3 for b in same if b.start <= t <= b.end) for t in range(20))
    assert packed_in_time(same) == most


def test_in_time_a_block_that_stays_behind_splits_the_space_for_larger_ones():
    blocks = [Block(4, 0, 1), Block(1, 1, 3), Block(5, 2, 3)]
    assert packed_bytes(blocks) == 6
    assert packed_in_time(blocks) == 10


def test_in_time_a_block_lies_in_the_smallest_gap_that_holds_it():
    first = [Block(5, 0, 0), Block(1, 0, 2), Block(3, 0, 0), Block(1, 0, 2)]
    assert packed_in_time([*first, Block(3, 1, 2), Block(5, 2, 2)]) == 10
