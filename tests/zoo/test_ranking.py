from dataclasses import replace
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import ranking
from zoo.letor import GRADES, MadeLists, batches, load_letor
from zoo.listwise import LOSSES
from zoo.once import once
from zoo.workload import num_parameters

SMALL = ranking.Config(8, hidden=(32,), items=12, batch=32, rate=1e-2)

FILE = """\
2 qid:10 1:0.5 3:7 # the first document

0 qid:10 2:-1e2
# a line of its own
1 qid:11 1:1 2:2 3:3
4 qid:10 3:0.25
"""


def written(folder, text):
    path = folder / "train.txt"
    path.write_text(text)
    return path


# -- scorer ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ranking.SIZES)
def test_a_scorer_has_a_matrix_and_a_bias_for_each_layer(name):
    config = ranking.SIZES[name]
    widths = (config.features, *config.hidden, 1)
    _, (state, _) = ranking.targets[name]()
    assert num_parameters(state.params) == sum(a * b + b for a, b in pairwise(widths))


def test_an_item_is_scored_by_its_own_features_alone():
    params = once(partial(ranking.init, SMALL))(jax.random.key(0))
    features = jax.random.normal(jax.random.key(1), (2, 12, 8))
    scores = once(partial(ranking.scores, SMALL))
    before = scores(params, features)
    after = scores(params, features.at[:, 3].set(9.0))
    others = np.arange(12) != 3
    np.testing.assert_allclose(before[:, others], after[:, others], rtol=1e-5)
    assert not np.allclose(before[:, 3], after[:, 3])


def test_padding_changes_neither_loss_nor_gradient():
    batch = next(ranking.made_batches(SMALL, seed=0, count=64))
    assert not batch["where"].all()
    params = once(partial(ranking.init, SMALL))(jax.random.key(0))
    other = batch["features"] + 5.0 * ~batch["where"][..., None]
    run = jax.jit(jax.value_and_grad(partial(ranking.loss, SMALL)))
    before, after = (
        run(params, batch | {"features": x}) for x in (batch["features"], other)
    )
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4), before, after)


FIRST, *OTHERS = LOSSES


@pytest.mark.parametrize(
    "name", [FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_training_raises_ndcg_whatever_the_loss(name):
    curve = list(ranking.learn(replace(SMALL, loss=name), seed=0, steps=60))
    assert set(curve[0]) == {"loss", "ndcg", "mrr"}
    first, last = (
        {key: np.mean([row[key] for row in part]) for key in part[0]}
        for part in (curve[:5], curve[-5:])
    )
    assert last["loss"] < first["loss"]
    assert last["ndcg"] > first["ndcg"] + 0.2


@pytest.mark.slow
def test_the_small_form_learns_to_rank():
    curve = list(ranking.train(seed=0, steps=150))
    assert curve[0]["ndcg"] < 0.6
    assert np.mean([row["ndcg"] for row in curve[-5:]]) > 0.85


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": "hinge"}, "there is no loss 'hinge'; there are softmax, pairwise_"),
        ({"items": 1}, "a list to rank has 2 items or more, not 1"),
        ({"hidden": (64, 0)}, "hidden is at least 1, not 0"),
        ({"features": 0}, "features is at least 1, not 0"),
    ],
)
def test_a_config_that_does_not_fit_says_why(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **changes)


# -- lists -------------------------------------------------------------------------


def test_a_file_is_read_into_lists(tmp_path):
    first, second = load_letor(written(tmp_path, FILE), features=3, items=4)
    np.testing.assert_array_equal(
        first["features"], [[0.5, 0, 7], [0, -100, 0], [0, 0, 0.25], [0, 0, 0]]
    )
    np.testing.assert_array_equal(first["labels"], [2, 0, 4, 0])
    np.testing.assert_array_equal(first["where"], [True, True, True, False])
    np.testing.assert_array_equal(second["features"][0], [1, 2, 3])
    np.testing.assert_array_equal(second["where"], [True, False, False, False])
    assert all(x.dtype == np.float32 for x in (first["features"], first["labels"]))


def test_of_a_longer_list_the_first_items_stay(tmp_path):
    first, _ = load_letor(written(tmp_path, FILE), features=3, items=2)
    np.testing.assert_array_equal(first["labels"], [2, 0])
    assert first["where"].all()


def test_lists_that_are_written_are_read_again(tmp_path):
    made = [MadeLists(4, 6, 3, seed=0)[i] for i in range(4)]
    text = "".join(
        f"{label} qid:{query} "
        + " ".join(f"{i}:{value:.9g}" for i, value in enumerate(row, start=1))
        + "\n"
        for query, one in enumerate(made)
        for row, label, kept in zip(*(one[k] for k in one), strict=True)
        if kept
    )
    read = load_letor(written(tmp_path, text), features=3, items=6)
    jax.tree.map(np.testing.assert_array_equal, read, made)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2 1:0.5", "wanted `label qid:query 1:value"),
        ("2", "wanted `label qid:query 1:value"),
        ("2 qid: 1:0.5", "wanted `label qid:query 1:value"),
        ("good qid:1 1:0.5", "'good' is no finite number"),
        ("nan qid:1 1:0.5", "'nan' is no finite number"),
        ("2 qid:1 1:", "'' is no finite number"),
        ("2 qid:1 1:0.5:3", "'0.5:3' is no finite number"),
        ("2 qid:1 1:inf", "'inf' is no finite number"),
        ("2 qid:1 7", "'7' is no `feature:value`"),
        ("2 qid:1 0:1", "feature '0' is none of 1 to 3"),
        ("2 qid:1 4:1", "feature '4' is none of 1 to 3"),
        ("2 qid:1 x:1", "feature 'x' is none of 1 to 3"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path, line, words):
    path = written(tmp_path, FILE + line + "\n1 qid:12 1:1\n")
    with pytest.raises(ValueError, match=rf"train.txt, line 7: {words}.*{line[:8]}"):
        load_letor(path, features=3, items=4)


def test_a_file_without_lists_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"train.txt holds no list"):
        load_letor(written(tmp_path, "# nothing\n"), features=3, items=4)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*missing\.txt"):
        load_letor(tmp_path / "missing.txt", features=3, items=4)
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        load_letor(tmp_path, features=3, items=4)
    (tmp_path / "packed.gz").write_bytes(b"\x1f\x8b\x08\xff")
    with pytest.raises(ValueError, match=r"packed\.gz is no text: wanted lines such"):
        load_letor(tmp_path / "packed.gz", features=3, items=4)


@pytest.mark.parametrize("wrong", [{"features": 0}, {"items": 0}])
def test_lists_without_room_are_refused(tmp_path, wrong):
    room = {"features": 3, "items": 4} | wrong
    with pytest.raises(ValueError, match="features and items are at least 1"):
        load_letor(written(tmp_path, FILE), **room)


def test_a_file_can_be_trained_on(tmp_path):
    lists = load_letor(written(tmp_path, FILE), features=3, items=4)
    batch = next(batches(lists, batch=2, seed=0))
    assert batch["features"].shape == (2, 4, 3)
    config = replace(SMALL, features=3, items=4, batch=2)
    state, loss = jax.jit(ranking.train_step_for(config))(
        ranking.start(config, jax.random.key(0)), batch
    )
    assert jnp.isfinite(loss)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.params))


def test_made_lists_have_all_grades_and_more_of_the_low_ones():
    lists = MadeLists(50, 40, 4, seed=0)
    labels = np.concatenate(
        [one["labels"][one["where"]] for one in map(lists.__getitem__, range(50))]
    )
    counts = np.bincount(labels.astype(int), minlength=GRADES)
    assert len(counts) == GRADES
    assert (np.diff(counts) < 0).all()


def test_batches_are_the_same_for_the_same_seed():
    first, again, other = (
        next(ranking.made_batches(SMALL, seed, count=64))["features"]
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
