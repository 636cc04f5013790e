"""The ranker, its correction within a run, and the search for one kernel's tiles."""

import json
import math

import numpy as np
import pytest

from meshwright.errors import CompilerError, LearnedError, PlanError, SearchError
from meshwright.features.tune.iree.space import TileSpace
from meshwright.features.tune.layouts.journal import Journal
from meshwright.features.tune.tiles.features import NUM_FEATURES, tile_rows
from meshwright.features.tune.tiles.kernel_search import KernelSearch, TileOptions
from meshwright.features.tune.tiles.ranker import Ranker, shipped_ranker
from meshwright.features.tune.tiles.tile_model import TileModel
from meshwright.features.tune.tiles.tuned_tiles import TunedKernel, TunedTiles
from tests.features.tune.iree.kernels import conv_kernel, matmul_kernel


class FakeBench:
    """Times that follow from sizes alone; wide vectors fail to compile."""

    def __init__(self, scale=1.0):
        self.scale = scale
        self.built = []

    def build(self, tiling):
        self.built.append(tiling)
        if tiling.parallel[1] == 64:
            raise CompilerError("IREE failed: large vector sizes")

    def times(self, tilings, passes, seed):
        del seed
        return {t: [self.ns(t)] * passes for t in tilings}

    def ns(self, tiling):
        if tiling is None:
            return 1_000_000
        distance = abs(math.log2(tiling.distribution[1] / 32))
        distance += abs(math.log2(tiling.parallel[0] / 4))
        return int(self.scale * 500_000 * (1 + distance))


def search_with(bench, journal=None, budget=12, seed=0):
    search = KernelSearch(
        matmul_kernel(),
        shipped_ranker(NUM_FEATURES),
        journal or Journal(),
        "here:",
        TileOptions(budget, seed),
    )
    search.bench = bench
    return search


def test_features_are_finite_and_of_one_length():
    for kernel in (matmul_kernel(), conv_kernel()):
        tilings = TileSpace.of(kernel).sample(64, 0)
        rows = tile_rows(kernel, tilings)
        assert rows.shape == (64, NUM_FEATURES)
        assert np.isfinite(rows).all()


def test_a_ranker_reads_back_and_refuses_other_features(tmp_path):
    ranker = shipped_ranker(NUM_FEATURES)
    ranker.save(tmp_path / "ranker.npz")
    again = Ranker.load(tmp_path / "ranker.npz", NUM_FEATURES)
    rows = tile_rows(matmul_kernel(), TileSpace.of(matmul_kernel()).sample(8, 0))
    np.testing.assert_array_equal(again.predict(rows), ranker.predict(rows))
    with pytest.raises(LearnedError, match="no ranker of 7 features"):
        Ranker.load(tmp_path / "ranker.npz", 7)


def test_what_was_measured_changes_what_is_proposed_next():
    kernel = matmul_kernel()
    tilings = TileSpace.of(kernel).sample(100, 0)
    model = TileModel(kernel, shipped_ranker(NUM_FEATURES))
    before = np.array(model.weights(None, tilings))
    first = tilings[int(before.argmax())]
    model.learn((tilings[0],), 1.0, 1.0)
    model.learn((first,), 1.0, math.inf)
    after = np.array(model.weights(None, tilings))
    assert tilings[int(after.argmax())] != first


def test_a_search_keeps_to_its_budget_and_finds_a_gain():
    bench = FakeBench()
    found = search_with(bench).run()
    assert found.record.measured <= 12
    assert len(set(bench.built)) <= 11
    assert found.tiling is not None
    assert found.record.tuned_s == pytest.approx(bench.ns(found.tiling) / 1e9)
    assert found.record.speed_up > 1


def test_the_default_stays_if_everything_measures_slower():
    found = search_with(FakeBench(scale=4.0)).run()
    assert found.tiling is None
    assert found.record.speed_up == 1


def test_a_journal_spares_every_measurement_of_a_kernel_that_is_known(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    first = search_with(FakeBench(), Journal(path)).run()
    again = search_with(
        None, Journal(path)
    ).run()  # without anything that could measure
    assert again == first


def test_an_interrupted_search_goes_on_where_it_was(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    whole_bench = FakeBench()
    whole = search_with(whole_bench, Journal(path)).run()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]) + lines[5][:20])  # cut short in the sixth line
    bench = FakeBench()
    again = search_with(bench, Journal(path)).run()
    assert again == whole
    known = sum(len(json.loads(line)["key"].split(" = [")) == 4 for line in lines[:5])
    assert known == 4  # the default has no sizes
    assert len(bench.built) == len(whole_bench.built) - known


def test_a_corrupt_journal_is_named_with_its_line(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    path.write_text("not a verdict\n")
    with pytest.raises(PlanError, match="line 1 of"):
        Journal(path)
    path.write_text('{"key": "a", "verdict": {"cost"\n')
    with pytest.raises(PlanError, match=r"line 1 of .* is no verdict"):
        Journal(path)


def test_an_interrupted_search_says_so_and_returns_the_best_so_far():
    bench = FakeBench()
    build = bench.build

    def interrupted(tiling):
        if len(bench.built) == 5:
            bench.build = build
            raise KeyboardInterrupt
        build(tiling)

    bench.build = interrupted
    found = search_with(bench).run()
    assert found.stopped == "interrupted"
    assert found.record.measured == 6
    assert found.record.tuned_s <= found.record.default_s


def test_a_budget_without_a_measurement_is_refused():
    with pytest.raises(SearchError, match="wanted 2 or more"):
        search_with(FakeBench(), budget=1)


def test_a_result_reads_back_from_json_and_prints_kernel_by_kernel():
    kernel = TunedKernel("matmul 64x64x64 f32", "ab", "t", 2, 2e-3, 1e-3, 0.02, 20, 1)
    tuned = TunedTiles(
        name="step",
        backend="iree-cpu",
        compiler="IREE 3.13.0",
        cpu="some CPU",
        default_s=5e-3,
        tuned_s=3e-3,
        spread=0.01,
        kernels=(kernel,),
        others={"dispatch_1": "it has no matmul or convolution"},
        notes=(),
        spec="module {}",
        seed=0,
    )
    assert TunedTiles.from_json(tuned.to_json()) == tuned
    assert "matmul 64x64x64 f32 x2: 2 ms -> 1 ms, 2.00x ± 2 %" in str(tuned)
    assert "end to end 5 ms -> 3 ms, 1.667x" in str(tuned)
    with pytest.raises(PlanError, match=r"call mw\.tune again"):
        tuned(1)
    with pytest.raises(PlanError, match="no result of tuning tiles"):
        TunedTiles.from_json("{}")
