"""A field of colour and density, learned from the pixels that rays through it end in.

All is written for one ray, then mapped over many. Letters: R rays, P points of a ray,
D features, F features of a position.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.step import Target, Tree, adam, shape, whole

NEAR, FAR = 2.0, 6.0
COARSE, FINE = 64, 128
POSITION_BANDS, DIRECTION_BANDS = 10, 4
DEPTH, SKIP = 8, 4


def waves(x: Array, bands: int) -> Array:
    """`x` [..., 3] with sines and cosines of its multiples: [..., 3 + 6 bands]."""
    angles = x[..., None, :] * 2.0 ** jnp.arange(bands)[:, None]
    angles = angles.reshape(*x.shape[:-1], 3 * bands)
    return jnp.concatenate([x, jnp.sin(angles), jnp.cos(angles)], axis=-1)


def dense(x: Array, layer: tuple[Array, Array]) -> Array:
    """`x` [..., D] through a kernel and a bias."""
    kernel, bias = layer
    return jnp.dot(x, kernel) + bias


def field(params: Tree, points: Array, direction: Array) -> tuple[Array, Array]:
    """Colours [P, 3] and densities [P] at points [P, 3], seen in direction [3]."""
    inputs = waves(points, POSITION_BANDS)
    x = inputs
    for i, layer in enumerate(params["trunk"]):
        if i == SKIP:
            x = jnp.concatenate([x, inputs], axis=-1)
        x = jax.nn.relu(dense(x, layer))
    density = jax.nn.softplus(dense(x, params["density"])[:, 0] - 1.0)
    seen = waves(direction, DIRECTION_BANDS)
    seen = jnp.broadcast_to(seen, (points.shape[0], seen.shape[0]))
    x = jnp.concatenate([dense(x, params["bottleneck"]), seen], axis=-1)
    x = jax.nn.relu(dense(x, params["view"]))
    return jax.nn.sigmoid(dense(x, params["colour"])), density


def render(colours: Array, densities: Array, depths: Array) -> tuple[Array, Array]:
    """The colour [3] in which a ray ends, and the weights [P] of its points."""
    gaps = jnp.append(jnp.diff(depths), 1e10)
    opacity = 1.0 - jnp.exp(-densities * gaps)
    passed = jnp.cumprod(1.0 - opacity[:-1] + 1e-10)
    weights = opacity * jnp.concatenate([jnp.ones(1), passed])
    colour = jnp.sum(weights[:, None] * colours, axis=0)
    return colour + 1.0 - jnp.sum(weights), weights  # on white


def resampled(depths: Array, weights: Array, key: Array) -> Array:
    """FINE more depths, drawn where the weights [P] of depths [P] are large."""
    middles = 0.5 * (depths[1:] + depths[:-1])
    chances = weights[1:-1] + 1e-5
    risen = jnp.cumsum(chances / jnp.sum(chances))
    risen = jnp.concatenate([jnp.zeros(1), risen])
    drawn = jax.random.uniform(key, (FINE,))
    above = jnp.searchsorted(risen, drawn, side="right")
    above = jnp.clip(above, 1, risen.shape[0] - 1)
    low, high = risen[above - 1], risen[above]
    share = (drawn - low) / jnp.where(high - low < 1e-5, 1.0, high - low)
    return middles[above - 1] + share * (middles[above] - middles[above - 1])


def ray_colours(
    params: Tree, origin: Array, direction: Array, key: Array
) -> tuple[Array, Array]:
    """Two guesses [3] of the colour of a ray: of few points, and of well-chosen."""
    coarse_key, fine_key = jax.random.split(key)
    unit = direction / jnp.linalg.norm(direction)
    edges = jnp.linspace(NEAR, FAR, COARSE + 1)
    jitter = jax.random.uniform(coarse_key, (COARSE,))
    depths = edges[:-1] + jitter * (edges[1:] - edges[:-1])
    points = origin + depths[:, None] * direction
    coarse, weights = render(*field(params["coarse"], points, unit), depths)
    more = resampled(depths, lax.stop_gradient(weights), fine_key)
    depths = jnp.sort(jnp.concatenate([depths, more]))
    points = origin + depths[:, None] * direction
    fine, _ = render(*field(params["fine"], points, unit), depths)
    return coarse, fine


def field_loss(params: Tree, rays: Tree, key: Array) -> tuple[Array, Array]:
    """Squared errors of both guesses of colours [R, 3], and the better one's in dB."""
    keys = jax.random.split(key, rays["colour"].shape[0])
    guess = jax.vmap(partial(ray_colours, params))
    coarse, fine = guess(rays["origin"], rays["direction"], keys)
    error = jnp.mean((fine - rays["colour"]) ** 2)
    loss = error + jnp.mean((coarse - rays["colour"]) ** 2)
    return loss, -10.0 * jnp.log10(error)


def field_step(state: Any, rays: Tree) -> Any:
    """New state, the loss and the ratio of signal to noise."""
    params, optimizer, key = state
    key, step_key = jax.random.split(key)
    loss_fn = jax.value_and_grad(field_loss, has_aux=True)
    (loss, ratio), gradients = loss_fn(params, rays, step_key)
    params, optimizer = adam(params, gradients, optimizer)
    return (params, optimizer, key), (loss, ratio)


def nerf(rays: int = 8192, width: int = 256) -> Target:
    """Mildenhall et al., 2020: two networks, 64 and 192 points of a ray; float32."""
    place = 3 + 6 * POSITION_BANDS
    seen = 3 + 6 * DIRECTION_BANDS

    def layer(before: int, after: int) -> tuple[Any, Any]:
        return shape(before, after), shape(after)

    befores = [place, *[width] * (DEPTH - 1)]
    befores[SKIP] += place
    network = {
        "trunk": [layer(before, width) for before in befores],
        "density": layer(width, 1), "bottleneck": layer(width, width),
        "view": layer(width + seen, width // 2), "colour": layer(width // 2, 3),
    }  # fmt: skip
    params = {"coarse": network, "fine": network}
    key = jax.eval_shape(lambda: jax.random.PRNGKey(0))
    each = shape(rays, 3)
    pixels = {"origin": each, "direction": each, "colour": each}
    return field_step, ((params, (params, params, whole()), key), pixels)
