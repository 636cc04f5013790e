"""D4PG by replicas of the learner, with an actor that runs beside them.

As in TF-Replicator (Buchlovsky et al., 2019), replicas share one replay. An actor plays a
round of episodes with the newest state; replicas draw at most as many examples for it as
`zoo.d4pg.train` does (a limit of the ratio of samples to inserts, as in Reverb: Cassirer et
al., 2021).
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import meshwright as mw
from meshwright.features.cluster.replicate.inputs import Context
from meshwright.features.cluster.replicate.replica_threads import Learner
from zoo import d4pg, pendulum
from zoo.d4pg import EPISODES, ROUND, TINY
from zoo.replay import Replay, transitions
from zoo.training import State
from zoo.workload import Curve

DRAWS = ROUND * TINY.batch
"""Examples that are drawn for each round of episodes."""

_POLL_S = 0.1
"""Seconds between two looks at whether the run has ended."""


class SharedReplay:
    """A replay for threads: those that draw wait for rounds, those that add for draws."""

    def __init__(self, capacity: int) -> None:
        self._replay = Replay(capacity)
        self._changed = threading.Condition()
        self._rounds = self._drawn = 0

    def add(self, played: dict[str, np.ndarray]) -> None:
        """Keep the transitions of a round."""
        with self._changed:
            self._replay.add(played)
            self._rounds += 1
            self._changed.notify_all()

    def wait_for_draws(self, is_stopped: Callable[[], bool]) -> None:
        """Wait until examples have been drawn for every round but the latest."""
        self._wait(lambda: self._drawn > (self._rounds - 1) * DRAWS, is_stopped)

    def draw(
        self, count: int, rng: np.random.Generator, is_stopped: Callable[[], bool]
    ) -> dict[str, np.ndarray] | None:
        """A batch with the places of its transitions; `None` if the run has ended."""
        with self._changed:
            self._wait(lambda: self._drawn + count <= self._rounds * DRAWS, is_stopped)
            if is_stopped():
                return None
            self._drawn += count
            places, batch = self._replay.sample(count, rng)
            self._changed.notify_all()
        return batch | {"place": places.astype(np.int32)}

    def prioritise(self, places: np.ndarray, surprise: np.ndarray) -> None:
        """Let transitions count by how far the critic was off."""
        with self._changed:
            self._replay.prioritise(places.ravel(), surprise.ravel())

    def _wait(self, is_due: Callable[[], bool], is_stopped: Callable[[], bool]) -> None:
        with self._changed:
            while not is_stopped() and not self._changed.wait_for(is_due, _POLL_S):
                pass


def step_of(replicator: mw.Replicator) -> Callable[[State, dict], tuple[State, dict]]:
    """The learner's step of one replica; its results are losses and next priorities."""
    learn = d4pg.learner_of(TINY, replicator)

    def step(state: State, batch: dict) -> tuple[State, dict]:
        drawn = {name: x for name, x in batch.items() if name != "place"}
        state, learned = learn(state, drawn)
        kept = {"place": batch["place"], "surprise": learned.surprise}
        return state, kept | {"loss": learned.loss}

    return step


def input_of(replay: SharedReplay, seed: int, context: Context) -> Iterator[dict]:
    """Batches that one replica draws."""
    rng, count = (
        np.random.default_rng((seed, context.replica)),
        context.batch(TINY.batch),
    )
    while (batch := replay.draw(count, rng, context.is_stopped)) is not None:
        yield batch


def act(replay: SharedReplay, seed: int, learner: Learner) -> None:
    """Play rounds of episodes with the newest state, from any angle and with noise."""
    play, key = jax.jit(partial(d4pg.episodes, TINY)), jax.random.key(seed)
    for _, state in learner.states():
        key, *keys = jax.random.split(key, 3)
        begin = pendulum.anywhere(keys[0], EPISODES)
        played = play(state.params, begin, keys[1], TINY.noise)
        replay.add(transitions(*played, TINY.steps, TINY.discount))
        replay.wait_for_draws(learner.is_stopped)


def train(replicator: mw.Replicator, seed: int, rounds: int) -> Curve:
    """Trials from hanging, one after each round; "dropped" counts gradients.

    A round has as many examples in all regimes: if each gradient is an update, it has
    more updates.
    """
    replay = SharedReplay(d4pg.CAPACITY)
    start, key = jax.random.split(jax.random.key(seed))
    state = jax.jit(partial(d4pg.start, TINY))(start)
    trial = jax.jit(partial(d4pg.episodes, TINY))
    parts = replicator.replicas if replicator.staleness else 1
    updates = replicator.run(
        step_of(replicator),
        partial(input_of, replay, seed),
        state,
        steps=rounds * ROUND * parts,
        actors=[partial(act, replay, seed)],
    )
    for update in updates:
        found = update.results
        replay.prioritise(*(np.asarray(found[name]) for name in ("place", "surprise")))
        if update.version % (ROUND * parts) == 0:
            key, *keys = jax.random.split(key, 3)
            begin = pendulum.hanging(keys[0], EPISODES)
            played = trial(update.state.params, begin, keys[1], noise=0.0)
            earned = float(jnp.mean(jnp.sum(played.reward, axis=0)))
            loss = float(np.mean(np.asarray(found["loss"])))
            yield {"loss": loss, "return": earned, "dropped": update.num_dropped}
