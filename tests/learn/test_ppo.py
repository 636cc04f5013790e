"""PPO on a toy: agents that each choose one of three actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.errors import LearnedError
from meshwright.learn.ppo import Experience, Policy, PolicyTrainer

PRIOR = np.zeros((8, 3), np.float32)
"""Five agents, and three rows of padding."""


def log_p(params, prior):
    return jax.nn.log_softmax(prior + params["bias"], axis=-1)


def new():
    return Policy.new(log_p, {"bias": jnp.zeros(3)})


def test_a_policy_learns_the_action_that_is_rewarded():
    trainer, random = PolicyTrainer(new(), rate=5e-2), np.random.default_rng(0)
    for _ in range(40):
        odds = np.exp(trainer.policy.log_probabilities(PRIOR).astype(np.float64))
        actions = random.choice(3, size=(10, 5), p=odds[0] / odds[0].sum())
        rewards = (actions == 2).mean(axis=1)
        trainer.learn(Experience((PRIOR,), actions, rewards))
    odds = np.exp(trainer.policy.log_probabilities(PRIOR))
    assert odds[0, 2] > 0.6
    assert 0 < trainer.steps_done <= 40  # rounds with equal rewards are left out


def test_equal_rewards_teach_nothing():
    trainer = PolicyTrainer(new())
    before = trainer.policy
    actions = np.array([[0, 1, 2, 0, 1], [1, 1, 2, 0, 0]])
    trainer.learn(Experience((PRIOR,), actions, np.ones(2)))
    assert trainer.policy is before


def test_a_restored_policy_is_the_one_that_was_saved(tmp_path):
    trainer = PolicyTrainer(new())
    actions = np.array([[0, 1, 2, 0, 1], [1, 1, 2, 0, 0]])
    trainer.learn(Experience((PRIOR,), actions, np.array([0.0, 1.0])))
    trainer.policy.save(tmp_path / "policy.npz")
    found = new().restored(tmp_path / "policy.npz")
    for one, other in zip(
        jax.tree.leaves((found.params, found.state)),
        jax.tree.leaves((trainer.policy.params, trainer.policy.state)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_a_file_of_another_network_is_refused(tmp_path):
    new().save(tmp_path / "policy.npz")
    other = Policy.new(log_p, {"bias": jnp.zeros(4)})
    with pytest.raises(LearnedError, match="of another network: train again"):
        other.restored(tmp_path / "policy.npz")
    (tmp_path / "policy.npz").write_bytes(b"no archive")
    with pytest.raises(LearnedError, match="is no readable npz file"):
        new().restored(tmp_path / "policy.npz")


def test_proposals_with_equal_inputs_of_their_own_teach_the_same_as_shared_ones():
    shared, own = PolicyTrainer(new()), PolicyTrainer(new())
    random = np.random.default_rng(0)
    actions, rewards = random.integers(0, 3, (4, 5)), random.random(4)
    shared.learn(Experience((PRIOR,), actions, rewards))
    each = np.tile(PRIOR[:5], (4, 1, 1))
    own.learn(Experience((each,), actions, rewards))
    first, second = (t.policy.params["bias"] for t in (shared, own))
    np.testing.assert_allclose(first, second, atol=1e-6)
    assert np.abs(first).max() > 0
