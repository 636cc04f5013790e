"""Roles of inputs are those that a person gives, and what is doubtful is said."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.partitioner.structure.input_roles import find_roles
from meshwright.partitioner.structure.workspace import matches
from tests.partitioner.structure import role_programs
from tests.partitioner.structure.role_programs import PROGRAMS, S

MESH = {"d": 8}


def name_of(build):
    return "_".join(
        [getattr(build, "func", build).__name__, *getattr(build, "args", ())]
    )


def found_roles(fn, args):
    work = mw.partition(fn, MESH).decide(*args).work
    roles = find_roles(work)
    names = ("params", "optimizer", "carried", "data")
    by_path = {work.paths[i]: n for n in names for i in getattr(roles, n)}
    return by_path, roles.doubts


@pytest.mark.parametrize("build", PROGRAMS, ids=name_of)
def test_roles_are_those_that_a_person_gives(build):
    fn, args, expected = build()
    found, doubts = found_roles(fn, args)
    wanted = {
        p: role for p in found for glob, role in expected.items() if matches(glob, p)
    }
    assert found == wanted
    assert all(any(matches(glob, path) for path in found) for glob in expected)
    assert not doubts


def specs(fn, args, *tactics):
    plan = mw.partition(fn, MESH, list(tactics)).plan(*args)
    cuts = {i.path: i.partition_spec for i in plan.inputs if any(i.spec)}
    return {path: str(spec) for path, spec in cuts.items()}, plan


@pytest.mark.parametrize(
    ("build", "cuts"),
    [
        (role_programs.equinox_perceptron, {"x": "P('d', None)"}),
        (role_programs.equinox_attention, {"x": "P('d', None, None)"}),
        (role_programs.transposed_weights, {"x": "P(None, 'd')"}),
        (role_programs.adversarial_examples, {"x": "P('d', None)"}),
    ],
)
def test_data_parallelism_of_served_weights_cuts_the_data_and_moves_nothing(
    build, cuts
):
    fn, args, _ = build()
    found, plan = specs(fn, args, mw.data_parallel("d"))
    assert found == cuts
    assert not any(plan.counts.values())


@pytest.mark.parametrize(
    "tactic", [mw.megatron("d"), mw.inference("weight_stationary_1d", "d")]
)
def test_pairs_of_weights_on_the_left_are_cut(tactic):
    fn, args, _ = role_programs.transposed_weights()
    found, plan = specs(fn, args, tactic)
    assert found == {"p.a": "P('d', None)", "p.b": "P(None, 'd')"}
    assert plan.counts["all_reduce"] == 1


def test_jittered_tokens_are_no_experts():
    fn, args, _ = role_programs.router_jitter()
    found, _ = specs(fn, args, mw.fsdp("d", min_elements=0))
    assert found["x"] == "P('d', None, None)"
    with pytest.raises(mw.MeshwrightError, match="no experts"):
        specs(fn, args, mw.expert_parallel("d"))


def test_single_arrays_are_cut_as_state():
    fn, args, _ = role_programs.momentum_of_an_array()
    found, _ = specs(fn, args, mw.data_parallel("d"), mw.zero(2, "d"))
    assert found == {"m": "P('d', None)", "x": "P('d', None)"}
    fn, args, _ = role_programs.filtered()
    with pytest.raises(mw.MeshwrightError, match="divides no dim of w"):
        specs(fn, args, mw.zero(3, "d", min_elements=0))


def test_a_step_with_single_arrays_computes_as_one_device():
    fn, args, _ = role_programs.momentum_of_an_array()
    arrays = [np.ones(a.shape, a.dtype) for a in args]
    tactics = [mw.data_parallel("d"), mw.zero(2, "d")]
    assert mw.partition(fn, MESH, tactics).check(*arrays).ok


def test_two_arrays_of_one_product_are_doubtful_and_can_be_named():
    args = S(32, 16), S(16, 64)

    def product(w, x):
        return w @ x

    asked = re.escape("params='x', inputs='w'")
    with pytest.warns(mw.MeshwrightWarning, match=asked):
        specs(product, args, mw.data_parallel("d"))
    for named in (mw.data_parallel("d", params="w"), mw.fsdp("d", inputs="x")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found, _ = specs(product, args, named)
        assert found["x"] == "P(None, 'd')"


@pytest.mark.parametrize(
    "make",
    [
        mw.data_parallel, mw.fsdp, mw.megatron, mw.expert_parallel,
        lambda *a, **k: mw.zero(3, *a, **k),
        lambda *a, **k: mw.inference("weight_stationary_1d", list(a), **k),
    ],
)  # fmt: skip
def test_every_tactic_by_structure_takes_names_and_prints_them(make):
    tactic = make("d", params=["p.a", "p.b"], inputs="x")
    assert "inputs='x'" in str(tactic)
    assert "params=['p.a', 'p.b']" in str(tactic)
    with pytest.raises(mw.MeshwrightError, match="0 is no pattern"):
        make("d", params=0)


def test_whole_numbers_among_weights_are_constants():
    def serve(p, x):
        return jnp.tanh(x[:, p["order"]] @ p["a"]) @ p["b"]

    p = {**role_programs.MLP, "order": S(16, dtype=jnp.int32)}
    work = mw.partition(serve, MESH).decide(p, S(64, 16)).work
    roles = find_roles(work)
    assert [work.paths[i] for i in roles.constants] == ["p.order"]
    assert [work.paths[i] for i in roles.data] == ["x"]


@pytest.mark.parametrize("argnum", [0, 1])
def test_gradients_alone_make_their_inputs_parameters(argnum):
    names = ("p", "x") if argnum == 0 else ("x", "p")

    def loss(*both):
        return role_programs.net(both[argnum], both[1 - argnum]).mean()

    def grads(p, x):
        return jax.grad(loss)(p, x)

    def grads_of_second(x, p):
        return jax.grad(loss, argnums=1)(x, p)

    args = {"p": role_programs.MLP, "x": S(64, 16)}
    fn = (grads, grads_of_second)[argnum]
    found, _ = found_roles(fn, [args[name] for name in names])
    assert found == {"p.a": "params", "p.b": "params", "x": "data"}
