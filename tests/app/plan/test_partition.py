"""Partitioned functions behave as `jax.jit`'s do."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import meshwright as mw
from meshwright.app.check.compare_outputs import on_one_device
from meshwright.errors import PlanError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 8)).astype(np.float32)
W = RNG.normal(size=(8, 8)).astype(np.float32)
MESH = {"x": 4, "y": 2}
TACTICS = (mw.shard({"x": 0}, "x"), mw.shard({"w": 1}, "y"))


def layer(w, x, *, scale=1.0):
    return jnp.tanh(x @ w) * scale


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_arguments_may_come_in_any_sharding():
    step = mw.partition(layer, MESH, TACTICS)
    elsewhere = NamedSharding(jax.make_mesh((2, 4), ("p", "q")), P("q", "p"))
    for x in (X, jnp.asarray(X), jax.device_put(X, elsewhere)):
        result = step(W, x)
        close(result, layer(W, X))
        assert result.sharding.spec == P("x", "y")


def test_keywords_reach_the_function():
    close(mw.partition(layer, MESH, TACTICS)(W, X, scale=3.0), layer(W, X, scale=3.0))


def test_a_state_that_is_returned_is_not_compiled_again():
    """Weakly typed outputs, such as a step count from 0 on, stay so, as `jax.jit` does."""
    traces = []

    def step(state, x):
        traces.append(x.shape)
        return {"count": state["count"] + 1, "w": state["w"] - 0.1 * x.mean()}

    run, x = mw.partition(step, {"data": 8}, [mw.shard({"x": 0}, "data")]), jnp.ones(8)
    state = {"count": 0, "w": jnp.ones(())}
    wanted = jax.jit(step)(state, x)
    del traces[:]
    for _ in range(3):
        state = run(state, x)
        assert jax.tree.map(lambda leaf: leaf.weak_type, state) == jax.tree.map(
            lambda leaf: leaf.weak_type, wanted
        )
    assert len(traces) == 1


def doubled_by_python(total):
    return jax.pure_callback(lambda a: 2 * a, jax.typeof(total), total)


def printed(total):
    jax.debug.print("{}", total)
    return 2 * total


@pytest.mark.parametrize("call", [doubled_by_python, printed])
def test_a_callback_may_stand_beside_a_dim_that_is_split_into_sub_axes(call):
    def fn(x):
        y = jnp.tanh(x).reshape(4, 4, 32).sum(1)  # 8 devices over dims of 4 and 4
        return y, call(y.sum())

    x = jnp.asarray(RNG.normal(size=(16, 32)), jnp.float32)
    step = mw.partition(fn, {"data": 8}, [mw.shard({"x": 0}, "data")])
    for one, other in zip(step(x), fn(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    again = step(step(x)[0].repeat(4, 0))  # results may be given to the next call
    assert again[0].shape == (4, 32)


def test_a_signature_is_compiled_once():
    traces = []

    def fn(x):
        traces.append(x.shape)
        return x * 2

    step = mw.partition(fn, MESH, [mw.shard({"x": 0}, "x")])
    for _ in range(3):
        step(X)
    assert traces == [(8, 8)]
    step(X[:4])
    assert traces == [(8, 8), (4, 8)]


def test_donated_state_is_deleted():
    def step(state, x):
        return jax.tree.map(lambda a: a + x.sum(), state)

    run = mw.partition(step, MESH, [mw.shard({"state.**": 0}, "x")], donate_argnums=0)
    first = run({"a": jnp.ones((8, 8)), "b": jnp.zeros(8)}, X)
    second = run(first, X)
    assert first["a"].is_deleted()
    assert not second["a"].is_deleted()


def test_check_keeps_donated_arguments():
    run = mw.partition(
        lambda s: s + 1, MESH, [mw.shard({"s": 0}, "x")], donate_argnums=0
    )
    state = jnp.ones((8, 8))
    assert run.check(state).ok
    assert not state.is_deleted()


def test_static_arguments_select_the_program():
    def fn(mode, x, n):
        return x * n if mode == "times" else x + n

    step = mw.partition(
        fn, MESH, [mw.shard({"x": 0}, "x")], static_argnums=0, static_argnames="n"
    )
    close(step("times", X, 3), X * 3)
    close(step("plus", X, n=3), X + 3)


def test_the_derivative_of_an_integer_is_that_of_jit():
    gradient = jax.grad(lambda s: (s["w"] * s["n"]).sum(), allow_int=True)
    state = {"w": X, "n": np.int32(3)}
    got = mw.partition(gradient, MESH, [mw.shard({"s.w": 0}, "x")])(state)
    close(got["w"], np.full_like(X, 3))
    assert got["n"].dtype == jax.jit(gradient)(state)["n"].dtype


def test_static_arguments_that_are_equal_but_of_other_types_select_other_programs():
    """As in `jax.jit`: 2 == 2.0 == True, and the results have other dtypes."""
    step = mw.partition(lambda x, n: x * n, MESH, static_argnums=1)
    x = X.astype(np.int32)
    found = [step(x, n).dtype for n in (1, 1.0, True)]
    assert found == [np.int32, np.float32, np.int32]


def test_an_array_given_as_two_arguments_is_refused_if_one_is_donated():
    """As an average of weights often is at first: the same arrays as the weights."""
    step = mw.partition(lambda s, x: (s["w"] + x, s["ema"]), MESH, donate_argnums=0)
    w = jnp.ones((8, 8))
    words = "s.ema and s.w are the same array, whose memory cannot be donated and"
    with pytest.raises(PlanError, match=words):
        step({"w": w, "ema": w}, X)
    with pytest.raises(PlanError, match=r"x and s\.w are the same array"):
        step({"w": w, "ema": X}, w)
    close(step({"w": w, "ema": jnp.copy(w)}, X)[0], X + 1)


@pytest.mark.parametrize("mesh", [{"x": 1}, MESH])
def test_two_arrays_in_the_same_memory_are_refused_if_one_is_donated(mesh):
    """As `jax.device_put` gives for an array that is on the device already."""

    def average(s, x):
        return {"w": s["w"] + x.sum(), "ema": s["ema"] + 1}

    step = mw.partition(average, mesh, [mw.shard({"x": 0}, "x")], donate_argnums=0)
    w = jnp.ones((8, 8))
    alias = jax.device_put(w, jax.devices()[0])
    assert alias is not w
    with pytest.raises(
        PlanError, match=r"s\.ema and s\.w are arrays in the same memory"
    ):
        step({"w": w, "ema": alias}, X)
    state = {
        "w": jnp.ones((8, 8)),
        "ema": jnp.ones((8, 8)),
    }
    for _ in range(2):
        state = step(state, X)
    close(state["ema"], np.full((8, 8), 3))


def test_an_array_that_an_earlier_call_took_is_named():
    step = mw.partition(lambda s, x: s["w"] + x, MESH, donate_argnames="s")
    state = {"w": jnp.ones((8, 8))}
    state["w"] = step(state, X)
    step(state, X)
    with pytest.raises(
        PlanError, match=r"s\.w is an array that was deleted.* found plan .*=\(\)"
    ):
        step(state, X)


def test_a_jitted_function_can_be_partitioned():
    fn = jax.jit(lambda x, n: x * n, static_argnames="n")
    step = mw.partition(fn, MESH, [mw.shard({"x": 0}, "x")], static_argnames="n")
    close(step(X, n=2), X * 2)


def test_static_and_donated_arguments_of_a_jitted_function_are_kept():
    fn = jax.jit(
        lambda s, x, n: s + x if n > 1 else s, static_argnames="n", donate_argnums=0
    )
    step = mw.partition(fn, MESH, [mw.shard({"s": 0}, "x")])
    state = step(X, X, n=2)
    after = step(state, X, n=2)
    assert state.is_deleted()
    close(after, X * 3)


def test_variadic_arguments_are_counted_as_jit_counts_them():
    step = mw.partition(
        lambda *xs: xs[0] * xs[1] + xs[2],
        MESH,
        [mw.shard({"xs.0": 0}, "x")],
        static_argnums=1,
        donate_argnums=(0,),
    )
    state = step(X, 2, X)
    after = step(state, 2, X)
    assert state.is_deleted()
    close(after, X * 7)


def test_variadic_arguments_have_paths():
    def total(*xs, **named):
        return sum(xs) + named["k"]

    step = mw.partition(total, MESH, [mw.shard({"xs.*": 0, "k": 0}, "x")])
    plan = step.plan(X, X, k=X)
    assert [leaf.path for leaf in plan.inputs] == ["xs.0", "xs.1", "k"]
    assert step.check(X, X, k=X).ok


def test_weak_scalars_keep_the_dtype():
    step = mw.partition(lambda x, a: x * a, MESH, [mw.shard({"x": 0}, "x")])
    assert step(jnp.ones(8, jnp.bfloat16), 2.0).dtype == jnp.bfloat16


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_jax_mesh_of_any_axis_type_works(kind):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)
    step = mw.partition(layer, mesh, TACTICS)
    with jax.set_mesh(mesh):
        assert step.check(W, X).ok
    close(step(W, jax.device_put(X, NamedSharding(mesh, P("x", "y")))), layer(W, X))


def test_explicit_shardings_in_the_code_are_honoured():
    mesh = jax.make_mesh((4, 2), ("x", "y"))

    def fn(w, x):
        x = jax.reshard(x, P("x"))
        return jnp.einsum("ij,jk->ik", x, w, out_sharding=P("x", "y"))

    with jax.set_mesh(mesh):
        step = mw.partition(fn, mesh, [])
        plan = step.plan(W, X)
        assert step.check(W, X).ok
    assert [leaf.spec for leaf in plan.inputs] == [((), ("y",)), (("x",), ())]


def test_constraints_on_axes_outside_the_mesh_are_reported():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))

    def fn(x):
        return jax.lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P("x"))) + 1

    assert mw.partition(fn, {"x": 8}).plan(X).spec("x") == P("x", None)
    foreign = mw.partition(fn, {"z": 8}).plan(X)
    assert foreign.spec("x") == P(None, None)
    assert "this axis is not in the mesh" in foreign.steps[0].refused[0]


def test_an_inner_shard_map_runs_as_it_is():
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)

    def fn(a, b):
        inner = jax.shard_map(
            lambda a, b: (jax.lax.psum(a, "x"), b * 2),
            mesh=mesh,
            in_specs=(P("x"), P(None, "x")),
            out_specs=(P(), P(None, "x")),
        )
        return inner(jnp.sin(a), b * 3)

    step = mw.partition(fn, MESH)
    assert step.check(X, W).ok
    assert step.plan(X, W).spec("a") == P("x", None)
    with pytest.raises(mw.MeshwrightError, match=r"py:.* works over x=4, y=2"):
        mw.partition(fn, {"z": 8}).plan(X, W)


def test_a_pmap_over_another_mesh_says_which_mesh_it_wants():
    step = jax.pmap(lambda x: jax.lax.pmean(x, "i"), axis_name="i")
    close(mw.partition(step, {"i": 8})(X), step(X))
    for mesh in ({"data": 8}, {"i": 4}):
        wanted = r"a pmap .* works over i=8, but .*; wanted .* such as {'i': 8}"
        with pytest.raises(mw.MeshwrightError, match=wanted):
            mw.partition(step, mesh)(X)


def test_effects_happen_once():
    seen = []

    def fn(x):
        jax.debug.callback(lambda s: seen.append(float(s)), x.sum())
        return x * 2

    step = mw.partition(fn, MESH, [mw.shard({"x": 0}, "x")])
    jax.block_until_ready(step(X))
    jax.effects_barrier()
    assert len(seen) == 1
    close(seen[0], X.sum())


def test_ordered_effects_are_refused():
    def fn(x):
        jax.debug.print("{}", x.sum(), ordered=True)
        return x

    with pytest.raises(mw.MeshwrightError, match="ordered effects"):
        mw.partition(fn, MESH).plan(X)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x,
        lambda x: (1.0, x, {"k": 3}),
        lambda x: (),
        lambda x: (x, x, x[0]),
        lambda x: jnp.arange(8),
        lambda x: x @ W,
    ],
    ids=["input", "literals", "nothing", "twice", "no input used", "constant"],
)
def test_odd_programs(fn):
    assert mw.partition(fn, MESH, [mw.shard({"x": 0}, "x")]).check(X).ok


def test_an_axis_larger_than_the_major_part_spills():
    def fn(x):
        return (x.reshape(4, 2, 8) * 2).reshape(8, 8)

    step = mw.partition(fn, {"x": 8}, [mw.shard({"x": 0}, "x")])
    assert sum(step.plan(X).counts.values()) == 0
    assert step.check(X).ok


def test_a_gradient_accumulated_in_a_loop_has_one_all_reduce():
    def fn(w, batches):
        def add(total, x):
            return total + jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), None

        return jax.lax.scan(add, jnp.zeros_like(w), batches)[0]

    step = mw.partition(fn, {"x": 8}, [mw.shard({"batches": 1}, "x")])
    batches = RNG.normal(size=(5, 16, 8)).astype(np.float32)
    assert step.plan(W, batches).counts["all_reduce"] == 1
    assert step.check(W, batches).ok


def test_a_rule_of_the_user_partitions_a_primitive_of_the_user():
    from jax.extend.core import Primitive
    from jax.interpreters import mlir

    twice_p = Primitive("test_twice")
    twice_p.def_impl(lambda x: x * 2)
    twice_p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(
        twice_p, mlir.lower_fun(lambda x: x * 2, multiple_results=False)
    )

    step = mw.partition(lambda x: twice_p.bind(x) + 1, MESH, [mw.shard({"x": 0}, "x")])
    assert "no factor rule" in step.plan(X).whole[0]
    mw.rule("test_twice")(lambda op: "ij->ij")
    assert step.plan(X).counts["all_gather"] == 0
    assert step.check(X).ok


def test_a_partial_sum_passes_a_mask_of_zeros():
    def fn(w, x, mask):
        return jnp.where(mask, x @ w, 0.0).sum(axis=1)

    step = mw.partition(fn, MESH, [mw.shard({"w": 0}, "x")])
    mask = X > 0
    (collective,) = step.plan(W, X, mask).collectives
    assert (collective.kind, collective.value) == ("all_reduce", "f32[8]")
    assert step.check(W, X, mask).ok


def test_platform_dependent_code_takes_the_branch_of_this_platform():
    def fn(x):
        return jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)

    step = mw.partition(fn, MESH, [mw.shard({"x": 0}, "x")])
    close(step(X), np.sin(X))


def test_platform_dependent_code_on_a_gpu_takes_the_branch_of_its_vendor(monkeypatch):
    def fn(x):
        return jax.lax.platform_dependent(x, cuda=jnp.sin, default=jnp.cos)

    step = mw.partition(fn, MESH, [mw.shard({"x": 0}, "x")])
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    close(step(X), np.sin(X))


def test_a_whole_addend_does_not_end_a_partial_sum():
    def fn(x, a, u, b, v):
        return jnp.tanh(((x + a @ u) + b @ v) * 2.0)

    tactics = [mw.shard({"a": 1, "b": 1}, "x")]
    step = mw.partition(fn, MESH, tactics)
    args = (X, X + 1, W, X - 1, W * 2)
    assert step.plan(*args).counts["all_reduce"] == 1
    assert step.check(*args).ok


def test_mixed_precision_rounds_sums_not_addends():
    def fn(x, w):
        return jnp.dot(x, w).astype(jnp.bfloat16).astype(jnp.float32) + 1

    step = mw.partition(fn, MESH, [mw.shard({"x": 1}, "x")])
    assert step.plan(X, W).counts["all_reduce"] == 1
    assert step.check(X, W).ok


def test_a_sum_over_zero_is_infinite_as_on_one_device():
    step = mw.partition(lambda x, w, c: x @ w / c, MESH, [mw.shard({"x": 1}, "x")])
    assert step.check(X, W, jnp.zeros(())).ok


def test_check_compares_with_one_device_for_arguments_on_any_devices():
    devices = []

    def fn(x):
        jax.debug.inspect_array_sharding(
            x, callback=lambda s: devices.append(s.num_devices)
        )
        return jnp.tanh(x)

    step = mw.partition(jnp.tanh, MESH, [mw.shard({"x": 0}, "x")])
    assert step.check(step(X)).ok
    jax.jit(fn)(on_one_device(step(X)))
    assert devices == [1]


def test_a_partitioned_function_works_inside_other_transformations():
    step = mw.partition(layer, MESH, TACTICS)
    close(jax.jit(step)(W, X), layer(W, X))
    grad = jax.grad(lambda w: step(w, X).sum())(W)
    close(grad, jax.grad(lambda w: layer(w, X).sum())(W))


def test_results_have_the_mesh_of_the_user():
    def fn(x):
        return (x.reshape(4, 2, 8) * 2).reshape(8, 8)

    result = mw.partition(fn, {"x": 8}, [mw.shard({"x": 0}, "x")])(X)
    assert dict(result.sharding.mesh.shape) == {"x": 8}
    assert result.sharding.spec == P("x")
    with pytest.raises(mw.MeshwrightError, match="mesh x=16 needs 16 devices"):
        mw.partition(fn, {"x": 16}, [mw.shard({"x": 0}, "x")])(X)


def test_the_stages_of_jit_take_structured_arguments():
    def step(state, x, scale=2.0, *, flip=False):
        w = state["w"] - 0.1 * x.mean(0) * (-scale if flip else scale)
        return {"w": w}, (x @ w).sum()

    state, x = {"w": jnp.asarray(W[0])}, jnp.asarray(X)
    run = mw.partition(
        step,
        {"x": 8},
        [mw.shard({"x": 0}, "x")],
        static_argnames="flip",
        donate_argnames="state",
    )
    lowered = run.lower(state, x, 3.0, flip=True)
    assert "all-reduce" in lowered.compile().as_text()
    shapes = run.eval_shape(state, x, flip=True)
    assert shapes[0]["w"].shape == (8,)
    assert str(run.trace(state, x).jaxpr.out_avals[0]) == "float32[8]"
    wanted = step(state, x, 3.0, flip=True)
    compiled = lowered.compile()
    placed = jax.tree.map(jnp.array, state)
    got = compiled(placed, x, 3.0)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        close(one, other)
    assert placed["w"].is_deleted()
    shaped = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (state, x))
    assert run.lower(*shaped).compile() is not None
    exported = jax.export.export(run.jitted(*shaped))(*shaped)
    assert exported.nr_devices == 8
