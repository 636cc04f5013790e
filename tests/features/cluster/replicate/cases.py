"""The smallest steps of the zoo that have every part, for tests of replicas.

A case makes a step for a replicator or, without one, for one device; it also has the first
state and a global batch of 8 examples.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.app.check.compare_outputs import check_outputs
from zoo import d4pg, resnet, sngan

RESNET = resnet.Config((1,), batch=8, channels=4, size=8, classes=8)
SNGAN = sngan.Config(4, 2, (4,), (4,), 0, batch=8, noise=4, updates=1)
D4PG = replace(d4pg.TINY, batch=8, actor=(8,), critic=(8,), atoms=5)


def drawn(start):
    """A state like that of `start`, with floats drawn at random; whole numbers are 3.

    Adam's averages are not 0 then, which would make its steps ill-conditioned.
    """
    rng = np.random.default_rng(1)

    def draw(leaf):
        if not np.issubdtype(leaf.dtype, np.floating):
            return np.full(leaf.shape, 3, leaf.dtype)
        return rng.uniform(0.1, 0.3, leaf.shape).astype(leaf.dtype)

    return jax.tree.map(draw, jax.eval_shape(start, jax.random.key(0)))


def resnet_case():
    state = drawn(partial(resnet.start, RESNET))
    batch = next(resnet.batches(RESNET, seed=0))
    return partial(resnet.train_step_for, RESNET), state, batch


def sngan_case():
    state = drawn(partial(sngan.start, SNGAN))
    batch = next(sngan.batches(SNGAN, seed=0))
    return partial(sngan.train_step_of, SNGAN), state, batch


def d4pg_case():
    state = drawn(partial(d4pg.start, D4PG))
    return partial(d4pg.learner_of, D4PG), state, d4pg_batch()


def d4pg_batch():
    """Transitions drawn at random."""
    rng, n = np.random.default_rng(0), D4PG.batch
    seen = {"observation": (n, 3), "next_observation": (n, 3), "action": (n, 1)}
    shapes = seen | dict.fromkeys(("return", "discount", "weight"), (n,))
    return {
        name: rng.uniform(size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def mean_results(results):
    """Scalars averaged over replicas, arrays of examples joined."""
    return jax.tree.map(
        lambda x: jnp.mean(x) if x.ndim == 1 else x.reshape(-1), results
    )


def report_against_one_device(case, found):
    """The errors of what 4 replicas return, compared with one device."""
    make, state, batch = case
    leaves, tree = jax.tree.flatten((state, batch))
    alone = make()
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree.leaves_with_path(found)]
    return check_outputs(
        paths,
        lambda *leaves: jax.tree.leaves(alone(*jax.tree.unflatten(tree, leaves))),
        lambda _: jax.tree.leaves((found[0], mean_results(found[1]))),
        leaves,
    )
