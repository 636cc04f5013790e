import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from zoo import gns, springs
from zoo.gns import TINY, Simulator


@pytest.fixture(scope="module")
def network():
    return springs.simulate(24, 60, times=30, rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def told():
    """The tiny net's function of a batch's nodes and edges, and a batch."""
    _, (state, batch) = gns.tiny()
    net = jax.jit(Simulator(TINY).apply)
    return lambda nodes, edges: net({"params": state.params}, nodes, edges), batch


def test_springs_pull_both_of_their_ends_alike(network):
    rng = np.random.default_rng(1)
    position, velocity = rng.normal(size=(2, 24, 2))
    pull = springs.acceleration(position, velocity, *network[:2])
    np.testing.assert_allclose(pull.sum(axis=0), 0, atol=1e-9)


def test_a_spring_at_rest_pulls_nothing():
    length = np.sqrt(springs.LENGTH**2 - springs.CORE**2)
    position = np.array([[0, 0], [length, 0]])
    ends = np.array([0, 1]), np.array([1, 0])
    still = np.zeros_like(position)
    rest = springs.acceleration(position, still, *ends)
    np.testing.assert_allclose(rest, 0, atol=1e-9)
    stretched = springs.acceleration(2 * position, still, *ends)
    assert stretched[0, 0] > 0 > stretched[1, 0]


def test_second_differences_of_positions_are_accelerations():
    found = springs.simulate(12, 24, times=12, rng=np.random.default_rng(3))
    x = found.positions.astype(float)
    second = x[2:] - 2 * x[1:-1] + x[:-2]
    for t in range(len(second)):
        velocity = (x[t + 1] - x[t]) / springs.STEP_S
        pull = springs.acceleration(x[t + 1], velocity, *found[:2])
        np.testing.assert_allclose(second[t], springs.STEP_S**2 * pull, atol=2e-5)


def test_every_spring_is_two_edges(network):
    forth = set(zip(network.senders.tolist(), network.receivers.tolist(), strict=True))
    assert len(forth) == 60
    assert {(b, a) for a, b in forth} == forth


def test_batches_are_the_same_for_the_same_seed():
    first, again, other = (
        next(springs.batches(16, 40, seed, networks=2)) for seed in (0, 0, 1)
    )
    assert jax.tree.all(jax.tree.map(np.array_equal, first, again))
    assert not np.array_equal(first["target"], other["target"])


def test_a_target_takes_back_the_noise_on_the_velocity():
    """From the noisy velocity it leads to the way that the particle really went."""
    known = springs.simulate(16, 40, 40, np.random.default_rng(0)).positions
    batch = next(springs.batches(16, 40, seed=0, networks=1))
    velocity = batch["nodes"]["velocity"][:, -springs.DIMS :] * springs.VELOCITY_SCALE
    pull = batch["target"] * springs.PULL_SCALE
    way = springs.STEP_S * velocity + springs.STEP_S**2 * pull
    missed = np.abs(np.diff(known, axis=0) - way).max(axis=(1, 2))
    assert missed.min() < 1e-5


def test_targets_are_about_one():
    moments = springs.batches(32, 96, seed=0)
    assert 0.5 < np.std([next(moments)["target"] for _ in range(30)]) < 2


def test_a_net_hears_where_particles_are_only_from_each_other(told):
    net, batch = told
    nodes = batch["nodes"]
    moved = {**nodes, "position": nodes["position"] + np.float32(3)}
    np.testing.assert_allclose(
        net(nodes, batch["edges"]), net(moved, batch["edges"]), atol=2e-3
    )


def test_the_order_of_edges_does_not_matter(told):
    net, batch = told
    order = np.random.default_rng(0).permutation(TINY.edges)
    edges = {name: ends[order] for name, ends in batch["edges"].items()}
    np.testing.assert_allclose(
        net(batch["nodes"], batch["edges"]), net(batch["nodes"], edges), atol=2e-4
    )


@pytest.mark.parametrize("name", gns.SIZES)
def test_sizes_are_those_of_partir(name):
    _, (state, batch) = gns.targets[name]()
    steps = state.params["steps"]["edge"]
    assert steps["layer_0"]["kernel"].shape == (24, 3 * 512, 1024)
    assert len(steps) == 5 + 1  # five layers and a norm
    assert batch["nodes"]["position"].shape[0] == 2048
    assert batch["edges"]["senders"].shape == (gns.SIZES[name].edges,)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": 1}, "an MLP has 2 or more layers, not 1"),
        ({"edges": 7}, "4 nodes have at most 12, not 7"),
        ({"edges": 14}, "4 nodes have at most 12, not 14"),
    ],
)
def test_a_config_that_does_not_fit_says_why(changes, words):
    sizes = {"steps": 2, "layers": 2, "hidden": 8, "latent": 8, "nodes": 4, "edges": 6}
    with pytest.raises(ValueError, match=words):
        gns.Config(**{**sizes, **changes})


def test_edges_cut_over_devices_pay_sums_only():
    """Each step sums messages forward, and what senders and receivers hear backward."""
    fn, args = gns.tiny()
    plan = mw.partition(fn, mw.Mesh({"data": 4, "model": 2}), gns.schedules["es"]).plan(
        *args
    )
    cut = {leaf.path for leaf in plan.inputs if any(leaf.spec)}
    assert cut == {"batch.edges.senders", "batch.edges.receivers"}
    assert plan.counts["all_reduce"] >= 2 * TINY.steps
    assert {k for k, n in plan.counts.items() if n} == {"all_reduce"}


@pytest.mark.slow
def test_the_tiny_net_learns_how_particles_move():
    """Its loss falls, and it foretells 20 steps of a network that it has never seen."""
    told = list(gns.learn(TINY, seed=0, steps=400))
    losses = [float(value) for _, value in told]
    params = told[-1][0].params
    assert np.mean(losses[-30:]) < 0.1 * np.mean(losses[:3])

    unseen = springs.simulate(TINY.nodes, TINY.edges, 30, np.random.default_rng(99))
    known = springs.HISTORY + 1
    truth = unseen.positions[known : known + 20]
    ends = {"senders": unseen.senders, "receivers": unseen.receivers}
    start = jnp.asarray(unseen.positions[:known])
    foretold = gns.roll_out(TINY, params, ends, start, 20)
    velocity = unseen.positions[known - 1] - unseen.positions[known - 2]
    steps = np.arange(1, 21)[:, None, None]
    straight = unseen.positions[known - 1] + steps * velocity
    missed, missed_straight = (
        np.sqrt(np.mean(np.square(x - truth))) for x in (foretold, straight)
    )
    assert missed < 0.5 * missed_straight


def test_a_simulation_goes_on_from_its_own_guesses(network):
    """A net that says 0 lets all particles fly straight on."""
    config = gns.Config(1, 2, 8, 8, nodes=24, edges=60)
    params = jax.jit(partial(gns.start, config))(jax.random.key(0)).params
    params["decode"] = jax.tree.map(jnp.zeros_like, params["decode"])
    known = jnp.asarray(network.positions[: springs.HISTORY + 1])
    ends = {"senders": network.senders, "receivers": network.receivers}
    found = gns.roll_out(config, params, ends, known, 4)
    velocity = known[-1] - known[-2]
    for i, position in zip(itertools.count(1), found, strict=False):
        np.testing.assert_allclose(position, known[-1] + i * velocity, atol=1e-4)
