"""D4PG: an actor, trained by a critic that predicts a distribution of returns.

G. Barth-Maron, M. Hoffman, D. Budden, W. Dabney, D. Horgan, D. TB, A. Muldal, N. Heess,
T. Lillicrap, "Distributed Distributional Deterministic Policy Gradients", ICLR 2018; a
benchmark of TF-Replicator (Buchlovsky et al., 2019), which cuts the learner's batch.

The learner's step is the program to partition: one batch of n-step transitions from a
prioritised replay (`zoo.replay`) trains critic and actor. Around it `train` runs actors
on a pendulum (`zoo.pendulum`).

Sizes are those of Acme, DeepMind's collection of agents: layers, tanh after the first
layer's norm, ELU after others, 51 atoms from -150 to 150, targets copied every 100 steps;
observations and actions are those of tasks of the control suite (Tassa et al., 2018).

Letters: B batch, O numbers observed, U those of an action, A atoms, E episodes at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import meshwright as mw
from zoo import pendulum
from zoo.categorical import mean_return, project
from zoo.replay import Replay, transitions
from zoo.training import ALONE, Replicas, State
from zoo.workload import Curve, Workload, check_numbers, sized


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a task, of both networks and of the batch.

    observation, action: O and U.
    lowest, highest: returns at the first and the last atom.
    steps: rewards that a transition sums.
    period: steps of the learner between two copies to the target networks.
    noise: standard deviation of what an actor adds to its actions in [-1, 1].
    """

    observation: int
    action: int
    batch: int = 256
    actor: tuple[int, ...] = (300, 200)
    critic: tuple[int, ...] = (400, 300)
    atoms: int = 51
    lowest: float = -150.0
    highest: float = 150.0
    steps: int = 5
    discount: float = 0.99
    period: int = 100
    noise: float = 0.3
    rate: float = 1e-4

    def __post_init__(self) -> None:
        check_numbers(self, may_be_negative=("lowest", "highest"))
        if self.lowest >= self.highest:
            raise ValueError(
                f"returns from {self.lowest} to {self.highest} leave no room for atoms"
            )
        if self.atoms < 2:
            raise ValueError(f"{self.atoms} atoms span no returns; 2 or more do")
        if not 0 < self.discount <= 1:
            raise ValueError(f"a discount of {self.discount} is not in (0, 1]")
        if not self.actor or not self.critic:
            raise ValueError("both networks need a layer")


SIZES = {"cheetah": Config(17, 6), "humanoid": Config(67, 21)}
TINY = Config(
    3, 1, 256, (64, 64), (64, 64), atoms=48, lowest=0.0, highest=100.0, rate=1e-3
)
"""Rewards in [0, 1], discounted by 0.99, sum to between 0 and 100."""

# -- networks ----------------------------------------------------------------------


class Torso(nn.Module):
    """Layers of the given widths; the first is normalised."""

    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        first, *others = self.widths
        x = nn.tanh(nn.LayerNorm(name="norm")(nn.Dense(first, name="dense_0")(x)))
        for i, width in enumerate(others, start=1):
            x = nn.elu(nn.Dense(width, name=f"dense_{i}")(x))
        return x


class Actor(nn.Module):
    """The action [B, U] in [-1, 1] for an observation [B, O]."""

    config: Config

    @nn.compact
    def __call__(self, observation: Array) -> Array:
        x = Torso(self.config.actor, name="torso")(observation)
        small = nn.initializers.variance_scaling(1e-4, "fan_in", "truncated_normal")
        return nn.tanh(nn.Dense(self.config.action, kernel_init=small, name="last")(x))


class Critic(nn.Module):
    """Logits [B, A] of the atoms, for an observation [B, O] and an action [B, U]."""

    config: Config

    @nn.compact
    def __call__(self, observation: Array, action: Array) -> Array:
        x = jnp.concatenate([observation, action], axis=-1)
        x = Torso(self.config.critic, name="torso")(x)
        return nn.Dense(self.config.atoms, name="last")(x)


def act(config: Config, params: dict, observation: Array) -> Array:
    """What the actor does, [B, U]."""
    return Actor(config).apply({"params": params["actor"]}, observation)


def foresee(config: Config, params: dict, observation: Array, action: Array) -> Array:
    """The critic's logits [B, A] of the return after an action."""
    return Critic(config).apply({"params": params["critic"]}, observation, action)


# -- the learner -------------------------------------------------------------------


class Learned(NamedTuple):
    """Of one step.

    loss: the critic's mean cross-entropy, in nats.
    value: mean return that the critic foresees for the actor.
    surprise: cross-entropy of each transition [B], its next priority.
    """

    loss: Array
    value: Array
    surprise: Array


def loss(
    config: Config, params: dict, target: dict, batch: dict[str, Array]
) -> tuple[Array, Learned]:
    """The critic's loss, less the return that the actor then gets by it.

    Either teaches only its own network, so that one gradient is both of the paper's.
    """
    atoms = jnp.linspace(config.lowest, config.highest, config.atoms)
    seen, next_seen = batch["observation"], batch["next_observation"]
    then = foresee(config, target, next_seen, act(config, target, next_seen))
    returns = batch["return"][:, None] + batch["discount"][:, None] * atoms
    aim = jax.lax.stop_gradient(project(returns, jax.nn.softmax(then), atoms))
    belief = jax.nn.log_softmax(foresee(config, params, seen, batch["action"]))
    surprise = -jnp.sum(aim * belief, axis=-1)
    critic_loss = jnp.mean(batch["weight"] * surprise)

    frozen = jax.lax.stop_gradient(params)
    chances = jax.nn.softmax(foresee(config, frozen, seen, act(config, params, seen)))
    value = jnp.mean(mean_return(chances, atoms))
    return critic_loss - value, Learned(critic_loss, value, surprise)


def start(config: Config, key: Array) -> State:
    """Networks drawn from `key`, targets equal to them, Adam at rest."""
    keys = jax.random.split(key)
    seen = jnp.zeros((1, config.observation))
    actor = Actor(config).init(keys[0], seen)["params"]
    action = jnp.zeros((1, config.action))
    critic = Critic(config).init(keys[1], seen, action)["params"]
    params = {"actor": actor, "critic": critic}
    # copies: a donated buffer must not be given away twice
    target = jax.tree.map(jnp.copy, params)
    stats = {"target": target, "updates": jnp.zeros((), jnp.int32)}
    return State(params, optax.adam(config.rate).init(params), stats)


def learner_of(
    config: Config, replicas: Replicas = ALONE
) -> Callable[[State, dict], tuple[State, Learned]]:
    """`learn(state, batch)`: the state after one update of both networks."""
    optimizer = replicas.wrap_optimizer(optax.adam(config.rate))

    def learn(state: State, batch: dict[str, Array]) -> tuple[State, Learned]:
        target, updates = state.stats["target"], state.stats["updates"] + 1
        gradient = jax.grad(partial(loss, config), has_aux=True)
        gradients, learned = gradient(state.params, target, batch)
        changes, rest = optimizer.update(gradients, state.optimizer)
        params = optax.apply_updates(state.params, changes)
        is_due = updates % config.period == 0
        target = jax.tree.map(partial(jnp.where, is_due), params, target)
        return State(params, rest, {"target": target, "updates": updates}), learned

    return learn


# -- actors, and training ----------------------------------------------------------

EPISODES = 8
ROUND = 100
"""Updates of the learner for each round of `EPISODES` episodes."""

CAPACITY = 100_000


def episodes(
    config: Config, params: dict, begin: Array, key: Array, noise: float
) -> pendulum.Experience:
    """What the actor meets on pendulums that start at `begin` [E, 2]."""
    return pendulum.play(partial(act, config, params), begin, key, noise)


def train(seed: int, steps: int) -> Curve:
    """Rounds of acting, learning and a trial without noise from hanging.

    "return" is the mean of the trial's episodes, "cost" what they miss.
    """
    rng, replay = np.random.default_rng(seed), Replay(CAPACITY)
    first, key = jax.random.split(jax.random.key(seed))
    state = jax.jit(partial(start, TINY))(first)
    learn, run = jax.jit(learner_of(TINY)), jax.jit(partial(episodes, TINY))
    for _ in range(steps):
        key, *keys = jax.random.split(key, 5)
        begin = pendulum.anywhere(keys[0], EPISODES)
        played = run(state.params, begin, keys[1], TINY.noise)
        replay.add(transitions(*played, TINY.steps, TINY.discount))
        losses = []
        for _ in range(ROUND):
            places, batch = replay.sample(TINY.batch, rng)
            state, learned = learn(state, batch)
            replay.prioritise(places, np.asarray(learned.surprise))
            losses.append(float(learned.loss))
        begin = pendulum.hanging(keys[2], EPISODES)
        trial = run(state.params, begin, keys[3], noise=0.0)
        earned = float(jnp.mean(jnp.sum(trial.reward, axis=0)))
        missed = pendulum.EPISODE - earned
        yield {"loss": float(np.mean(losses)), "return": earned, "cost": missed}


# -- targets and schedules ---------------------------------------------------------


def _learn_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    seen, done = (config.observation,), (config.action,)
    shapes = {"observation": seen, "action": done, "next_observation": seen}
    shapes |= {"return": (), "discount": (), "weight": ()}
    batch = {
        name: jax.ShapeDtypeStruct((config.batch, *shape), jnp.float32)
        for name, shape in shapes.items()
    }
    state = jax.eval_shape(partial(start, config), jax.random.key(0))
    return learner_of(config), (state, batch)


def tiny():
    """Two layers of 64 for a pendulum, and transitions of untaught actors, as arrays."""
    keys, replay = jax.random.split(jax.random.key(0), 3), Replay(CAPACITY)
    state = jax.jit(partial(start, TINY))(keys[0])
    begin = pendulum.anywhere(keys[1], EPISODES)
    played = jax.jit(partial(episodes, TINY))(state.params, begin, keys[2], TINY.noise)
    replay.add(transitions(*played, TINY.steps, TINY.discount))
    _, batch = replay.sample(TINY.batch, np.random.default_rng(0))
    return learner_of(TINY), (state, batch)


def tiny_forward():
    """The torque on a pendulum."""
    _, (state, batch) = tiny()
    return partial(act, TINY), (state.params, batch["observation"][:1])


inference = {"tiny": tiny_forward}

targets = sized(_learn_target, SIZES)

DP = mw.data_parallel("data", "batch.*")
MP = mw.shard(
    {"state.**.torso.dense_0.kernel": 1, "state.**.torso.dense_1.kernel": 0},
    axis="model",
)

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+mp": [DP, MP],
    "dp+mp+z3": [DP, MP, mw.zero(3, "data")],
}
"""TF-Replicator's is `dp`; the networks are too small for more to pay."""

workload = Workload(
    name="d4pg",
    title="D4PG learner, pendulum swing-up",
    paper="Barth-Maron et al., Distributed Distributional DDPG, ICLR 2018",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=60,
    schedules=schedules,
    best="dp+mp",
    metric="cost",
)
