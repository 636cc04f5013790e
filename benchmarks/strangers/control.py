"""An agent that learns from pixels what to do: an actor and two critics.

All is written for one frame or one critic, then mapped over many. Letters: B batch,
C channels, F features of a frame, A numbers of an action.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.step import Target, Tree, adam, shape, whole

SHIFT = 4
DISCOUNT = 0.99
TARGET_RATE = 0.01
STRIDES = (2, 1, 1, 1)
LOG_SPREADS = (-10.0, 2.0)


class Agent(NamedTuple):
    """What is learned; the target is the critics' slow copy.

    critics, target: two of each array, stacked; temperature: a logarithm.
    """

    encoder: Tree
    actor: Tree
    critics: Tree
    target: Tree
    temperature: Any


class State(NamedTuple):
    """An agent and what Adam keeps of each part of it."""

    agent: Agent
    critic_adam: Any
    actor_adam: Any
    temperature_adam: Any


# -- of one frame ------------------------------------------------------------------


def shifted(frame: Array, key: Array) -> Array:
    """A frame [side, side, C] moved by up to 4 pixels, its edges repeated."""
    padding = ((SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0))
    padded = jnp.pad(frame, padding, mode="edge")
    row, column = jax.random.randint(key, (2,), 0, 2 * SHIFT + 1)
    return lax.dynamic_slice(padded, (row, column, 0), frame.shape)


def encode(params: Tree, frame: Array) -> Array:
    """Features [F] of a frame [side, side, C] of bytes."""
    x = frame.astype(jnp.float32) / 255 - 0.5
    for (kernel, bias), stride in zip(params["convs"], STRIDES, strict=True):
        x = lax.conv_general_dilated(
            x[None], kernel, (stride, stride), "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )[0]  # fmt: skip
        x = jax.nn.relu(x + bias)
    return x.ravel()


def trunk(params: Tree, features: Array) -> Array:
    """50 numbers of features [F], standardized, between -1 and 1."""
    x = features @ params["trunk"][0] + params["trunk"][1]
    x = (x - jnp.mean(x)) * lax.rsqrt(jnp.var(x) + 1e-5)
    return jnp.tanh(x * params["scale"] + params["shift"])


def mlp(layers: list[Any], x: Array) -> Array:
    """All layers on x, with a ReLU between."""
    *inner, (kernel, bias) = layers
    for w, b in inner:
        x = jax.nn.relu(x @ w + b)
    return x @ kernel + bias


def act(params: Tree, features: Array, key: Array) -> tuple[Array, Array]:
    """An action [A] in [-1, 1] drawn for features [F], and the log of its density."""
    mean, log_spread = jnp.split(mlp(params["mlp"], trunk(params, features)), 2)
    log_spread = jnp.clip(log_spread, *LOG_SPREADS)
    noise = jax.random.normal(key, mean.shape)
    raw = mean + jnp.exp(log_spread) * noise
    log_density = -0.5 * noise**2 - log_spread - 0.5 * jnp.log(2 * jnp.pi)
    squashing = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))
    return jnp.tanh(raw), jnp.sum(log_density - squashing)


def judge(params: Tree, features: Array, action: Array) -> Array:
    """The value of an action [A] at features [F], by one critic."""
    x = jnp.concatenate([trunk(params, features), action])
    return mlp(params["mlp"], x)[0]


# -- of a batch --------------------------------------------------------------------

shifted_all = jax.vmap(shifted)
encode_all = jax.vmap(encode, (None, 0))
act_all = jax.vmap(act, (None, 0, 0))
judge_all = jax.vmap(jax.vmap(judge, (None, 0, 0)), (0, None, None))  # [2, B]


def critic_loss(learned: Any, agent: Agent, batch: Tree, key: Array) -> Any:
    """Squared error of both critics, and features [B, F] of the frames.

    learned: encoder and critics; of the agent what has no share in the gradient.
    """
    encoder, critics = learned
    features = encode_all(encoder, batch["frames"])
    later = encode_all(agent.encoder, batch["later"])
    keys = jax.random.split(key, later.shape[0])
    action, log_density = act_all(agent.actor, later, keys)
    value = jnp.min(judge_all(agent.target, later, action), axis=0)
    value = value - jnp.exp(agent.temperature) * log_density
    wanted = batch["reward"] + DISCOUNT * batch["goes_on"] * value
    errors = judge_all(critics, features, batch["action"]) - lax.stop_gradient(wanted)
    return jnp.mean(jnp.square(errors)), features


def actor_loss(actor: Tree, agent: Agent, features: Array, key: Array) -> Any:
    """Mean of minus the value of what the actor does, and of its log-density."""
    keys = jax.random.split(key, features.shape[0])
    action, log_density = act_all(actor, features, keys)
    value = jnp.min(judge_all(agent.critics, features, action), axis=0)
    loss = jnp.mean(jnp.exp(agent.temperature) * log_density - value)
    return loss, jnp.mean(log_density)


def control_step(state: State, batch: Tree) -> tuple[State, Tree]:
    """New state, after one step of critics, actor, temperature and target."""
    agent, count = state.agent, state.critic_adam[2]
    keys = jax.random.split(jax.random.fold_in(jax.random.key(3), count), 4)
    size = batch["reward"].shape[0]
    batch = {
        **batch,
        "frames": shifted_all(batch["frames"], jax.random.split(keys[0], size)),
        "later": shifted_all(batch["later"], jax.random.split(keys[1], size)),
    }
    learned = agent.encoder, agent.critics
    loss_fn = jax.value_and_grad(critic_loss, has_aux=True)
    (critic, features), gradients = loss_fn(learned, agent, batch, keys[2])
    (encoder, critics), critic_adam = adam(learned, gradients, state.critic_adam)
    agent = agent._replace(encoder=encoder, critics=critics)

    loss_fn = jax.value_and_grad(actor_loss, has_aux=True)
    features = lax.stop_gradient(features)
    (loss, entropy), gradients = loss_fn(agent.actor, agent, features, keys[3])
    actor, actor_adam = adam(agent.actor, gradients, state.actor_adam)

    wanted = -float(batch["action"].shape[-1])
    gradient = -jnp.exp(agent.temperature) * (entropy + wanted)
    temperature, temperature_adam = adam(
        agent.temperature, gradient, state.temperature_adam
    )
    target = jax.tree.map(
        lambda old, new: old + TARGET_RATE * (new - old), agent.target, critics
    )
    agent = Agent(encoder, actor, critics, target, temperature)
    told = {"critic": critic, "actor": loss, "entropy": -entropy}
    return State(agent, critic_adam, actor_adam, temperature_adam), told


def drq(
    batch: int = 4096, side: int = 84, width: int = 1024, actions: int = 21
) -> Target:
    """Yarats et al., 2021, with the actor of Haarnoja et al., 2018; all in float32."""
    left, before, convs = side, 9, []
    for stride in STRIDES:
        convs.append((shape(3, 3, before, 32), shape(32)))
        left, before = (left - 3) // stride + 1, 32

    def head(copies: tuple[int, ...], inputs: int, outputs: int) -> Tree:
        def layer(a: int, b: int) -> tuple[Any, Any]:
            return shape(*copies, a, b), shape(*copies, b)

        return {
            "trunk": layer(left * left * 32, 50),
            "scale": shape(*copies, 50), "shift": shape(*copies, 50),
            "mlp": [layer(inputs, width), layer(width, width), layer(width, outputs)],
        }  # fmt: skip

    encoder, actor = {"convs": convs}, head((), 50, 2 * actions)
    critics = head((2,), 50 + actions, 1)
    agent = Agent(encoder, actor, critics, critics, shape())

    def kept(params: Any) -> Any:
        return params, params, whole()

    state = State(agent, kept((encoder, critics)), kept(actor), kept(shape()))
    frames = jax.ShapeDtypeStruct((batch, side, side, 9), jnp.uint8)
    seen = {
        "frames": frames, "later": frames, "action": shape(batch, actions),
        "reward": shape(batch), "goes_on": shape(batch),
    }  # fmt: skip
    return control_step, (state, seen)
