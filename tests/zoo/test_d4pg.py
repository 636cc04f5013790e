from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo import d4pg, pendulum
from zoo.categorical import mean_return, project
from zoo.replay import Replay, n_step_returns, transitions
from zoo.workload import num_parameters


@pytest.fixture(scope="module")
def tiny():
    """The learner, compiled once, and its arguments."""
    fn, args = d4pg.tiny()
    return jax.jit(fn), args


def projected_by_hand(returns, chances, atoms):
    """Algorithm 1 of Bellemare et al. (2017), loop by loop."""
    aim, gap = np.zeros_like(chances), atoms[1] - atoms[0]
    for row in range(len(chances)):
        for z, chance in zip(returns[row], chances[row], strict=True):
            place = (min(max(z, atoms[0]), atoms[-1]) - atoms[0]) / gap
            lower, upper = int(np.floor(place)), int(np.ceil(place))
            aim[row, lower] += chance * (upper - place if lower < upper else 1)
            aim[row, upper] += chance * (place - lower)
    return aim


def random_chances(rng, rows, atoms):
    return rng.dirichlet(np.ones(atoms), rows).astype(np.float32)


@given(st.integers(0, 2**32 - 1), st.floats(-3, 3), st.floats(0, 1.5))
def test_a_projection_is_that_of_the_loop(seed, reward, discount):
    rng, atoms = np.random.default_rng(seed), np.linspace(-2, 2, 9)
    chances = random_chances(rng, 3, 9)
    returns = reward + discount * np.tile(atoms, (3, 1))
    ours = project(jnp.asarray(returns), jnp.asarray(chances), jnp.asarray(atoms))
    np.testing.assert_allclose(
        ours, projected_by_hand(returns, chances, atoms), atol=1e-5
    )


def test_a_projection_keeps_sums_and_means_between_the_ends():
    rng, atoms = np.random.default_rng(0), jnp.linspace(-2, 2, 9)
    chances = random_chances(rng, 50, 9)
    returns = rng.uniform(-2, 2, (50, 9)).astype(np.float32)
    aim = project(jnp.asarray(returns), jnp.asarray(chances), atoms)
    np.testing.assert_allclose(aim.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(
        mean_return(aim, atoms), (chances * returns).sum(axis=1), atol=1e-5
    )


def test_returns_beyond_the_ends_go_to_the_ends():
    aim = project(
        jnp.array([[-9.0, 9.0]]), jnp.array([[0.25, 0.75]]), jnp.array([0.0, 1.0])
    )
    np.testing.assert_allclose(aim, [[0.25, 0.75]])


def test_a_pendulum_without_torque_keeps_its_energy():
    state = pendulum.anywhere(jax.random.key(0), 16)
    push = jnp.linspace(-5, 5, 16)
    state = state.at[:, 1].set(push)
    before = pendulum.energy(state)
    free = jax.jit(
        lambda x: jax.lax.fori_loop(
            0, 1000, lambda _, x: pendulum.advance(x, jnp.zeros(16)), x
        )
    )
    drift = jnp.abs(pendulum.energy(free(state)) - before)
    assert float(jnp.max(drift)) < 0.02 * pendulum.GRAVITY


def test_torque_changes_energy_by_its_work():
    state = jnp.array([[0.3, 0.5]])
    after = pendulum.advance(state, jnp.array([2.0]))
    work = 2.0 * (after[0, 0] - state[0, 0])
    gained = pendulum.energy(after) - pendulum.energy(state)
    assert gained[0] == pytest.approx(float(work), rel=1e-3)


def test_the_motor_gives_no_more_than_it_can():
    state = jnp.array([[1.0, 0.0]])
    most = pendulum.advance(state, jnp.array([pendulum.TORQUE]))
    np.testing.assert_array_equal(pendulum.advance(state, jnp.array([99.0])), most)


def test_the_motor_alone_does_not_lift_the_pendulum():
    state = pendulum.hanging(jax.random.key(0), 4)
    torque, step = jnp.full(4, pendulum.TORQUE), jax.jit(pendulum.advance)
    for _ in range(40):
        state = step(state, torque)
        assert float(jnp.max(jnp.cos(state[:, 0]))) < 0.5


def test_reward_is_one_upright_and_zero_hanging():
    state = jnp.array([[0.0, 3.0], [jnp.pi, 0.0]])
    np.testing.assert_allclose(pendulum.reward(state), [1, 0], atol=1e-6)


@given(st.integers(1, 8), st.floats(0, 1))
def test_n_step_returns_are_those_of_the_loop(steps, discount):
    reward = np.random.default_rng(0).random((8, 3))
    ours = n_step_returns(reward, steps, discount)
    assert ours.shape == (8 - steps + 1, 3)
    for t in range(len(ours)):
        by_hand = sum(discount**i * reward[t + i] for i in range(steps))
        np.testing.assert_allclose(ours[t], by_hand)


def test_more_steps_than_an_episode_has_are_refused():
    with pytest.raises(ValueError, match="9 steps do not fit an episode of 8"):
        n_step_returns(np.zeros((8, 1)), 9, 0.9)


def test_a_transition_ends_where_its_rewards_end():
    seen = np.arange(6.0)[:, None, None] * np.ones((6, 2, 1))
    kept = transitions(seen, np.zeros((5, 2, 1)), np.ones((5, 2)), 3, 0.5)
    assert {len(array) for array in kept.values()} == {6}
    np.testing.assert_array_equal(kept["next_observation"] - kept["observation"], 3)
    np.testing.assert_allclose(kept["return"], 1 + 0.5 + 0.25)
    np.testing.assert_allclose(kept["discount"], 0.125)


def test_a_replay_keeps_the_latest():
    replay = Replay(10)
    for start in (0, 6, 12):
        replay.add({"number": np.arange(start, start + 6)})
    assert len(replay) == 10
    _, batch = replay.sample(1000, np.random.default_rng(0))
    assert set(batch["number"]) == set(range(8, 18))


def test_a_replay_draws_in_proportion_to_priorities():
    replay = Replay(4)
    replay.add({"number": np.arange(4)})
    replay.prioritise(np.arange(4), np.array([0.0, 1.0, 2.0, 8.0]))
    places, batch = replay.sample(40_000, np.random.default_rng(0))
    share = (np.array([0, 1, 2, 8]) + 1e-3) ** 0.6
    share = share / share.sum()
    drawn = np.bincount(places, minlength=4) / len(places)
    np.testing.assert_allclose(drawn, share, atol=0.01)
    weight = (4 * share) ** -0.4
    np.testing.assert_allclose(
        batch["weight"], (weight / weight[places].max())[places], rtol=1e-5
    )


def test_an_empty_replay_and_one_that_is_too_small_say_so():
    with pytest.raises(ValueError, match="nothing to sample: add transitions first"):
        Replay(3).sample(2, np.random.default_rng(0))
    with pytest.raises(ValueError, match="4 transitions do not fit into 3"):
        Replay(3).add({"number": np.arange(4)})
    with pytest.raises(ValueError, match="a store of 0 transitions holds nothing"):
        Replay(0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lowest": 5.0, "highest": 5.0}, "returns from 5.0 to 5.0 leave no room"),
        ({"atoms": 1}, "1 atoms span no returns"),
        ({"discount": 1.5}, r"a discount of 1.5 is not in \(0, 1\]"),
        ({"critic": ()}, "both networks need a layer"),
    ],
)
def test_a_bad_configuration_says_what_is_wrong(change, words):
    with pytest.raises(ValueError, match=words):
        replace(d4pg.TINY, **change)


def test_the_networks_have_the_sizes_of_acme():
    _, (state, _) = d4pg.targets["humanoid"]()
    actor, critic = state.params["actor"], state.params["critic"]

    def mlp(*widths):
        return sum((a + 1) * b for a, b in pairwise(widths))

    assert num_parameters(actor) == mlp(67, 300, 200, 21) + 2 * 300
    assert num_parameters(critic) == mlp(67 + 21, 400, 300, 51) + 2 * 400


def test_targets_are_copied_once_a_period(tiny):
    step, (state, batch) = tiny
    period = d4pg.TINY.period
    state = state._replace(stats=state.stats | {"updates": jnp.int32(period - 2)})
    first = jax.tree.leaves(state.stats["target"])
    state, _ = step(state, batch)
    before = jax.tree.leaves(state.stats["target"])
    assert all((a == b).all() for a, b in zip(first, before, strict=True))
    state, _ = step(state, batch)
    params, after = state.params, state.stats["target"]
    same = jax.tree.map(lambda a, b: bool((a == b).all()), params, after)
    assert all(jax.tree.leaves(same))
    assert int(state.stats["updates"]) == period


def test_critic_and_actor_teach_only_themselves(tiny):
    _, (state, batch) = tiny
    target = state.stats["target"]

    def both(params):
        _, learned = d4pg.loss(d4pg.TINY, params, target, batch)
        return jnp.stack([learned.loss, learned.value])

    def is_zero(part):
        return all((leaf == 0).all() for leaf in jax.tree.leaves(part))

    jacobian = jax.jit(jax.jacrev(both))(state.params)
    of_critic, of_actor = (jax.tree.map(lambda x, i=i: x[i], jacobian) for i in (0, 1))
    assert is_zero(of_critic["actor"])
    assert not is_zero(of_critic["critic"])
    assert is_zero(of_actor["critic"])
    assert not is_zero(of_actor["actor"])


def test_a_learner_foresees_what_it_has_seen(tiny):
    step, (state, batch) = tiny
    batch = batch | {"return": np.full(256, 37.5, np.float32)}
    batch = batch | {"discount": np.zeros(256, np.float32)}
    for _ in range(150):
        state, learned = step(state, batch)
    assert float(learned.value) == pytest.approx(37.5, abs=2)


@pytest.mark.slow
def test_training_swings_the_pendulum_up():
    rows = list(d4pg.train(seed=0, steps=60))
    assert rows[0]["return"] < 40
    assert np.mean([row["return"] for row in rows[-6:]]) > 120
