"""Graph network simulator: learns from examples how particles move.

A. Sanchez-Gonzalez, J. Godwin, T. Pfaff, R. Ying, J. Leskovec, P. Battaglia, "Learning to
Simulate Complex Physics with Graph Networks", ICML 2020. Particles are nodes, and their
interactions are edges. An encoder computes features of nodes and edges, M steps of message
passing (each with its own weights) update both, and a decoder predicts the acceleration of
each particle. All are MLPs with a layer norm at the end, and every step is residual.

The sizes are those of PartIR (Alabed et al., ASPLOS 2025): 24 steps, MLPs of 5 layers,
1024 hidden and 512 latent features, 2048 nodes and 8,192 to 65,536 edges a graph.
Assumed: one graph a step (two or more do not fit the 12.6 GB that automap, 2021, reports
for its GNS), five velocities as history, two dims, MLPs with four hidden layers.

Schedules cut edges (*edge sharding*): a device has some of the edges and all nodes. Its
messages into a node are a partial sum, so each step needs an all-reduce.

Particles here hang on springs, see `zoo.springs`.

Letters: N nodes, E edges, H velocities of history, L latent features.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

import meshwright as mw
from zoo.springs import DIMS, HISTORY, PULL_SCALE, STEP_S, batches, history
from zoo.training import State, new_state, train_step_of
from zoo.workload import Curve, Workload, check_numbers, sized


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a net and of its graph.

    steps: M, of messages. layers: of each MLP, the last without an activation.
    edges: a spring is two, one each way.
    rate: of Adam, at first; after each `tenth` steps it is a tenth of what it was.
    """

    steps: int
    layers: int
    hidden: int
    latent: int
    nodes: int
    edges: int
    rate: float = 1e-4
    tenth: int = 5_000_000

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.layers < 2:
            raise ValueError(f"an MLP has 2 or more layers, not {self.layers}")
        most = self.nodes * (self.nodes - 1)
        if self.edges % 2 or self.edges > most:
            raise ValueError(
                f"edges are pairs, one each way, and {self.nodes} nodes have at most "
                f"{most}, not {self.edges}"
            )


SIZES = {
    f"edges_{edges}": Config(24, 5, 1024, 512, 2048, edges)
    for edges in (8_192, 16_384, 32_768, 65_536)
}
TINY = Config(2, 2, 64, 32, nodes=64, edges=256, rate=3e-3, tenth=600)

# -- the net -----------------------------------------------------------------------


class Mlp(nn.Module):
    """Layers with ReLU between; a layer norm at the end, except in the decoder."""

    config: Config
    outputs: int
    is_normed: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., outputs] of x [..., D]."""
        for i in range(self.config.layers - 1):
            x = nn.relu(nn.Dense(self.config.hidden, name=f"layer_{i}")(x))
        x = nn.Dense(self.outputs, name="last")(x)
        return nn.LayerNorm(name="norm")(x) if self.is_normed else x


class Graph(NamedTuple):
    """Latent features of nodes [N, L] and of edges [E, L]."""

    nodes: Array
    edges: Array


class Interaction(nn.Module):
    """One step: messages along edges, their sums into nodes; both are added."""

    config: Config

    @nn.compact
    def __call__(self, graph: Graph, senders: Array, receivers: Array) -> Graph:
        """The graph after it; senders and receivers [E] are numbers of nodes."""
        nodes, edges = graph
        ends = [edges, nodes[senders], nodes[receivers]]
        message = Mlp(self.config, edges.shape[-1], name="edge")(
            jnp.concatenate(ends, -1)
        )
        heard = jax.ops.segment_sum(message, receivers, len(nodes))
        change = Mlp(self.config, nodes.shape[-1], name="node")(
            jnp.concatenate([nodes, heard], -1)
        )
        return Graph(nodes + change, edges + message)


class Simulator(nn.Module):
    """Encoder, M interactions, decoder."""

    config: Config

    @nn.compact
    def __call__(self, nodes: dict[str, Array], edges: dict[str, Array]) -> Array:
        """Accelerations [N, 2], in units of their deviation.

        nodes: `position` [N, 2] and `velocity` [N, 2 H]; edges: `senders`, `receivers`.
        """
        senders, receivers = edges["senders"], edges["receivers"]
        apart = nodes["position"][senders] - nodes["position"][receivers]
        length = jnp.sqrt(jnp.sum(jnp.square(apart), -1, keepdims=True) + 1e-12)
        latent = self.config.latent
        graph = Graph(
            Mlp(self.config, latent, name="encode_node")(nodes["velocity"]),
            Mlp(self.config, latent, name="encode_edge")(
                jnp.concatenate([apart, length], -1)
            ),
        )
        interact = nn.scan(
            lambda step, graph, _: (step(graph, senders, receivers), None),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=self.config.steps,
        )
        graph, _ = interact(Interaction(self.config, name="steps"), graph, None)
        return Mlp(self.config, DIMS, is_normed=False, name="decode")(graph.nodes)


def loss(config: Config, params: dict, batch: dict[str, Any]) -> Array:
    """Mean square error of the accelerations; 1 for a net that says 0."""
    guess = Simulator(config).apply({"params": params}, batch["nodes"], batch["edges"])
    return jnp.mean(jnp.square(guess - batch["target"]))


# -- training and simulation -------------------------------------------------------


def optimizer(config: Config) -> optax.GradientTransformation:
    """Adam with a rate that falls all the time."""
    return optax.adam(optax.exponential_decay(config.rate, config.tenth, 0.1))


def start(config: Config, key: Array) -> State:
    """Parameters drawn from `key`, and Adam at rest."""
    batch = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), _shapes(config))
    params = Simulator(config).init(key, batch["nodes"], batch["edges"])["params"]
    return new_state(params, optimizer(config))


def learn(config: Config, seed: int, steps: int) -> Iterator[tuple[State, Array]]:
    """The state after each of `steps` steps, and the loss before it."""
    state = jax.jit(partial(start, config))(jax.random.key(seed))
    step = jax.jit(train_step_of(partial(loss, config), optimizer(config)))
    moments = batches(config.nodes, config.edges, seed)
    for _, batch in zip(range(steps), moments, strict=False):
        state, value = step(state, batch)
        yield state, value


def train(seed: int, steps: int) -> Curve:
    """The loss of each step on particles that hang on springs."""
    for _, value in learn(TINY, seed, steps):
        yield {"loss": float(value)}


def roll_out(
    config: Config, params: dict, edges: dict[str, Array], known: Array, times: int
) -> Array:
    """Positions [times, N, 2] after the known ones [H + 1, N, 2], each from guesses."""
    net = partial(Simulator(config).apply, {"params": params})

    def move(positions: Array, _: None) -> tuple[Array, Array]:
        pull = net(history(positions), edges) * PULL_SCALE
        position = 2 * positions[-1] - positions[-2] + STEP_S**2 * pull
        return jnp.concatenate([positions[1:], position[None]]), position

    return jax.lax.scan(move, known, None, length=times)[1]


# -- targets and schedules ---------------------------------------------------------


def _shapes(config: Config) -> dict[str, Any]:
    number, end = jnp.float32, jax.ShapeDtypeStruct((config.edges,), jnp.int32)
    place = jax.ShapeDtypeStruct((config.nodes, DIMS), number)
    velocity = jax.ShapeDtypeStruct((config.nodes, DIMS * HISTORY), number)
    return {
        "nodes": {"position": place, "velocity": velocity},
        "edges": {"senders": end, "receivers": end},
        "target": place,
    }


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    state = jax.eval_shape(partial(start, config), jax.random.key(0))
    step = train_step_of(partial(loss, config), optimizer(config))
    return step, (state, _shapes(config))


def tiny():
    """Two steps of messages between 64 particles, as arrays."""
    step, _ = _train_target(TINY)
    state = jax.jit(partial(start, TINY))(jax.random.key(0))
    return step, (state, next(batches(TINY.nodes, TINY.edges, seed=0, networks=1)))


def tiny_forward():
    """The accelerations of 64 particles."""
    _, (state, batch) = tiny()

    def forward(params: dict, nodes: dict, edges: dict) -> Array:
        return Simulator(TINY).apply({"params": params}, nodes, edges)

    return forward, (state.params, batch["nodes"], batch["edges"])


inference = {"tiny": tiny_forward}

targets = sized(_train_target, SIZES)

ES = mw.shard({"batch.edges.*": 0}, axis="data")
ES_TOO = mw.shard({"batch.edges.*": 0}, axis="model")
NODES = mw.shard({"batch.nodes.*": 0, "batch.target": 0}, axis="model")

schedules = {
    "dp": [mw.data_parallel("data", "batch.edges.*")],
    "fsdp": [mw.data_parallel("data", "batch.edges.*"), mw.fsdp("data")],
    "es": [ES, ES_TOO],
    "es+nodes": [ES, NODES],
    "es+mp": [ES, mw.megatron("model", vocabulary=False)],
    "es+z3": [ES, ES_TOO, mw.zero(3, "data")],
}
"""`es` is PartIR's: a graph has no batch, so data parallelism cuts edges as well."""

workload = Workload(
    name="gns",
    title="graph network simulator",
    paper=(
        "Sanchez-Gonzalez et al., Learning to Simulate Complex Physics with Graph "
        "Networks, ICML 2020"
    ),
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=400,
    schedules=schedules,
    best="es",
    batch=("batch.edges.*",),
)
