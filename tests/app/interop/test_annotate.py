"""`plan.annotate(fn)`: the same function, which `jax.jit` partitions as the plan says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import meshwright as mw
from meshwright.app.check.compare_outputs import check_outputs
from meshwright.app.check.report import tolerance_of
from meshwright.app.check.sample import sample_arguments
from meshwright.cli.arguments.target import find_target
from meshwright.errors import CaptureError, MeshError, PlanError, TacticError
from meshwright.partitioner.lower.constrained import CONSTRAIN
from meshwright.program.analysis.narrowest_floats import narrowest_floats
from tests.app.plan.test_spelled import branching, remat_step
from tests.app.plan.test_travel import PARAMS, TACTICS, X, train

MESH = {"data": 4, "model": 2}
RNG = np.random.default_rng(0)


def normal(*extents):
    return jnp.asarray(0.2 * RNG.normal(size=extents), jnp.float32)


def block(params, x):
    """Structured arguments and results; hidden values that no argument decides."""
    hidden = jnp.tanh(x["rows"] @ params["up"])
    return {"y": hidden @ params["down"], "norms": (hidden.sum(), x["rows"])}


LINE = block.__code__.co_firstlineno + 2
BLOCK = {"up": normal(16, 32), "down": normal(32, 16)}, {"rows": normal(16, 16)}
STACK = {"up": normal(3, 16, 32), "down": normal(3, 32, 16)}
CASES = {
    "block": (block, BLOCK, [mw.data_parallel("data"), mw.megatron("model")]),
    "ops": (
        block, BLOCK,
        [mw.pin({f"test_annotate.py:{LINE} dot_general": "[-, model.data]"})],
    ),
    "sub-axes": (train, (PARAMS, X), TACTICS),
    "remat in scans": (
        remat_step, (STACK, normal(16, 16)),
        [mw.data_parallel("data", "x"), mw.zero(3, "data")],
    ),
    "a loop and a choice": (
        branching, (normal(16, 8), normal(8, 8), np.int32(3)),
        [mw.shard({"x": 0}, "data"), mw.shard({"w": 1}, "model")],
    ),
}  # fmt: skip


@pytest.fixture(params=[True, False], ids=["shardy", "gspmd"])
def partitioner(request):
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param)
    yield
    jax.config.update("jax_use_shardy_partitioner", before)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("partitioner")
def test_jit_of_the_annotated_function_computes_the_same_with_the_plans_shardings(case):
    fn, args, tactics = CASES[case]
    plan = mw.partition(fn, MESH, tactics).plan(*args)
    got = jax.jit(plan.annotate(fn))(*args)
    wanted = fn(*args)
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        assert (one.dtype, one.weak_type) == (other.dtype, other.weak_type)
    for leaf, sharding in zip(
        jax.tree.leaves(got), jax.tree.leaves(plan.out_shardings), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)


def equations(jaxpr):
    """All equations of a jaxpr, nested ones included."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jax.tree.leaves(dict(eqn.params)):
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def test_values_inside_of_loops_have_the_constraints_of_the_plan():
    fn, args, tactics = CASES["remat in scans"]
    plan = mw.partition(fn, MESH, tactics).plan(*args)
    traced = jax.make_jaxpr(plan.annotate(fn))(*args)
    loops = [e for e in equations(traced) if e.primitive.name == "scan"]
    assert len(loops) == 3  # over microbatches; forward and backward over layers
    for loop in loops[1:]:
        inside = [
            eqn.params["sharding"].spec
            for eqn in equations(loop.params["jaxpr"])
            if eqn.primitive.name == "sharding_constraint"
        ]
        assert jax.P("data") in inside  # activations
        assert jax.P() in inside  # gathered weights


def test_a_decision_that_no_argument_shows_is_kept_by_the_compiler():
    fn, args, tactics = CASES["ops"]
    plan = mw.partition(fn, MESH, tactics).plan(*args)
    plain = jax.jit(fn, in_shardings=plan.in_shardings).lower(*args).compile()
    assert "all-gather" not in plain.as_text()
    text = jax.jit(plan.annotate(fn)).lower(*args).compile().as_text()
    assert "f32[16,4]" in text  # 32 columns over 8 devices
    assert "all-gather" in text


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_plan_annotates_and_refuses_another_function(is_loaded):
    fn, args, tactics = CASES["block"]
    plan = mw.partition(fn, MESH, tactics).plan(*args)
    plan = mw.Plan.from_json(plan.to_json()) if is_loaded else plan
    got = jax.jit(plan.annotate(fn))(*args)
    np.testing.assert_allclose(got["y"], fn(*args)["y"], rtol=1e-4, atol=1e-5)

    def other(params, x):
        return block(params, x)["y"].sum()

    with pytest.raises(TacticError, match="made for another program"):
        plan.annotate(other)(*args)


def test_static_arguments_and_keywords_work():
    def plain(x, power, *, shift, scale=1.0):
        return jnp.mean((x @ x.T) ** power) * scale + shift

    static = {"static_argnums": 1, "static_argnames": "scale"}
    fn = jax.jit(plain, **static)
    x = normal(16, 8)
    plan = mw.partition(fn, MESH, [mw.shard({"x": 0}, "data")]).plan(x, 2, shift=1.0)
    annotated = plan.annotate(fn)
    jitted = jax.jit(plan.annotate(plain, **static), **static)
    assert float(jitted(x, 2, shift=1.0)) == pytest.approx(float(fn(x, 2, shift=1.0)))
    assert float(annotated(x, 2, shift=1.0)) == pytest.approx(
        float(fn(x, 2, shift=1.0))
    )


def test_a_derivative_is_refused_since_custom_rules_are_lost():
    @jax.custom_vjp
    def straight_through(x):
        return jnp.round(x)

    straight_through.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g,))

    def loss(x):
        return straight_through(x).sum()

    x = normal(16, 8)
    plan = mw.partition(loss, MESH, [mw.shard({"x": 0}, "data")]).plan(x)
    with pytest.raises(
        CaptureError, match="annotate the function that computes the gr"
    ):
        jax.jit(jax.grad(plan.annotate(loss)))(x)
    grad = jax.grad(loss)
    plan = mw.partition(grad, MESH, [mw.shard({"x": 0}, "data")]).plan(x)
    np.testing.assert_array_equal(jax.jit(plan.annotate(grad))(x), jnp.ones((16, 8)))


def test_a_shard_map_and_an_effect_of_the_user_stay(capfd):
    auto = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=auto)

    def fn(x):
        jax.debug.print("seen {}", x.sum())
        total = jax.shard_map(
            lambda rows: lax.psum(rows, "data"), mesh=mesh,
            in_specs=jax.P("data"), out_specs=jax.P(),
        )(x)  # fmt: skip
        return total @ x.T

    x = jnp.ones((8, 4))
    plan = mw.partition(fn, MESH, []).plan(x)
    got = jax.jit(plan.annotate(fn))(x)
    jax.effects_barrier()
    np.testing.assert_allclose(got, fn(x))
    assert "seen 32.0" in capfd.readouterr().out


def test_the_mesh_in_context_is_used_and_checked():
    fn, args, tactics = CASES["block"]
    plan = mw.partition(fn, MESH, tactics).plan(*args)
    auto = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=auto)
    with jax.set_mesh(mesh):
        got = jax.jit(plan.annotate(fn))(*args)
    np.testing.assert_allclose(got["y"], fn(*args)["y"], rtol=1e-4, atol=1e-5)
    with pytest.raises(MeshError, match="for mesh data=4,model=2, but this one has"):
        plan.annotate(fn, jax.make_mesh((8,), ("data",), axis_types=auto[:1]))
    explicit = (jax.sharding.AxisType.Explicit,) * 2
    with pytest.raises(MeshError, match="constraints need axes of type Auto"):
        plan.annotate(fn, jax.make_mesh((4, 2), ("data", "model"), axis_types=explicit))
    with pytest.raises(PlanError, match="wants a function"):
        plan.annotate(3)


def test_every_value_that_is_not_partial_has_a_constraint():
    fn, args, tactics = CASES["block"]
    plan = mw.partition(fn, MESH, tactics).plan(*args)
    from meshwright.partitioner.lower import constrained_program

    decided = plan.decided
    program = constrained_program(decided.work.state, decided.lowered, str)
    made = [op.params["sharding"] for op in program.ops if op.kind == CONSTRAIN]
    assert made.count("[data, model]") == 2  # the product and its tanh


ZOO = {
    "moe": [mw.data_parallel("data"), mw.expert_parallel("model"), mw.zero(3, "data")],
    "resnet": [mw.data_parallel("data"), mw.zero(3, "model")],
    "serving": [mw.data_parallel("data"), mw.megatron("model")],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_annotated_steps_of_the_zoo_compute_the_same_as_on_one_device(name):
    target = find_target(f"zoo/{name}.py:tiny")
    args = sample_arguments(target.fn, target.args, 0)
    plan = mw.partition(target.fn, MESH, ZOO[name]).plan(*args)
    annotated, tree = jax.jit(plan.annotate(target.fn)), jax.tree.structure(args)

    def original(*leaves):
        return jax.tree.leaves(target.fn(*jax.tree.unflatten(tree, leaves)))

    def run(leaves):
        return tuple(jax.tree.leaves(annotated(*jax.tree.unflatten(tree, leaves))))

    captured = plan.decided.captured
    rounding = narrowest_floats(captured.program, tolerance_of)
    leaves = jax.tree.leaves(args)
    report = check_outputs(captured.out_paths, original, run, leaves, rounding)
    assert report.ok, report
    assert len(report.outputs) == len(plan.outputs)
