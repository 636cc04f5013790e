import pytest

import meshwright as mw
from meshwright.errors import TacticError
from tests.partitioner.tactics import models
from zoo import gpt

MESH = {"data": 2, "model": 4}
MEGATRON = [mw.data_parallel("data"), mw.megatron("model")]


def test_sums_become_scatters_and_gathers():
    fn, args = models.language_model(
        models.llama_block, models.llama_weights(), layers=2
    )
    tactics = [*MEGATRON, mw.sequence_parallel("model")]
    step = mw.partition(fn, MESH, tactics)
    plan = step.plan(*args)
    whole = mw.partition(fn, MESH, MEGATRON).plan(*args)
    assert plan.counts["reduce_scatter"] == 2 * 4 + 2  # of the vocabulary
    assert plan.counts["all_reduce"] == whole.counts["all_reduce"] - 2 * 4 - 2
    assert plan.counts["all_gather"] >= 2 * 4
    assert tuple(plan.spec("batch.x")) == ("data", None)  # the table is cut by rows
    assert step.check(*args).ok


def test_a_bias_and_a_norm_after_the_sum_are_cut_too():
    fn, args = models.language_model(models.bert_block, models.bert_weights(), layers=1)
    step = mw.partition(fn, MESH, [*MEGATRON, mw.sequence_parallel("model")])
    assert 6 <= step.plan(*args).counts["reduce_scatter"] <= 8  # 2 of the vocabulary
    assert step.check(*args).ok


def test_layers_in_a_scan():
    fn, args = models.language_model(
        models.fused_block, models.fused_weights(), stacked=True
    )
    step = mw.partition(fn, MESH, [*MEGATRON, mw.sequence_parallel("model")])
    assert step.plan(*args).counts["reduce_scatter"] >= 2 * 4
    assert step.check(*args).ok


def test_the_gpt_of_the_zoo():
    fn, args = gpt.train_step, gpt.shapes(gpt.TINY)
    mesh = {"batch": 2, "model": 4}
    tactics = [mw.data_parallel("batch"), mw.megatron("model")]
    whole = mw.partition(fn, mesh, tactics).plan(*args).counts
    counts = mw.partition(fn, mesh, [*tactics, mw.sequence_parallel("model")])
    counts = counts.plan(*args).counts
    assert counts["reduce_scatter"] == 4 * 4 + 2
    assert counts["all_reduce"] == whole["all_reduce"] - 4 * 4 - 2


def test_without_megatron_there_is_nothing_to_cut():
    fn, args = models.mlp()
    with pytest.raises(TacticError, match=r"megatron\('model'\) makes such sums"):
        mw.partition(fn, MESH, [mw.sequence_parallel("model")]).plan(*args)
