"""Small programs with their arguments, for all targets; each shows one thing."""

import jax
import jax.numpy as jnp
import numpy as np

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def mlp(params, x):
    """A scan over stacked weights, three results of several dtypes."""

    def layer(x, p):
        return jax.nn.gelu(x @ p["w"] + p["b"]), jnp.sum(x)

    y, sums = jax.lax.scan(layer, x, params)
    return {"y": y, "sums": sums, "best": jnp.argmax(y, -1)}


MLP = ({"w": normal(3, 16, 16) / 4, "b": normal(3, 16)}, normal(2, 16))


def convolution(params, image):
    """A strided convolution, pooling of both kinds and a mean."""
    dims = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(
        image, params, (2, 2), "SAME", dimension_numbers=dims
    )
    y = jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
    )
    z = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return y, z, jnp.mean(x, (1, 2))


CONVOLUTION = (normal(3, 3, 3, 8), normal(2, 16, 16, 3))


def attention(params, tokens):
    """An embedding, masked attention and scores."""
    x = jnp.take(params["table"], tokens, axis=0)
    q, k, v = (jnp.einsum("bsd,dnh->bsnh", x, params[name]) for name in "qkv")
    scores = jnp.einsum("bsnh,btnh->bnst", q, k)
    places = jnp.arange(tokens.shape[1])
    scores = jnp.where(places[:, None] >= places, scores, -1e9)
    heard = jnp.einsum("bnst,btnh->bsnh", jax.nn.softmax(scores), v)
    return heard.reshape(x.shape) @ params["table"].T


ATTENTION = (
    {"table": normal(32, 16), **{name: normal(16, 4, 4) / 4 for name in "qkv"}},
    RNG.integers(0, 32, (1, 8)).astype(np.int32),
)


def branches(x, which):
    """A branch of three, and a comparison that selects."""
    y = jax.lax.switch(which, [jnp.sin, jnp.cos, lambda x: x * 2], x)
    return jnp.where(y > 0, y, -y), jnp.clip(x, -0.5, 0.5)


BRANCHES = (normal(4, 3), np.int32(1))


def indexing(x, start, places):
    """A slice and an update at computed places, gathers and a scatter that adds."""
    part = jax.lax.dynamic_slice(x, (start, 0), (2, 3))
    changed = jax.lax.dynamic_update_slice(x, part * 2, (0, start))
    return part, changed, x[places], jnp.zeros((8, 5)).at[places].add(x[places])


INDEXING = (normal(8, 5), np.int32(3), np.array([1, 7, 1], np.int32))


def recurrence(params, xs):
    """A scan in reverse with a stacked result, in which a remat lies."""

    @jax.checkpoint
    def cell(h, x):
        h = jnp.tanh(x + h @ params)
        return h, h[0]

    return jax.lax.scan(cell, jnp.zeros((2, 4)), xs, reverse=True)


RECURRENCE = (normal(4, 4) / 2, normal(5, 2, 4))


def newton(x, n):
    """A loop whose number of iterations is an input."""
    return jax.lax.fori_loop(0, n, lambda i, y: (y + x / y) / 2, x)


NEWTON = (np.abs(normal(3, 4)) + 1, np.int32(6))


def elementary(x):
    """Functions that formats write in several ops."""
    return {
        "log1p": jnp.log1p(x * x),
        "expm1": jnp.expm1(x),
        "rsqrt": jax.lax.rsqrt(x * x + 1),
        "erf": jax.scipy.special.erf(x),
        "round": jnp.round(4 * x),
        "sum": jnp.cumsum(x, axis=1),
        "turned": x[:, ::-1].T,
        "padded": jax.lax.pad(x, 0.5, ((1, 2, 1), (0, -1, 0))),
        "power": x**3,
        "all": jnp.all(x > -9, axis=0),
        "top": jax.lax.top_k(x, 2)[0],
    }


ELEMENTARY = (normal(4, 6),)


def transposed(params, x):
    """Transposed convolutions of 1, 2 and 3 dims; the paddings of both sides differ."""
    made = []
    for kernel, image in zip(params, x, strict=True):
        dims = kernel.ndim - 2
        letters = "DHW"[3 - dims :]
        numbers = f"N{letters}C", f"{letters}IO", f"N{letters}C"
        made.append(
            jax.lax.conv_transpose(
                image, kernel, (2,) * dims, "SAME", dimension_numbers=numbers
            )
        )
    return made


TRANSPOSED = (
    [normal(*(3,) * n, 4, 2) for n in (1, 2, 3)],
    [normal(1, *(4,) * n, 4) for n in (1, 2, 3)],
)


def scatters(x, places):
    """Scatters that combine repeated places in four ways; some places do not exist."""
    rows = x[: places.shape[0]]
    at = x.at[places]
    one = x.at[places, places - 1].set(0.5)
    return at.add(rows), at.max(rows), at.min(rows), at.mul(2 * rows), one


SCATTERS = (normal(8, 5), np.array([1, 7, 1, 12, -900], np.int32))


def gathers(x, places):
    """Gathers of places that do not exist, with each rule for them."""
    found = jnp.take(x, places, 0, mode="clip"), jnp.take(x, places, 0, mode="fill")
    return x[places], x[places, places - 1], found


def scattered_parts(x, places):
    """A scatter into parts of rows."""
    return x.at[places, 1:3].add(x[: places.shape[0], 1:3])


def constants(x):
    """Constants of several dtypes, which compilers pack into one buffer."""
    steps = jnp.float32([0.5, 0.25, 2.0])
    places = jnp.int32([2, 0, 1])
    return jax.lax.fori_loop(0, 3, lambda i, y: y * steps[places[i]] + places, x)


CONSTANTS = (normal(4, 3),)

EVERY = {
    "mlp": (mlp, MLP),
    "convolution": (convolution, CONVOLUTION),
    "attention": (attention, ATTENTION),
    "branches": (branches, BRANCHES),
    "indexing": (indexing, INDEXING),
    "recurrence": (recurrence, RECURRENCE),
    "elementary": (elementary, ELEMENTARY),
    "transposed": (transposed, TRANSPOSED),
    "scatters": (scatters, SCATTERS),
    "gathers": (gathers, SCATTERS),
    "scattered parts": (scattered_parts, SCATTERS),
    "constants": (constants, CONSTANTS),
}
"""Programs whose loops have constant bounds."""


def step(state, batch):
    """A step of gradient descent, whose state comes back."""

    def loss(params):
        return jnp.mean((jnp.tanh(batch["x"] @ params["w"]) - batch["y"]) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["params"])
    params = jax.tree.map(lambda p, g: p - 0.1 * g, state["params"], slopes)
    return {"params": params, "count": state["count"] + 1}, value


STEP = (
    {"params": {"w": normal(6, 2)}, "count": np.int32(0)},
    {"x": normal(8, 6), "y": normal(8, 2)},
)
