"""Barriers and rewrites that keep XLA from failing on correct device programs."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import meshwright as mw

X = jnp.sin(jnp.arange(3 * 8 * 4 * 16.0)).reshape(3, 8, 4, 16)
TACTICS = [mw.data_parallel("data"), mw.fsdp("data")]


def accumulated(params, batches, rounded):
    """Parameters after a step on gradients accumulated over three batches in float32."""

    def loss(params, x):
        scale = params["scale"]
        scale = scale.astype(jnp.bfloat16) if rounded else scale
        return jnp.tanh(x * scale.astype(jnp.float32) @ params["w"]).mean()

    def iteration(total, x):
        return jax.tree.map(jnp.add, total, jax.grad(loss)(params, x)), None

    total, _ = lax.scan(iteration, jax.tree.map(jnp.zeros_like, params), batches)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, total)


@pytest.mark.parametrize("rounded", [True, False])
def test_rounded_reduce_scatters_that_a_loop_accumulates_get_a_barrier(rounded):
    params = {"scale": jnp.ones(16), "w": jnp.cos(jnp.arange(256.0)).reshape(16, 16)}

    def step(params, batches):
        return accumulated(params, batches, rounded)

    partitioned = mw.partition(step, {"data": 4}, TACTICS)
    lowered = partitioned.plan(params, X).decided.lowered
    inside = [op for op in lowered.program.walk() if op not in lowered.program.ops]
    assert "reduce_scatter" in [op.kind for op in inside]
    barriers_inside = [op for op in inside if op.kind == "optimization_barrier"]
    assert [op.results[0].shape for op in barriers_inside] == [(4,)] * rounded
    assert partitioned.check(params, X).ok


def test_the_device_program_of_a_found_plan_has_the_barriers_as_well():
    def step(params, batches):
        return accumulated(params, batches, rounded=True)

    params = {"scale": jnp.ones(16), "w": jnp.cos(jnp.arange(256.0)).reshape(16, 16)}
    found = mw.autoplan(
        step, (params, X), machine="tpu-v5e", chips=4, tactics=TACTICS, budget_s=1
    )
    made = mw.partition(step, found.mesh, found.tactics).plan(params, X)
    kinds, own = (
        [op.kind for op in plan.decided.lowered.program.walk()]
        for plan in (found, made)
    )
    assert kinds == own
    assert "optimization_barrier" in kinds


def test_a_loop_may_split_what_it_summed_over_devices():
    def step(w, batches):
        def loss(w, x):
            hidden = x @ w
            gate, up = jnp.split(hidden, 2, -1)
            return jnp.sum(jnp.tanh(gate) * up) + jnp.sum(jnp.tanh(hidden))

        def iteration(total, x):
            return total + jax.grad(loss)(w, x), None

        return w - 0.1 * lax.scan(iteration, jnp.zeros_like(w), batches)[0]

    w, batches = jnp.ones((8, 16)) / 8, jnp.sin(jnp.arange(256.0)).reshape(4, 8, 8)
    partitioned = mw.partition(step, {"data": 4}, [mw.shard({"w": 0}, "data")])
    assert partitioned.check(w, batches).ok


A = jnp.cos(jnp.arange(256.0)).reshape(16, 16)
ZEROS = jnp.zeros((16, 16))


def rounded(value):
    return value.astype(jnp.bfloat16).astype(jnp.float32)


def product(w, x):
    """A product that is reduce-scattered if its result is cut."""
    return jnp.einsum("bd,be->de", x, jnp.tanh(x @ w))


def scanned(iteration):
    return lambda w, start, xs: lax.scan(
        lambda c, x: (iteration(w, c, x), None), start, xs
    )[0]


def rounded_after_remat(w, c, x):
    return c + rounded(jax.checkpoint(product)(w, x))


def rounded_in_remat(w, c, x):
    return c + jax.checkpoint(lambda w, x: rounded(product(w, x)))(w, x)


def added_in_remat(w, c, x):
    return jax.checkpoint(lambda w, c, x: c + rounded(product(w, x)))(w, c, x)


def by_while(w, start, xs):
    def body(carry):
        index, total = carry
        return index + 1, total + rounded(product(w, xs[index]))

    return lax.while_loop(lambda carry: carry[0] < len(xs), body, (0, start))[1]


def into_two(w, start, xs):
    def iteration(carry, x):
        added = rounded(product(w, x))
        return (carry[0] + added, carry[1] + added), None

    return lax.scan(iteration, (jnp.zeros_like(start), start), xs)[0]


def of_an_inner_loop(w, c, x):
    def inner(total, row):
        return total + product(w, row), None

    return c + rounded(lax.scan(inner, jnp.zeros_like(c), x)[0])


def subtracted(w, c, x):
    return c - rounded(product(w, x))


def read_before(w, c, x):
    return c + rounded(product(w + 1e-3 * jnp.tanh(c), x))


def read_after(w, c, x):
    total = c + rounded(product(w, x))
    return total + 1e-3 * jnp.tanh(total)


def only_widened(w, c, x):
    return c + product(w, x)


def into_a_total_of_low_precision(w, start, xs):
    def iteration(total, x):
        return total + product(w, x).astype(jnp.bfloat16), None

    return lax.scan(iteration, start.astype(jnp.bfloat16), xs)[0]


def of_one_layer(w, start, xs):
    def iteration(total, x):
        return total + rounded(product(w, x))[None], None

    return lax.scan(iteration, start[None], xs)[0]


def selected_and_widened(w, c, x):
    half = product(w, x.astype(jnp.bfloat16)).astype(jnp.bfloat16)
    return c + jnp.where(c.shape[0] > w[0, 0], half, 0).astype(jnp.float32)


NESTS = {
    scanned(rounded_after_remat): 1,
    scanned(rounded_in_remat): 1,
    scanned(added_in_remat): 1,
    by_while: 1,
    into_two: 1,
    into_a_total_of_low_precision: 1,
    of_one_layer: 1,
    scanned(selected_and_widened): 1,
    scanned(subtracted): 0,
    scanned(read_before): 0,
    scanned(read_after): 0,
    scanned(only_widened): 0,
}


def barriers(fn, args, tactics):
    """Number of barriers in a step that computes the same as on one device."""
    partitioned = mw.partition(fn, {"data": 4}, tactics)
    assert partitioned.check(*args).ok
    ops = partitioned.plan(*args).decided.lowered.program.walk()
    return [op.kind for op in ops].count("optimization_barrier")


CUT = [
    mw.shard({"xs": 1}, "data"),
    mw.shard({"w": 0}, "data"),
    mw.shard({"start": 0}, "data"),
]


@pytest.mark.parametrize(("fn", "count"), NESTS.items())
def test_rounded_sums_get_a_barrier_wherever_a_loop_accumulates_them(fn, count):
    """The TPU compiler (libtpu 0.0.50) compiles the cases without barrier."""
    assert barriers(fn, (A, ZEROS, X[:, :, 0]), CUT) == count


def test_a_rounded_sum_of_an_inner_loop_gets_a_barrier_in_the_outer_loop():
    fn = scanned(of_an_inner_loop)
    cut = [mw.shard({"xs": 2}, "data"), *CUT[1:]]
    assert barriers(fn, (A, ZEROS, X.swapaxes(1, 2)), cut) == 1


def test_a_rounded_all_reduce_without_scatter_gets_no_barrier():
    """The TPU compiler (libtpu 0.0.50) moves it out of the loop without failing."""

    def iteration(w, c, x):
        return c + rounded(product(w, x))

    fn = scanned(iteration)
    assert barriers(fn, (A, ZEROS, X[:, :, 0]), CUT[:1]) == 0


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.bfloat16])
def test_sums_that_are_converted_to_integers_stay_in_their_loop(dtype):
    """If moved, each device's addend is truncated: eight addends of 0.5 gave 0, not 4."""

    def step(xs):
        def iteration(total, x):
            return total + x.sum(0).astype(dtype), None

        return lax.scan(iteration, jnp.zeros(xs.shape[2:], dtype), xs)[0]

    args = (jnp.full((3, 8, 16), 0.5),)
    cut = [mw.shard({"xs": 1}, "data")]
    assert barriers(step, args, cut) == (dtype == jnp.int32)


def test_complex_sums_are_reduce_scattered_as_real_and_imaginary_parts():
    """The TPU compiler has no reduce-scatter of complex numbers."""

    def step(params, x):
        def loss(params):
            made = x.astype(jnp.complex64) @ params["w"]
            return (made.real**2 + made.imag**2).mean()

        grads = jax.grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * jnp.conj(g), params, grads)

    params = {"w": jnp.exp(1j * jnp.arange(256.0)).reshape(16, 16)}
    partitioned = mw.partition(step, {"data": 4}, TACTICS)
    plan = partitioned.plan(params, X[0, :, 0])
    assert plan.counts["reduce_scatter"] == 1
    assert partitioned.check(params, X[0, :, 0]).ok
    text = str(jax.make_jaxpr(partitioned)(params, X[0, :, 0]))
    (line,) = [each for each in text.splitlines() if "= reduce_scatter[" in each]
    assert ":f32[" in line
