"""A detector of objects: a network of convolutions, and queries that each find one.

Letters: B batch, S = R * C positions of features, Q queries, T objects of an image at
most, D features, N heads, H features of a head, K kinds of objects, L layers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from benchmarks.strangers.residual import backbone, backbone_shapes
from benchmarks.strangers.step import Target, Tree, bfloat16, shape, whole

HEADS = 8
KINDS = 91  # of which the last but one comes "nothing"
DROPOUT = 0.1
NOTHING = 0.1  # how much it counts that a query finds nothing
FAR, APART = 5.0, 2.0  # weights of corners' distances and of overlaps

# -- the transformer ---------------------------------------------------------------


def norm(x: Array, weights: Tree) -> Array:
    """`x` [..., D] standardized in float32, scaled and shifted, in its own type."""
    y = jax.nn.standardize(x.astype(jnp.float32), epsilon=1e-5)
    return (y * weights["scale"] + weights["shift"]).astype(x.dtype)


def linear(x: Array, weights: Tree) -> Array:
    """`x` [..., D] through a kernel and a bias, in its own type."""
    return x @ weights["w"].astype(x.dtype) + weights["b"].astype(x.dtype)


def dropout(x: Array, key: Array) -> Array:
    """`x` with a tenth of it left out."""
    is_kept = jax.random.bernoulli(key, 1 - DROPOUT, x.shape)
    return jnp.where(is_kept, x / (1 - DROPOUT), 0)


def attend(weights: Tree, q: Array, k: Array, v: Array, is_seen: Any = None) -> Array:
    """[B, Q, D] of q [B, Q, D] and k, v [B, S, D], of which is_seen [B, S] is told."""

    def heads(x: Array, name: str) -> Array:
        x = linear(x, weights[name])
        return x.reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)

    q, k, v = heads(q, "q"), heads(k, "k"), heads(v, "v")
    scores = (q @ k.swapaxes(-1, -2)).astype(jnp.float32) * q.shape[-1] ** -0.5
    if is_seen is not None:
        scores = jnp.where(is_seen[:, None, None, :], scores, -1e9)
    mixed = jax.nn.softmax(scores, axis=-1).astype(v.dtype) @ v
    mixed = mixed.transpose(0, 2, 1, 3)
    return linear(mixed.reshape(*mixed.shape[:2], -1), weights["o"])


def feed_forward(x: Array, weights: Tree, key: Array) -> Array:
    """An MLP on x [B, S, D]."""
    keys = jax.random.split(key)
    inner = dropout(jax.nn.relu(linear(x, weights["up"])), keys[0])
    return dropout(linear(inner, weights["down"]), keys[1])


def waves(is_seen: Array, width: int) -> Array:
    """Positions [B, S, D] of features, counted among what is_seen [B, R, C] tells."""
    seen = is_seen.astype(jnp.float32)
    rates = 10_000.0 ** (-jnp.arange(0, width // 2, 2) / (width // 2))
    both = []
    for dim in (1, 2):
        place = jnp.cumsum(seen, dim)
        last = jnp.max(place, axis=dim, keepdims=True)
        angles = (2 * jnp.pi * place / (last + 1e-6))[..., None] * rates
        both += [jnp.sin(angles), jnp.cos(angles)]
    return bfloat16(jnp.concatenate(both, -1).reshape(len(is_seen), -1, width))


def found(params: Tree, x: Array, is_seen: Array, key: Array) -> Array:
    """What queries say after each layer [L, B, Q, D], of features x [B, R, C, D]."""
    places = waves(is_seen, x.shape[-1])
    x, is_seen = x.reshape(places.shape), is_seen.reshape(places.shape[:2])

    def encode(x: Array, inputs: Any) -> tuple[Array, None]:
        weights, key = inputs
        keys = jax.random.split(key)
        y = attend(weights["self"], x + places, x + places, x, is_seen)
        x = norm(x + dropout(y, keys[0]), weights["n1"])
        y = feed_forward(x, weights["mlp"], keys[1])
        return norm(x + y, weights["n2"]), None

    queries = bfloat16(params["queries"])[None]

    def decode(y: Array, inputs: Any) -> tuple[Array, Array]:
        weights, key = inputs
        keys = jax.random.split(key, 3)
        z = attend(weights["self"], y + queries, y + queries, y)
        y = norm(y + dropout(z, keys[0]), weights["n1"])
        z = attend(weights["cross"], y + queries, x + places, x, is_seen)
        y = norm(y + dropout(z, keys[1]), weights["n2"])
        y = norm(y + feed_forward(y, weights["mlp"], keys[2]), weights["n3"])
        return y, norm(y, params["norm"])

    layers = params["encoder"]["n1"]["scale"].shape[0]
    keys = jax.random.split(key, 2 * layers)
    x, _ = lax.scan(encode, x, (params["encoder"], keys[:layers]))
    start = jnp.zeros((len(x), *params["queries"].shape), x.dtype)
    return lax.scan(decode, start, (params["decoder"], keys[layers:]))[1]


# -- the loss ----------------------------------------------------------------------


def corners(boxes: Array) -> Array:
    """Least and greatest row and column [..., 4] of boxes: their middles and sizes."""
    middle, size = jnp.split(boxes, 2, axis=-1)
    return jnp.concatenate([middle - size / 2, middle + size / 2], axis=-1)


def overlap(a: Array, b: Array) -> Array:
    """How much of both is common to boxes a, b [..., 4]; Rezatofighi et al., 2019."""
    a, b = corners(a), corners(b)
    low, high = jnp.maximum(a[..., :2], b[..., :2]), jnp.minimum(a[..., 2:], b[..., 2:])
    common = jnp.prod(jnp.maximum(high - low, 0), axis=-1)
    either = jnp.prod(a[..., 2:] - a[..., :2], -1) + jnp.prod(
        b[..., 2:] - b[..., :2], -1
    )
    either = either - common
    low, high = jnp.minimum(a[..., :2], b[..., :2]), jnp.maximum(a[..., 2:], b[..., 2:])
    around = jnp.prod(jnp.maximum(high - low, 0), axis=-1)
    return common / (either + 1e-6) - (around - either) / (around + 1e-6)


def set_loss(scores: Array, boxes: Array, kinds: Array, truth: Array) -> Array:
    """Of one image's scores [Q, K + 1] and boxes [Q, 4], each object given a query.

    kinds [T], 0 where there is no object, and its truth [T, 4].
    """
    logs = jax.nn.log_softmax(scores)
    is_object = (kinds > 0).astype(jnp.float32)
    cost = FAR * jnp.sum(jnp.abs(boxes[:, None] - truth[None]), -1)
    cost = cost - APART * overlap(boxes[:, None], truth[None])
    cost = (cost - jnp.exp(logs)[:, kinds]) * is_object[None]
    rows, columns = optax.assignment.hungarian_algorithm(lax.stop_gradient(cost))
    matched, wanted, counted = boxes[rows], truth[columns], is_object[columns]
    labels = jnp.zeros(len(boxes), jnp.int32).at[rows].set(kinds[columns])
    weights = jnp.where(labels > 0, 1.0, NOTHING)
    losses = -jnp.take_along_axis(logs, labels[:, None], axis=-1)[:, 0] * weights
    far = jnp.sum(jnp.sum(jnp.abs(matched - wanted), -1) * counted)
    apart = jnp.sum((1 - overlap(matched, wanted)) * counted)
    count = jnp.maximum(jnp.sum(is_object), 1)
    return jnp.sum(losses) / jnp.sum(weights) + (FAR * far + APART * apart) / count


def detection_loss(params: Tree, batch: Tree, key: Array) -> Array:
    """Sum over layers of the mean over images [B, side, side, 3], sizes [B, 2] pixels."""
    images = bfloat16(batch["images"].astype(jnp.float32) / 127.5 - 1)
    x = linear(backbone(params["backbone"], images), params["head"]["input"])
    side = images.shape[1] // x.shape[1]
    low = jnp.arange(x.shape[1]) * side < batch["sizes"][..., None]
    is_seen = low[:, 0, :, None] & low[:, 1, None, :]
    y = found(params["head"], x, is_seen, key).astype(jnp.float32)
    scores = linear(y, params["head"]["kind"])
    for i, weights in enumerate(params["head"]["box"]):
        y = linear(jax.nn.relu(y) if i else y, weights)
    of_images = jax.vmap(set_loss)
    of_layers = jax.vmap(of_images, in_axes=(0, 0, None, None))
    losses = of_layers(scores, jax.nn.sigmoid(y), batch["kinds"], batch["boxes"])
    return jnp.sum(jnp.mean(losses, axis=1))


# -- the step ----------------------------------------------------------------------


def grouped(params: Tree) -> Any:
    """Whose rate each parameter has."""

    def group(path: Any, _: Any) -> str:
        names = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        return "frozen" if "frozen" in names else names[0]

    return jax.tree_util.tree_map_with_path(group, params)


optimizer = optax.chain(
    optax.clip_by_global_norm(0.1),
    optax.multi_transform(
        {
            "backbone": optax.adamw(1e-5, weight_decay=1e-4),
            "head": optax.adamw(1e-4, weight_decay=1e-4),
            "frozen": optax.set_to_zero(),
        },
        grouped,
    ),
)


def detection_step(state: Tree, batch: Tree) -> tuple[Tree, Array]:
    """New state and the loss."""
    key, dropout_key = jax.random.split(state["key"])
    loss_fn = jax.value_and_grad(detection_loss)
    loss, gradients = loss_fn(state["params"], batch, dropout_key)
    updates, kept = optimizer.update(gradients, state["kept"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "kept": kept, "key": key}, loss


def detr(
    batch: int = 64, side: int = 640, objects: int = 64, width: int = 256
) -> Target:
    """Carion et al., 2020, on ResNet-50: six layers each way, 100 queries."""
    layers, queries = 6, 100

    def linear_shapes(before: int, after: int, *stack: int) -> Tree:
        return {"w": shape(*stack, before, after), "b": shape(*stack, after)}

    norm = {"scale": shape(layers, width), "shift": shape(layers, width)}
    attention = dict.fromkeys("qkvo", linear_shapes(width, width, layers))
    mlp = {
        "up": linear_shapes(width, 8 * width, layers),
        "down": linear_shapes(8 * width, width, layers),
    }
    encoder = {"self": attention, "mlp": mlp, "n1": norm, "n2": norm}
    square = linear_shapes(width, width)
    head = {
        "input": linear_shapes(2048, width), "encoder": encoder,
        "decoder": {**encoder, "cross": attention, "n3": norm},
        "norm": {"scale": shape(width), "shift": shape(width)},
        "queries": shape(queries, width), "kind": linear_shapes(width, KINDS + 1),
        "box": [square, square, linear_shapes(width, 4)],
    }  # fmt: skip
    params = {"backbone": backbone_shapes(), "head": head}
    key = jax.eval_shape(lambda: jax.random.PRNGKey(0))
    kept = jax.eval_shape(optimizer.init, params)
    images = {
        "images": jax.ShapeDtypeStruct((batch, side, side, 3), jnp.uint8),
        "sizes": whole(batch, 2), "kinds": whole(batch, objects),
        "boxes": shape(batch, objects, 4),
    }  # fmt: skip
    return detection_step, ({"params": params, "kept": kept, "key": key}, images)
