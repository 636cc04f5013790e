"""Runs from recipes: what is written, resumed runs, interruptions, refusals."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import CheckpointError, RecipeError
from meshwright.features.checkpoint import Restored, Saved
from meshwright.features.train.data.position import position_of, require_same_data
from meshwright.features.train.divergence import DivergedError, Watch
from meshwright.features.train.metrics import read_csv
from meshwright.features.train.recipes.recipe import OnNan
from meshwright.features.train.runners.local_runner import LocalRunner
from meshwright.features.train.train import Outcome, train
from tests.features.train.recipes import MODELS, losses, recipe, run

MIXTURE = (
    f'source = "{MODELS}:numbered"\nbatch = 8\nheld_out = 0.25\n',
    "batch = 8\nheld_out = 0.25\n"
    f'[data.mixture.many]\nsource = "{MODELS}:numbered"\nweight = 3\n'
    f'[data.mixture.few]\nsource = "{MODELS}:numbered"\noptions = {{ count = 16 }}\n',
)
"""A change of the recipe: two sources in place of one."""

STEEP = (":linear", ":steep")
"""A change of the recipe: the loss of step 6 is not a number."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Outcome:
    """A run from the first to the last step."""
    return run(tmp_path_factory.mktemp("whole"))


def test_a_run_learns_and_writes_metrics_evaluations_and_checkpoints(whole):
    rows = read_csv(whole.folder / "metrics.csv")
    steps = [int(row["step"]) for row in rows if row["loss"]]
    assert steps == list(range(1, 13))
    assert whole.is_complete
    evaluated = {
        int(r["step"]): r["evaluation_loss"] for r in rows if r["evaluation_loss"]
    }
    assert list(evaluated) == [6, 12]
    assert float(evaluated[12]) == whole.evaluation_loss < float(evaluated[6])
    assert "step 12 of 12: loss" in str(whole)
    saved = mw.Checkpoints(whole.folder / "checkpoints", read_only=True)
    assert saved.steps == (4, 8, 12)
    about = saved.saved(12)
    assert about.position["batches"] == 12
    assert about.metrics["evaluation_loss"] == whole.evaluation_loss
    assert mw.Plan.from_json(about.plan).mesh == mw.Mesh({"data": 4})


@pytest.mark.parametrize("stopped", [3, 8])
def test_a_resumed_run_has_exactly_the_losses_of_an_uninterrupted_one(
    stopped, whole, tmp_path
):
    run(tmp_path, ("steps = 12", f"steps = {stopped}"))
    outcome = run(tmp_path, resume=True)
    assert (outcome.first_step, outcome.last_step) == (stopped + 1, 12)
    assert losses(tmp_path) == losses(whole.folder)
    assert outcome.evaluation_loss == whole.evaluation_loss


def test_a_run_goes_on_with_other_numbers_of_devices_within_rounding(whole, tmp_path):
    for steps, devices in ((4, 8), (8, 2), (12, 1)):
        run(
            tmp_path,
            ("steps = 12", f"steps = {steps}"),
            ("data = 4", f"data = {devices}"),
            resume=True,
        )
    ours, wanted = losses(tmp_path), losses(whole.folder)
    assert ours.keys() == wanted.keys()
    np.testing.assert_allclose(
        [float(x) for x in ours.values()],
        [float(x) for x in wanted.values()],
        rtol=1e-5,
    )


def test_a_run_that_is_done_does_nothing_more(whole):
    outcome = run(whole.folder, resume=True)
    assert (outcome.first_step, outcome.last_step) == (13, 12)
    assert "was done already" in str(outcome)


class Interrupting(LocalRunner):
    """A runner that sends its process Ctrl-C while step 5 runs."""

    def agree_to_end(self, number, asked):
        if number == 5 and not asked:
            os.kill(os.getpid(), signal.SIGINT)
            return super().agree_to_end(number, True)
        return super().agree_to_end(number, asked)


def test_ctrl_c_saves_and_the_run_goes_on_from_there(whole, tmp_path):
    def make_runner(folder, chosen):
        return Interrupting(folder, chosen.checkpoint)

    before = signal.getsignal(signal.SIGINT)  # ignored, in a test run in the background
    outcome = run(tmp_path, make_runner=make_runner)
    assert not outcome.is_complete
    assert outcome.last_step == 5
    assert outcome.interruption.exit_status == 130
    assert signal.getsignal(signal.SIGINT) is before
    run(tmp_path, resume=True)
    assert losses(tmp_path) == losses(whole.folder)


def test_a_profile_stands_beside_the_predicted_step(tmp_path, capfd):
    run(tmp_path, ("steps = 12", "steps = 3\nprofile_step = 3\nlog_every = 1"))
    err = capfd.readouterr().err
    assert "profile of step 3: " in err
    assert " measured, " in err
    assert " predicted; " in err
    assert (tmp_path / "profile" / "predicted.json").is_file()
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))
    assert "step 1: loss" in err


@pytest.mark.slow
def test_a_search_finds_the_plan_of_a_recipe(tmp_path):
    plans: list[mw.Plan] = []
    run(
        tmp_path,
        ('"cut"', '"auto"\nbudget = 2'),
        ("steps = 12", "steps = 2"),
        ("evaluate_every = 6", ""),
        tell_plan=plans.append,
    )
    assert plans[0].mesh.num_devices == 8
    assert list(losses(tmp_path)) == [1, 2]


# -- accumulation, mixtures, divergence ------------------------------------------------


def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path):
    changes = [(":linear", ":exact"), ("steps = 12", "steps = 6")]
    run(tmp_path / "whole", *changes)
    run(tmp_path / "parts", *changes, ("[run]", "[run]\naccumulate = 2"))
    ours, wanted = (
        read_csv(tmp_path / name / "metrics.csv") for name in ("parts", "whole")
    )
    for name in ("loss", "gradient_norm", "parameter_norm", "evaluation_loss"):
        np.testing.assert_allclose(
            [float(row[name]) for row in ours if row[name]],
            [float(row[name]) for row in wanted if row[name]],
            rtol=1e-5,
        )
    saved = mw.Checkpoints(tmp_path / "parts" / "checkpoints", read_only=True).saved(6)
    counts = mw.Plan.from_json(saved.plan).counts
    found = {kind for kind, count in counts.items() if count}
    assert found == {"all_reduce"}  # each device has rows of every part


def test_a_run_on_a_mixture_goes_on_exactly(tmp_path):
    run(tmp_path / "whole", MIXTURE)
    run(tmp_path / "parts", MIXTURE, ("steps = 12", "steps = 5"))
    run(tmp_path / "parts", MIXTURE, resume=True)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    heavier = (MIXTURE[0], MIXTURE[1].replace("weight = 3", "weight = 4"))
    with pytest.raises(
        RecipeError, match=r"data\.mixture = \[\['many', 3, .*'many', 4"
    ):
        run(tmp_path / "parts", heavier, resume=True)


def test_a_run_that_diverges_stops_and_keeps_its_last_good_checkpoint(tmp_path):
    save = ("save_every = 4", "save_every = 2\nkeep = 1")
    with pytest.raises(DivergedError, match=r"step 6: loss nan.* is from step 4, and"):
        run(tmp_path, STEEP, save)
    kept = mw.Checkpoints(tmp_path / "checkpoints", read_only=True)
    assert kept.steps == (4,)
    like = {"params": {"w": np.zeros((4, 8), np.float32)}}
    assert np.isfinite(kept.restore(like, partial=True).state["params"]["w"]).all()
    assert losses(tmp_path)[6] == "nan"
    run(tmp_path, save, ("steps = 12", "steps = 7"), resume=True)  # with another loss
    assert float(losses(tmp_path)[6]) > 0


def test_updates_that_are_not_finite_can_be_left_out(tmp_path, capfd):
    outcome = run(tmp_path, STEEP, ("[run]", '[run]\non_nan = "skip"'))
    assert outcome.is_complete
    assert "step 6: loss nan" in (err := capfd.readouterr().err)
    assert "its update is left out" in err
    found = losses(tmp_path)
    assert [step for step, loss in found.items() if loss == "nan"] == [6]
    assert np.isfinite(outcome.evaluation_loss)


def test_a_run_that_learns_nothing_more_ends_even_if_updates_may_be_left_out(tmp_path):
    row = {"loss": 1.0, "gradient_norm": float("inf"), "parameter_norm": 1.0}
    watch = Watch(OnNan.SKIP, tmp_path, 0)
    for number in range(100):
        assert "left out" in str(watch.look_at(number, row))
    with pytest.raises(DivergedError, match="101 steps in a row were left out"):
        watch.look_at(100, row)


def test_metrics_for_tensorboard_are_in_the_file_at_each_save(tmp_path):
    pytest.importorskip("tensorboardX")
    seen = []

    class Looking(LocalRunner):
        def save(self, number, *rest):
            (events,) = (tmp_path / "tensorboard").iterdir()
            seen.append(events.read_bytes().count(b"gradient_norm"))
            super().save(number, *rest)

    chosen = recipe(tmp_path)
    chosen = replace(chosen, output=replace(chosen.output, tensorboard=True))
    train(chosen, make_runner=lambda folder, r: Looking(folder, r.checkpoint))
    assert seen == [4, 8, 12]


# -- refusals --------------------------------------------------------------------------


def test_a_folder_with_a_run_is_not_overwritten(whole):
    with pytest.raises(RecipeError, match="has a run of 12 steps; go on with --resume"):
        run(whole.folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("batch = 8", "batch = 4"), "data.batch = 8, the recipe has 4"),
        (("batch = 8", "batch = 8\nseed = 1"), "data.seed = 0, the recipe has 1"),
        (
            ("batch = 8", "batch = 8\noptions = { count = 512 }"),
            r"data.options = \{\}, the recipe has \{'count': 512\}",
        ),
    ],
)
def test_a_run_is_not_gone_on_with_on_other_data(change, words, whole):
    with pytest.raises(RecipeError, match=words):
        run(whole.folder, change, resume=True)


def test_a_run_is_not_gone_on_with_on_data_that_grew(tmp_path):
    text, short = tmp_path / "a.txt", ("steps = 12", "steps = 1")
    text.write_bytes(bytes(300))
    of_text = [
        (f'source = "{MODELS}:numbered"', f'text = "{text}"\nsequence = 4'),
        (":linear", ":of_tokens"),
        ("evaluate_every = 6", ""),
        ('"cut"', "[]"),
    ]
    run(tmp_path / "run", *of_text, short)
    text.write_bytes(bytes(400))
    with pytest.raises(RecipeError, match=r"it had 74 examples, now there are 99"):
        run(tmp_path / "run", *of_text, resume=True)
    text.write_bytes(bytes(299) + b"!")
    with pytest.raises(
        RecipeError, match=r"same number of examples, but they or their"
    ):
        run(tmp_path / "run", *of_text, resume=True)


@pytest.mark.parametrize("position", [None, 4, {}, {"batches": 4}])
def test_a_run_without_a_known_place_in_the_data_is_not_gone_on_with(
    position, tmp_path
):
    wanted = position_of(recipe(tmp_path).data, {}, 4)
    saved = Saved(4, position, {}, None, "2026-01-02T00:00:00+00:00", {})
    with pytest.raises(RecipeError, match=r"was saved without data\.batch"):
        require_same_data(wanted, Restored(None, saved), tmp_path)


def test_options_of_the_data_may_be_of_any_kind_that_toml_has(tmp_path):
    change = ("batch = 8", "batch = 8\noptions = { since = 2026-01-02, of = [1, 2.5] }")
    found = position_of(recipe(tmp_path, change).data, {}, 4)
    assert found["options"] == {"since": "2026-01-02", "of": [1, 2.5]}


def test_two_runs_in_one_folder_are_refused(whole):
    with (
        mw.Checkpoints(whole.folder / "checkpoints"),
        pytest.raises(CheckpointError, match="has another writer"),
    ):
        run(whole.folder, resume=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((":linear", ":liner"), "has no function 'liner'; did you mean 'linear'"),
        ((":linear", ":not_a_model"), "returned 3; wanted a function that returns"),
        ((':linear"', ':linear"\noptions = { widht = 3 }'), "did you mean 'width'"),
        (('"cut"', '"cutt"'), "no schedule 'cutt'; did you mean 'cut'"),
        (('"cut"', "[\"fsdp('dat')\"]"), "dat"),
        (("data = 4", "data = 16"), "needs 16 devices, but JAX sees 8"),
        (("data = 4", "data = -1, model = 3"), "8 devices are no multiple of 3"),
        (("adam", "adamm"), "optax has no 'adamm'; did you mean 'adam"),
        (('"adam"', '"adam"\noptions = { epss = 1.0 }'), "did you mean 'eps'"),
        (("batch = 8", "batch = 8\noptions = { count = 0 }"), "sequence of length 0"),
        (
            ("held_out = 0.25", "held_out = 0.001"),
            "leaves none to train or to evaluate",
        ),
        (
            ("batch = 8", "batch = 8\noptions = { count = 9 }"),
            r"\[data\] has 7 examples to train on, and a batch takes 8.* lower data\.batch",
        ),
        (
            (
                MIXTURE[0],
                MIXTURE[1].replace("weight = 3", "weight = 0.2").replace("16", "8"),
            ),
            r"\[data\.mixture\.few\] has 6 examples to train on, and a batch takes 7",
        ),
        (
            (MIXTURE[0], MIXTURE[1].replace("count = 16", "width = 3")),
            r"examples of data\.mixture\.few are .*float32\[3\]",
        ),
    ],
)
def test_what_a_recipe_cannot_mean_is_refused_before_the_first_step(
    change, words, tmp_path
):
    with pytest.raises(mw.MeshwrightError, match=words):
        run(tmp_path, change)
    assert not (tmp_path / "metrics.csv").exists()


def test_a_recipe_prints_as_its_tables():
    assert "batch=8" in str(recipe("folder").data)
