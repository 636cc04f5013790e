"""Operations and bytes of Pallas kernels, without the steps that they skip."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from meshwright.predict.roofline.work import program_work
from meshwright.program.capture import capture
from meshwright.program.ops import OpWork
from meshwright.program.rules.pallas_work import kernel_of
from tests.program.ops.catalogue import pallas

F32 = jnp.float32
TABLE = np.array([0, 2, 1, 0], np.int32)
"""Of four steps, how often each doubles its block."""


def kernels(fn, *args):
    """The kernels that the program of `fn` calls."""
    program = capture(fn, args).program
    found = [kernel_of(op) for op in program.walk()]
    return [kernel for kernel in found if kernel is not None]


def skipping(table, x):
    """Products of the blocks of x that a table does not skip."""

    def kernel(table, x, out):
        @pl.when(table[pl.program_id(0)] > 0)
        def _():
            out[...] = x[...] @ x[...]

    spec = pl.BlockSpec((8, 8), lambda i, table: (i, 0))
    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(4,), in_specs=[spec], out_specs=spec
        ),
        out_shape=jax.ShapeDtypeStruct((32, 8), F32),
        interpret=True,
    )(table, x)


X = np.ones((32, 8), np.float32)


def test_products_and_functions_are_counted_over_the_grid():
    x, w = pallas.EXAMPLES[0].args
    (found,) = kernels(pallas.blocks, x, w)
    assert found.steps == 8
    assert found.work == OpWork(2 * 32 * 16 * 64, transcendentals=32 * 64)


def test_a_block_is_fetched_only_when_its_index_changes():
    """Rows once each; columns at every step, since they alternate; results once."""
    (found,) = kernels(pallas.blocks, *pallas.EXAMPLES[0].args)
    assert found.num_bytes == 4 * (4 * 8 * 16 + 8 * 16 * 32 + 8 * 8 * 32)


def test_a_branch_counts_at_the_steps_that_select_it():
    (found,) = kernels(pallas.summed, *pallas.EXAMPLES[1].args)
    assert sorted(section.stored for section in found.sections if section.stored) == [
        4 * 8 * 64, 4 * 8 * 64, 8 * 8 * 64,
    ]  # fmt: skip


def test_a_constant_table_says_which_steps_are_skipped():
    (found,) = kernels(lambda x: skipping(jnp.asarray(TABLE), x), X)
    assert found.work.flops == 2 * 2 * 8**3


def test_no_step_is_skipped_by_a_table_that_is_not_constant():
    (found,) = kernels(skipping, TABLE, X)
    assert found.work.flops == 4 * 2 * 8**3


def test_a_table_is_known_inside_a_loop_and_a_checkpoint():
    table = jnp.asarray(TABLE)

    @jax.checkpoint
    def body(x, _):
        return skipping(table, x), None

    def fn(x):
        return jax.lax.scan(body, x, None, length=3)[0]

    program = capture(fn, (X,)).program
    assert program_work(program).flops == 3 * 2 * 2 * 8**3


def test_kernels_in_a_shard_map_are_read():
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    inner = jax.shard_map(
        lambda x: 2 * x[:1] + pallas.whole(jnp.tile(x, (4, 2))).sum(),
        mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False,
    )  # fmt: skip
    (op,) = (o for o in capture(inner, (X,)).program.ops if o.kind == "shard_map")
    found = [kernel_of(each) for each in op.params["jaxpr"].walk()]
    assert [k.work.flops for k in found if k is not None] == [32 * 16]


def test_the_cost_estimate_of_the_author_is_taken():
    told = pl.CostEstimate(flops=10, transcendentals=20, bytes_accessed=30)

    def fn(x):
        return pl.pallas_call(
            lambda x, out: pltpu.sync_copy(x, out),
            out_shape=jax.ShapeDtypeStruct((32, 8), F32),
            cost_estimate=told,
            interpret=True,
        )(x)

    (found,) = kernels(fn, X)
    assert (found.work, found.num_bytes) == (OpWork(10, 20), 30)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_devices_that_share_the_steps_share_the_work(parts):
    (found,) = kernels(pallas.blocks, *pallas.EXAMPLES[0].args)
    mine = found.per_device(parts)
    assert mine.work * parts == found.work
    assert (mine.steps, mine.num_bytes) == (8 // parts, found.num_bytes // parts)
