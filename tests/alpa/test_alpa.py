"""Alpa's tests of `shard_parallel` as acceptance tests: what their search finds, given.

docs/alpa.md compares row by row. Theirs are counted in the compiled program, where
collectives that wait for nothing in common have become one; here also per tensor.
"""

from functools import cache

import pytest

from tests.alpa.cases import CASES, Counts, built
from tests.alpa.count import combined_counts, compiled_counts

COMPILED = [n for n, c in CASES.items() if not (c.combined.rs or c.combined.ag)]


def by_weight(names):
    """Parameters of a test: heavy cases run with the slow tests."""
    return [
        pytest.param(n, marks=[pytest.mark.slow] if CASES[n].heavy else [])
        for n in names
    ]


@cache
def plan_of(name):
    """One plan for all tests of a case."""
    return CASES[name].step().plan(*built(CASES[name].build)[1])


def specs(name, prefix="state.params."):
    """Per leaf under a prefix, of rank 1 or more, the axes of each dim."""
    inputs = plan_of(name).inputs
    return {
        leaf.path.removeprefix(prefix): leaf.spec
        for leaf in inputs
        if leaf.path.startswith(prefix) and leaf.shape
    }


def moved_bytes(name, kind, axis):
    """Bytes on one device of all collectives of a kind along an axis, one by one."""
    found = plan_of(name).collectives
    return [c.bytes for c in found if c.kind == kind and c.axes == (axis,)]


# -- collectives ----------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_the_plan_has_one_collective_a_tensor(name):
    plan = plan_of(name)
    assert Counts.of(plan.counts) == CASES[name].tensors
    assert plan.whole == ()


@pytest.mark.parametrize("name", [n for n in CASES if n != "BERT, remat"])
def test_combined_they_are_as_many_as_alpas(name):
    assert combined_counts(plan_of(name)) == CASES[name].combined


@pytest.mark.parametrize("name", by_weight(COMPILED))
def test_xla_combines_all_reduces_to_as_many_as_alpas(name):
    case = CASES[name]
    args = built(case.build)[1]
    assert compiled_counts(case.step(), args) == (case.compiled or case.combined)


@pytest.mark.parametrize("name", by_weight(["MLP, ZeRO-2", "MLP, ZeRO-3"]))
def test_xla_for_cpus_leaves_gathers_and_scatters_apart(name):
    case = CASES[name]
    assert compiled_counts(case.step(), built(case.build)[1]) == case.tensors


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            n,
            marks=[]
            if n in ("MLP, 2-D, scattered", "MLP, ZeRO-3", "tied embedding")
            else [pytest.mark.slow],
        )
        for n in CASES
    ],
)
def test_the_partitioned_step_equals_the_original(name):
    case = CASES[name]
    report = case.step().check(*built(case.build)[1])
    assert report.ok, str(report)


# -- bytes, as in their objective -----------------------------------------------------


def test_an_mlps_model_parallelism_moves_five_hidden_states():
    for name in ("MLP, model", "MLP, megatron"):
        assert moved_bytes(name, "all_reduce", "model") == [32 * 256 * 4] * 5


def test_an_mlp_on_two_axes_moves_half_its_hidden_states_and_half_its_weights():
    assert moved_bytes("MLP, 2-D", "all_reduce", "model") == [256 * 32 * 4 // 2] * 5
    kernels, biases = [32 * 32 * 4 // 2] * 6, [32 * 4 // 2] * 3 + [32 * 4] * 3
    gradients = moved_bytes("MLP, 2-D", "all_reduce", "data")
    assert sorted(gradients) == sorted(kernels + biases)


def test_berts_layers_move_seven_hidden_states():
    assert moved_bytes("BERT, model", "all_reduce", "model") == [8 * 8 * 128 * 4] * 7
    assert moved_bytes("BERT, 2-D", "all_reduce", "model") == [8 * 8 * 128 * 4 // 2] * 7


def test_a_tied_embedding_moves_half_its_table_two_hidden_states_and_per_token_sums():
    moved = moved_bytes("tied embedding", "all_reduce", "model")
    hidden, sums = [8 * 8 * 8 * 4 // 2] * 2, [8 * 8 * 4 // 2] * 3
    assert sorted(moved) == sorted(hidden + sums)
    table = 1024 * 8 * 4 // 2
    assert moved_bytes("tied embedding", "all_reduce", "data") == [table]


def test_a_mixture_moves_its_tokens_four_times_two_to_a_token():
    of_all_devices = 64 * 16 * 64 * 2 * 4
    assert moved_bytes("MoE layer", "all_to_all", "data") == [of_all_devices // 4] * 4


# -- cuts -----------------------------------------------------------------------------

COLUMNS, ROWS = ((), ("model",)), (("model",), ())


@pytest.mark.parametrize("name", ["MLP, data", "BERT, data", "conv, data"])
def test_data_parallelism_keeps_all_weights_whole(name):
    assert not any(axes for spec in specs(name).values() for axes in spec)


@pytest.mark.parametrize("name", ["MLP, model", "MLP, megatron", "MLP, 2-D"])
def test_an_mlps_kernels_alternate_columns_and_rows(name):
    found = specs(name)
    kernels = [found[f"Dense_{i}.kernel"] for i in range(6)]
    assert kernels == [COLUMNS, ROWS] * 3


@pytest.mark.parametrize(
    "name", ["BERT, model", "BERT, megatron", "BERT, 2-D", "BERT MLM, model"]
)
def test_berts_kernels_alternate_columns_and_rows(name):
    found = specs(name)
    layers = sorted(
        {path.partition(".attention")[0] for path in found if ".qvk" in path}
    )
    assert len(layers) == 2
    for layer in layers:
        names = ("attention.qvk", "attention.out", "up", "down")
        kernels = [found[f"{layer}.{n}.kernel"] for n in names]
        assert kernels == [COLUMNS, ROWS] * 2


def test_the_table_of_a_masked_language_model_is_cut_by_words_and_its_transform_whole():
    found = specs("BERT MLM, model")
    assert found["embeddings.words.embedding"] == ROWS
    assert found["transform.kernel"] == ((), ())


def test_a_mixtures_experts_are_cut_and_nothing_else():
    found = specs("MoE layer")
    experts = {path: found.pop(path) for path in ("moe.up", "moe.down")}
    assert set(experts.values()) == {(("data",), (), ())}
    assert not any(axes for spec in found.values() for axes in spec)


def test_convolutions_alternate_channels_out_and_in():
    found = specs("conv, model")
    kernels = [found[f"Conv_{i}.kernel"][2:] for i in range(4)]
    assert kernels == [COLUMNS, ROWS] * 2


@pytest.mark.parametrize("name", ["MLP, 2-D, scattered", "BERT, 2-D, scattered"])
def test_on_two_axes_optimizer_state_is_cut_by_both(name):
    matrices = [s for s in specs(name, "state.opt_state.").values() if len(s) > 1]
    assert matrices
    for spec in matrices:
        assert {axis for axes in spec for axis in axes} == {"data", "model"}


def test_zero_cuts_optimizer_state_and_at_stage_three_parameters():
    for name, is_cut in (("MLP, ZeRO-2", False), ("MLP, ZeRO-3", True)):
        assert all(any(s) for s in specs(name, "state.opt_state.").values())
        assert all(any(s) is is_cut for s in specs(name).values())
