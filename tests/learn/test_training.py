"""The training loop on a toy: order, learning rate, curve, resumption, an early end."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.errors import LearnedError
from meshwright.learn.optimizers import adam_start, adam_step, adamw, descend
from meshwright.learn.training import (
    ModelCheckpoints,
    TrainingSchedule,
    TrainingState,
    train_epochs,
)

SCHEDULE = TrainingSchedule(seed=0, epochs=20, learning_rate=0.5, warmup=0.1)
EXAMPLES = (1.0, 2.0, 6.0)


def towards(params, state, example, epoch, rate, random):
    """A step of gradient descent on (x - example)^2 / 2 with some noise."""
    x = params["x"]
    noise = 1e-3 * random.normal()
    return {"x": x - rate * (x - example + noise)}, state + 1, (x - example) ** 2 / 2


def run(first=None, **options):
    start = first or TrainingState({"x": 0.0}, 0)
    return list(train_epochs(start, EXAMPLES, SCHEDULE, towards, **options))


def test_each_epoch_takes_each_example_once_and_adds_a_point_to_the_curve():
    after = run()
    assert [each.state for each in after] == [3 * n for n in range(1, 21)]
    assert [point.epoch for point in after[-1].curve] == list(range(20))
    assert after[-1].params["x"] == pytest.approx(3, abs=0.6)


def test_a_resumed_training_is_the_same():
    whole = run()
    resumed = run(first=whole[6])
    assert len(resumed) == 13
    assert resumed[-1].params == whole[-1].params
    assert [p.loss for p in resumed[-1].curve] == [p.loss for p in whole[-1].curve]


def test_leaving_the_loop_ends_the_training():
    start, calls = TrainingState({"x": 0.0}, 0), []

    def step(*arguments):
        calls.append(arguments)
        return towards(*arguments)

    ended = itertools.islice(train_epochs(start, EXAMPLES, SCHEDULE, step), 2)
    assert len(list(ended)) == 2
    assert len(calls) == 6


def test_the_score_is_taken_ten_times():
    scores = [p.valid_score for p in run(score_fn=lambda params: params["x"])[-1].curve]
    assert [not math.isnan(score) for score in scores] == [False, True] * 10


def test_the_learning_rate_warms_up_and_decays():
    schedule = TrainingSchedule(seed=0, epochs=4, learning_rate=1e-2, warmup=0.1)
    rates = [schedule.rate(share) for share in (0, 0.05, 0.1, 0.55, 1)]
    assert rates == pytest.approx([0, 5e-3, 1e-2, 5e-3, 0])
    with pytest.raises(LearnedError, match="from 0 to below 1"):
        TrainingSchedule(0, 4, 1e-2, warmup=1.0)
    with pytest.raises(LearnedError, match="learning_rate positive"):
        TrainingSchedule(0, 4, 0.0, warmup=0.1)


def test_checkpoints_are_due_every_few_epochs_and_after_the_last(tmp_path):
    kept = ModelCheckpoints(tmp_path / "model.npz", every=3)
    assert [epoch for epoch in range(8) if kept.is_due(epoch, 8)] == [2, 5, 7]


def test_the_first_step_of_adamw_has_the_size_of_the_rate_and_decay():
    optimizer = adamw(0.5)
    params, grads = {"x": jnp.array([2.0, -4.0])}, {"x": jnp.array([3.0, 4.0])}
    updates, _ = optimizer.update(grads, optimizer.init(params), params)
    found = descend(params, updates, 0.1)["x"]  # Adam's first step is the sign
    np.testing.assert_allclose(
        found, [2 - 0.1 * (1 + 1), -4 - 0.1 * (1 - 2)], rtol=1e-4
    )


def test_the_first_step_of_adam_has_the_size_of_the_rate():
    params, grads = {"x": jnp.array([2.0, -4.0])}, {"x": jnp.array([3.0, -4.0])}
    found, (count, first, _) = adam_step(params, adam_start(params), grads, 0.1)
    np.testing.assert_allclose(found["x"], [1.9, -3.9], rtol=1e-5)
    assert count == 1
    np.testing.assert_allclose(
        first["x"], [0.06, -0.08], rtol=1e-5
    )  # clipped to norm 1
