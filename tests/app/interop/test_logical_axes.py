"""Logical axis rules of Flax and MaxText as tactics, and a plan's shardings as rules."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

import meshwright as mw
from meshwright.app.interop.logical_rules import axes_of_names, read_rules
from meshwright.errors import PlanError, TacticError

MESH = {"data": 4, "model": 2}
RULES = [("batch", "data"), ("mlp", "model"), ("embed", "data"), ("norm", None)]

MAXTEXT = [
    ["activation_batch", ["data", "fsdp", "fsdp_transpose"]],
    ["activation_mlp", "tensor"],
    ["mlp", ["fsdp_transpose", "tensor", "autoregressive"]],
    ["vocab", ["tensor", "autoregressive"]],
    ["embed", ["fsdp", "fsdp_transpose", "sequence"]],
    ["embed", ["fsdp", "sequence"]],
    ["norm", "tensor"],
    ["heads", ["tensor", "autoregressive"]],
    ["kv", []],
]
"""Some of the rules of MaxText's `configs/base.yml`, as YAML gives them."""


# -- rules ---------------------------------------------------------------------------------

NAMES = st.lists(
    st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=4,
    unique_by=lambda name: name or object(),
)  # fmt: skip
AXES = st.sampled_from(
    [None, "x", "y", "z", ("x", "y"), ("y", "x"), ("z",), ("y", "z")]
)


@given(NAMES, st.lists(st.tuples(st.sampled_from("abcd"), AXES), max_size=8))
def test_rules_mean_the_same_as_in_flax(names, rules):
    flat = axes_of_names(tuple(names), read_rules(rules))
    wanted = nn.logical_to_mesh_axes(tuple(names), rules)
    assert flat == tuple(
        (e,) if isinstance(e, str) else tuple(e or ()) for e in tuple(wanted)
    )


@pytest.mark.parametrize("rules", ["embed", 3, [("embed",)], [("a", 3)], [(1, "x")]])
def test_a_rule_that_is_none_is_refused(rules):
    with pytest.raises(TacticError, match="wanted a"):
        mw.from_logical_axes(rules, {"w": ("embed", "mlp")})


# -- linen ---------------------------------------------------------------------------------


def boxed(init, *names):
    return nn.with_logical_partitioning(init, names)


class Mlp(nn.Module):
    """Two products and a norm, whose parameters have logical names."""

    @nn.compact
    def __call__(self, x):
        init, ones = nn.initializers.lecun_normal(), nn.initializers.ones
        x = nn.LayerNorm(scale_init=boxed(ones, "norm"), bias_init=boxed(ones, "norm"))(
            x
        )
        h = nn.Dense(32, use_bias=False, kernel_init=boxed(init, "embed", "mlp"))(x)
        h = nn.Dense(16, use_bias=False, kernel_init=boxed(init, "mlp", "embed"))(h)
        return nn.with_logical_constraint(nn.tanh(h), ("batch", None))


def train(params, x):
    """One step of gradient descent."""
    loss, grads = jax.value_and_grad(lambda p: jnp.mean(Mlp().apply(p, x) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


X = jnp.asarray(np.random.default_rng(0).normal(size=(16, 16)), jnp.float32)
VARIABLES = Mlp().init(jax.random.key(0), X)
PARAMS = nn.unbox(VARIABLES)


def flax_specs(rules):
    """The shardings that Flax gives the parameters."""
    return jax.tree.leaves(nn.logical_to_mesh(nn.get_partition_spec(VARIABLES), rules))


@pytest.mark.parametrize("is_boxed", [True, False])
@pytest.mark.parametrize("form", [lambda v: v, nn.get_partition_spec])
def test_arguments_get_the_shardings_that_flax_gives_them(form, is_boxed):
    tactics = mw.from_logical_axes(RULES, form(VARIABLES), "params")
    step = mw.partition(train, MESH, [mw.data_parallel("data", "x"), *tactics])
    params = VARIABLES if is_boxed else PARAMS
    plan = step.plan(params, X)
    got = [jax.P(*leaf.partition_spec) for leaf in plan.inputs[:-1]]
    for one, wanted in zip(got, flax_specs(RULES), strict=True):
        assert tuple(one) == tuple(wanted)
    assert step.check(params, X).ok


def test_the_rules_around_the_call_are_used():
    with nn.logical_axis_rules(RULES):
        tactics = mw.from_logical_axes(None, VARIABLES, "params")
    assert tactics == mw.from_logical_axes(RULES, VARIABLES, "params")
    with pytest.raises(TacticError, match="there are no rules"):
        mw.from_logical_axes(None, VARIABLES, "params")


def test_logical_constraints_in_the_code_are_kept():
    mesh = jax.make_mesh(
        (4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2
    )
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        plan = mw.partition(lambda p, x: Mlp().apply(p, x), MESH).plan(PARAMS, X)
    assert plan.outputs[0].partition_spec == jax.P("data", None)


# -- nnx -----------------------------------------------------------------------------------


def with_names(*names):
    return nnx.with_partitioning(nnx.initializers.lecun_normal(), names)


class Net(nnx.Module):
    """The same as `Mlp`, without the norm."""

    def __init__(self, rngs):
        up, down = with_names("embed", "mlp"), with_names("mlp", "embed")
        self.up = nnx.Linear(16, 32, use_bias=False, kernel_init=up, rngs=rngs)
        self.down = nnx.Linear(32, 16, use_bias=False, kernel_init=down, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.relu(self.up(x)))


def test_sharding_metadata_of_nnx_is_read():
    with nnx.use_eager_sharding(False):
        net = Net(nnx.Rngs(0))
    definition, state = nnx.split(net)

    def loss(state, x):
        return jnp.mean(nnx.merge(definition, state)(x) ** 2)

    def step(state, x):
        value, grads = jax.value_and_grad(loss)(state, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, state, grads), value

    tactics = mw.from_logical_axes(RULES, state, "state", MESH)
    assert tactics == mw.from_logical_axes(
        RULES, nnx.get_partition_spec(state), "state", MESH
    )
    run = mw.partition(step, MESH, [mw.data_parallel("data", "x"), *tactics])
    plan = run.plan(state, X)
    specs = {leaf.path: leaf.partition_spec for leaf in plan.inputs}
    assert specs["state.up.kernel.value"] == jax.P("data", "model")
    assert specs["state.down.kernel.value"] == jax.P("model", "data")
    assert run.check(state, X).ok
    rules = plan.logical_axis_rules(state, "state")
    assert sorted(rules) == [("embed", "data"), ("mlp", "model")]


# -- MaxText -------------------------------------------------------------------------------

AXES_OF = {
    "state.params.layers.mlp.wi": ("embed", None, "mlp"),
    "state.params.layers.mlp.wo": ("mlp", None, "embed"),
    "state.params.norm": ("norm",),
    "state.params.logits": ("embed", "vocab"),
    "batch": ("activation_batch", None),
}


def maxtext_step(state, batch):
    mlp = state["params"]["layers"]["mlp"]
    x = (
        batch
        @ state["params"]["layers"]["mlp"]["wi"][:, 0]
        * state["params"]["norm"][0]
    )
    return jax.nn.relu(x) @ mlp["wo"][:, 0] @ state["params"]["logits"]


def test_the_rules_of_maxtext_are_read_and_patterns_name_arrays():
    mesh = {"data": 2, "fsdp": 2, "tensor": 2, "autoregressive": 1}
    tactics = mw.from_logical_axes(MAXTEXT, AXES_OF, mesh=mesh)
    params = {
        "layers": {"mlp": {"wi": jnp.ones((16, 1, 32)), "wo": jnp.ones((32, 1, 16))}},
        "norm": jnp.ones(8), "logits": jnp.ones((16, 64)),
    }  # fmt: skip
    run = mw.partition(maxtext_step, mesh, tactics)
    plan = run.plan({"params": params}, X)
    specs = {leaf.path: tuple(leaf.partition_spec) for leaf in plan.inputs}
    assert specs["state.params.layers.mlp.wi"] == ("fsdp", None, "tensor")
    assert specs["state.params.layers.mlp.wo"] == ("tensor", None, "fsdp")
    assert specs["state.params.norm"] == ("tensor",)
    assert specs["state.params.logits"] == ("fsdp", "tensor")
    assert specs["batch"] == (("data", "fsdp"), None)
    assert run.check({"params": params}, X).ok


def test_axes_of_a_dim_are_in_the_order_of_their_rule():
    def fn(x, w, v):
        return (x @ w).sum() + v.sum()

    axes = {"x": ("a", "b"), "w": ("c", "d"), "v": ("d", None)}
    rules = [("a", ("data", "model")), ("d", ("model", "data")), ("b", None), ("c", ())]
    args = jnp.ones((16, 8)), jnp.ones((8, 16)), jnp.ones((16, 1))
    run = mw.partition(fn, MESH, mw.from_logical_axes(rules, axes))
    plan = run.plan(*args)
    assert plan.spec("x") == jax.P(("data", "model"), None)
    assert plan.spec("v") == jax.P(("model", "data"), None)
    assert run.check(*args).ok


# -- from a plan ---------------------------------------------------------------------------


def test_the_rules_of_a_plan_give_flax_the_same_shardings():
    kernels = {"params.**.Dense_0.kernel": 0, "params.**.Dense_1.kernel": 1}
    tactics = [
        mw.data_parallel("data", "x"), mw.megatron("model"), mw.shard(kernels, "data"),
    ]  # fmt: skip
    plan = mw.partition(train, MESH, tactics).plan(PARAMS, X)
    rules = plan.logical_axis_rules(VARIABLES, "params")
    got = [leaf.partition_spec for leaf in plan.inputs[:-1]]
    assert any(tuple(spec) == ("data", "model") for spec in got)
    assert [tuple(s) for s in got] == [tuple(s) for s in flax_specs(rules)]
    again = mw.from_logical_axes(rules, VARIABLES, "params")
    other = mw.partition(train, MESH, [mw.data_parallel("data", "x"), *again])
    assert other.plan(PARAMS, X).inputs == plan.inputs


def rules_of(pins, axes):
    args = [jnp.ones((16, 16)) for _ in range(3)]
    fn = lambda a, b, c: a @ b @ c  # noqa: E731  three arguments
    return mw.partition(fn, MESH, [mw.pin(pins)]).plan(*args).logical_axis_rules(axes)


def test_rules_are_in_an_order_that_keeps_an_axis_for_the_dim_that_needs_it():
    axes = {"a": ("p", "q"), "b": ("q", "r")}
    rules = rules_of({"a": "[model, -]", "b": "[model, -]"}, axes)
    assert rules.index(("p", "model")) < rules.index(("q", "model"))


def test_a_name_that_needs_two_rules_is_an_error_with_the_arrays():
    with pytest.raises(
        PlanError, match="'p' would need two rules: it is split along mod"
    ):
        rules_of(
            {"a": "[model, -]", "b": "[data, -]"}, {"a": ("p", "q"), "b": ("p", "r")}
        )
    with pytest.raises(
        PlanError, match=r"'p' is split along model by its rule, but is who"
    ):
        rules_of({"a": "[model, -]"}, {"a": ("p", "q"), "b": ("p", "r")})
    with pytest.raises(PlanError, match="no order of rules suits the logical axes"):
        rules_of(
            {"a": "[model, -]", "b": "[-, model]"}, {"a": ("p", "q"), "b": ("p", "q")}
        )
    with pytest.raises(
        PlanError, match=r"dim 0 of a is split along model, but has no log"
    ):
        rules_of({"a": "[model, -]"}, {"a": (None, "q")})
    with pytest.raises(PlanError, match="the plan has no argument z"):
        rules_of({"a": "[model, -]"}, {"z": ("p", "q")})
    with pytest.raises(
        PlanError, match=r"a: f32\[16, 16\].* has 2 dims, but the logical"
    ):
        rules_of({"a": "[model, -]"}, {"a": ("p",)})
    with pytest.raises(PlanError, match="has names for its dims"):
        rules_of({"a": "[model, -]"}, {"a": None})


def test_wrong_names_are_errors_that_name_the_array():
    rules = [("embed", "data"), ("mlp", "model")]
    with pytest.raises(
        TacticError, match=r"'embd' of params.w; did you mean 'embed'\?"
    ):
        mw.from_logical_axes(rules, {"w": ("embd", "mlp")}, "params")
    with pytest.raises(TacticError, match="two dims of w have the logical name 'mlp'"):
        mw.from_logical_axes(rules, {"w": ("mlp", "mlp")})
    with pytest.raises(
        TacticError, match="no array in the tree of logical axes has names"
    ):
        mw.from_logical_axes(rules, PARAMS)
    wrong = {"w": nn.LogicallyPartitioned(jnp.ones(3), ("embed", "mlp"))}
    with pytest.raises(TacticError, match="w has 1 dims, but the logical names"):
        mw.from_logical_axes(rules, wrong)
