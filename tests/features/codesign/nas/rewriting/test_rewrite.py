"""The search goes on from its journal, writes models that run, and refuses misuse."""

import json
import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from meshwright.codesign import nas
from meshwright.errors import NasError, TargetError
from meshwright.features.codesign.nas.command import nas_command
from meshwright.features.codesign.nas.rewriting import rewrite as rewrite_module
from meshwright.features.codesign.nas.rewriting.judging import promising
from meshwright.features.codesign.nas.rewriting.lineages import acceptable, best_of
from meshwright.features.codesign.nas.rewriting.rewrite import JOURNAL
from meshwright.features.codesign.nas.rewriting.search import (
    RewriteProblem,
    cost_function,
)
from meshwright.features.codesign.nas.rewriting.task import TrainedWeights, train
from meshwright.search.trials import Trial
from tests.features.codesign.nas.rewriting.models import apply, init, task

TARGET = "tests/features/codesign/nas/rewriting/models.py"


def test_a_search_goes_on_and_its_models_do_what_is_said(tmp_path: Path):
    given = task(steps=12)
    whole = nas.rewrite(given, trials=3, seeds=1, out=tmp_path / "whole")
    journal = (tmp_path / "whole" / JOURNAL).read_text()
    half = tmp_path / "half"
    half.mkdir()
    (half / JOURNAL).write_text(journal[: int(len(journal) * 0.6)])  # killed in a line
    again = nas.rewrite(given, trials=3, seeds=1, out=half)
    places = str(tmp_path / "whole"), str(half)
    assert again.to_json().replace(places[1], places[0]) == whole.to_json()
    assert whole.trials == 3
    for model in (whole.original, *whole.models):
        module = runpy.run_path(f"{model.folder}/model.py")
        weights, (x, y) = module["load"](), given.test
        scores = np.concatenate(
            [module["apply"](weights, x[i : i + 16]) for i in range(0, len(x), 16)]
        )
        # The original's score is a mean over more trainings than the one that is written.
        written = next(train(given, given.network(), [1000]))
        test = model.test if model.changes else written.test
        assert (scores.argmax(-1) == y).mean() == pytest.approx(test)
        assert sum(w.size for w in weights.values()) == model.parameters
    assert all(m.validation >= whole.original.validation for m in whole.models)
    assert all(m.flops < whole.original.flops for m in whole.models)
    with pytest.raises(NasError, match="less is 'flop'; did you mean 'flops'"):
        nas.rewrite(given, less="flop")
    with pytest.raises(Exception, match="journal of another search"):
        nas.rewrite(task(steps=13), trials=3, seeds=1, out=half)


def trial(number: int, score: float, cost: float) -> Trial:
    values = {"score": score, "cost": cost, "error": 0.01}
    return Trial(number, {"draws": []}, 1.0, values, (-score, cost), 0.0, "", 0.0)


def test_parents_are_hardly_worse_and_not_dominated():
    trials = [
        trial(0, 0.90, 10),
        trial(1, 0.895, 6),
        trial(2, 0.88, 1),
        trial(3, 0.896, 7),
        trial(4, 0.891, 8),
    ]
    kept = acceptable(trials)
    assert [t.number for t in kept] == [0, 1, 3, 4]
    assert sorted(t.number for t in best_of(kept)) == [0, 1, 3]


def test_those_that_seem_as_good_are_judged_first_and_the_cheapest_of_them():
    scores = [(0.90, 10), (0.899, 1), (0.92, 6), (0.90, 5), (0.80, 2), (0.895, 3)]
    trials = [trial(i, *figures) for i, figures in enumerate(scores)]
    assert [t.number for t in promising(trials)] == [3, 2, 1, 5]


class Fake(RewriteProblem):
    """A problem with scores by parity of the last draw; seeds of the judging diverge."""

    def trainings(self, draws, seeds):
        for seed in seeds:
            self.known.setdefault("count", []).append((tuple(draws), seed))
            if draws and seed > 1000:
                raise NasError("weights are not finite")
            score = 0.5 if draws and draws[-1] % 2 else 0.9
            yield TrainedWeights([], score, score, 0.1)


def test_a_network_that_is_clearly_worse_is_trained_once():
    problem = Fake(task(), cost_function("flops", None))
    for draws, count in (([], 3), ([1], 1), ([2], 3)):
        problem.known[tuple(draws)] = problem.original
        before = len(problem.known.get("count", []))
        problem.reference  # noqa: B018  trained once, whenever it is asked for
        first = len(problem.known["count"])
        problem.figures({"draws": draws})
        done = problem.known["count"]
        assert first - before == (3 if not draws else 0)
        assert len(done) - first == (count if draws else 0)


def test_a_network_that_diverges_when_it_is_trained_again_is_passed_over(monkeypatch):
    monkeypatch.setattr(rewrite_module, "RewriteProblem", Fake)
    seen: list[Trial] = []
    found = nas.rewrite(task(), trials=4, seeds=2, on_judged=seen.append)
    assert found.models == ()
    assert found.judged == len(seen) - 1 > 0
    assert all("weights are not finite" in trial.reason for trial in seen[1:])


def test_the_judging_goes_on_where_it_was_killed(tmp_path: Path):
    given, out = task(steps=12), tmp_path / "whole"
    whole = nas.rewrite(given, trials=3, seeds=1, out=out)
    assert whole.judged > 0
    journal = out / "judged_3.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]) + lines[-1][:20])  # killed in a line
    said: list[str] = []
    assert nas.rewrite(given, trials=3, seeds=1, out=out, say=said.append) == whole
    assert len(said) == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--keep", "size"], NasError, "--keep is 'size'; wanted accuracy"),
        (["--less", "latency"], NasError, "latency needs one"),
        (["--machine", "tpu-v3"], NasError, "with a machine"),
        (["--method", "property"], NasError, "did you mean 'properties'"),
        (["--resume", "nowhere"], NasError, "has no journal.jsonl"),
    ],
)
def test_misuse_is_said_in_a_sentence(options: list[str], error: type, message: str):
    found = CliRunner().invoke(nas_command, ["rewrite", f"{TARGET}:task", *options])
    assert isinstance(found.exception, error)
    assert message in str(found.exception)


def test_a_target_has_to_return_a_task():
    found = CliRunner().invoke(nas_command, ["rewrite", f"{TARGET}:apply"])
    assert isinstance(found.exception, TargetError)


def test_a_task_without_data_is_refused():
    empty = (np.zeros((0, 2)), np.zeros(0))
    with pytest.raises(NasError, match="train has 0 inputs"):
        nas.Task(apply, init, empty, empty, empty)


def test_latency_can_be_what_falls(tmp_path: Path):
    given = task(steps=2)
    found = nas.rewrite(
        given, less="latency", machine="tpu-v5e", trials=1, seeds=1, out=tmp_path
    )
    last = json.loads((tmp_path / JOURNAL).read_text().splitlines()[-1])
    assert math.isfinite(found.original.cost)
    if not last["reason"]:
        assert last["values"]["cost"] < found.original.cost < 1e-3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: y + 1, r"train has labels of int32\[128\] up to 2, .*\[16, 2\]"),
        (lambda y: y * 0.5, r"labels of float64\[128\]"),
        (lambda y: y - 1, r"numbers of classes from 0 on"),
        (lambda y: y.astype(str), r"labels of <U\d+\[128\], and fn"),
        (lambda y: y[:, None], r"labels of int32\[128, 1\]"),
    ],
)
def test_labels_that_are_no_classes_are_refused(change, words):
    x, y = task().train
    with pytest.raises(NasError, match=words):
        nas.rewrite(task(train=(x, change(y))), trials=1)


def test_models_of_an_earlier_run_leave_the_folder(tmp_path: Path):
    stale = tmp_path / "model_7"
    stale.mkdir()
    (stale / "model.py").write_text("")
    mine = tmp_path / "model_final"
    mine.mkdir()
    (mine / "weights.npz").write_text("")
    nas.rewrite(task(steps=2), trials=1, seeds=1, out=tmp_path)
    assert not stale.exists()
    assert (mine / "weights.npz").exists()
