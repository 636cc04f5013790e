"""Programs with layout constraints, and the sites on which they are put."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Layout, with_layout_constraint

import meshwright as mw
from meshwright.features.tune.layouts.constrain import LAYOUT_CONSTRAINT, constrain
from meshwright.features.tune.layouts.problem import choices_of, question_of
from meshwright.features.tune.layouts.roles import read_uses
from meshwright.features.tune.layouts.sites import find_sites, orders
from meshwright.features.tune.tune_layouts import on_one_device
from meshwright.run.local.execute import run_program


def attention(p, x):
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in "qkv")
    scores = jnp.einsum("bthk,bshk->bhts", q, k)
    out = jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores, -1), v)
    return jnp.sum(jnp.einsum("bthk,hkd->btd", out, p["o"]) ** 2)


def attention_step():
    keys = jax.random.split(jax.random.key(0), 5)
    p = {n: jax.random.normal(k, (8, 2, 4)) for n, k in zip("qkv", keys, strict=False)}
    p["o"] = jax.random.normal(keys[3], (2, 4, 8))
    x = jax.random.normal(keys[4], (2, 6, 8))
    return jax.value_and_grad(attention, (0, 1)), (p, x)


def scanned_step():
    def fn(w, x):
        def layer(h, w):
            return jnp.tanh(h @ w), h.sum()

        h, sums = jax.lax.scan(layer, x, w)
        return jnp.sum(h) + jnp.sum(sums)

    key = jax.random.key(1)
    args = jax.random.normal(key, (3, 4, 4)), jax.random.normal(key, (5, 4))
    return jax.grad(fn), args


@pytest.mark.parametrize("make", [attention_step, scanned_step])
def test_every_choice_computes_the_same_numbers(make):
    fn, args = make()
    program = on_one_device(fn, args).lowered.program
    leaves = jax.tree.leaves(args)
    wanted = jax.tree.leaves(fn(*args))
    sites = find_sites(program, [str(i) for i in range(len(leaves))])
    assert sites
    layouts = {
        value: tuple(reversed(range(len(site.shape))))
        for site in sites
        for value in (*site.values, *site.twins)
    }
    changed = constrain(program, layouts)
    kinds = [op.kind for op in changed.walk()]
    assert kinds.count(LAYOUT_CONSTRAINT) == len(layouts)
    found = jax.jit(lambda *x: run_program(changed, x))(*leaves)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)


def test_xla_on_cpu_obeys_a_constraint_on_a_value():
    def fn(x, w):
        return jnp.tanh(x @ w)

    program = on_one_device(
        fn, (jnp.ones((64, 32)), jnp.ones((32, 48)))
    ).lowered.program
    product = program.ops[0].results[0]
    changed = constrain(program, {product: (1, 0)})
    lowered = jax.jit(lambda *x: run_program(changed, x)).lower(
        *program_shapes(program)
    )
    text = lowered.compile().as_text()
    assert "f32[64,48]{0,1}" in text


def program_shapes(program):
    return [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in program.inputs]


def test_equal_layers_are_one_site_and_different_uses_are_not():
    def fn(x, ws):
        for w in ws:
            x = jnp.tanh(x @ w)
        return x

    args = jnp.ones((8, 16)), [jnp.ones((16, 16))] * 12
    decided = on_one_device(fn, args)
    sites = find_sites(decided.lowered.program, decided.captured.paths)
    products = [site for site in sites if site.role.startswith("dot>")]
    assert max(len(site.values) for site in products) >= 6
    fn, args = attention_step()
    decided = on_one_device(fn, args)
    sites = find_sites(decided.lowered.program, decided.captured.paths)
    projections = [s for s in sites if s.shape == (2, 6, 2, 4) and s.twins]
    assert len(projections) == 3  # q, k and v, though one line of code makes them


def test_values_of_a_loop_weigh_as_often_as_it_runs():
    fn, args = scanned_step()
    decided = on_one_device(fn, args)
    sites = find_sites(decided.lowered.program, decided.captured.paths)
    carried = [s for s in sites if s.role.startswith("carry") and s.shape == (5, 4)]
    assert carried[0].weight == 3 * 5 * 4 * 4


def test_arguments_get_formats_and_other_values_constraints():
    fn, args = attention_step()
    decided = on_one_device(fn, args)
    program = decided.lowered.program
    sites = {s.name: s for s in find_sites(program, decided.captured.paths)}
    argument = next(s for s in sites.values() if s.role.startswith("input"))
    other = next(s for s in sites.values() if s.twins)
    state = choices_of(argument)[1], choices_of(other)[3]
    question = question_of(program, sites, state, is_auto=True)
    position = program.inputs.index(argument.values[0])
    assert question.inputs == {position: choices_of(argument)[1].order}
    assert set(question.layouts) == {*other.values, *other.twins}


def test_orders_are_all_pairs_of_minor_dims_with_the_others_in_their_order():
    assert len(list(orders(3))) == 6
    assert (1, 3, 2, 0) in orders(4)
    assert (3, 1, 2, 0) not in orders(4)
    found = list(orders(6))
    assert found[0] == (0, 1, 2, 3, 4, 5)
    assert len(found) == len(set(found)) == 30


def test_a_step_with_layout_constraints_of_its_own_is_partitioned():
    def fn(w, x):
        y = with_layout_constraint(x @ w, Layout((1, 0)))
        return jnp.sum(jnp.tanh(y) ** 2)

    args = jnp.ones((8, 16)) / 8, jnp.arange(32.0).reshape(4, 8) / 32
    step = mw.partition(jax.grad(fn), {"data": 2}, [mw.shard({"x": 0}, "data")])
    ops = step.plan(*args).decided.lowered.program.ops
    constrained = [op for op in ops if op.kind == "layout_constraint"]
    assert [op.results[0].shape for op in constrained] == [(2, 16), (2, 16)]
    np.testing.assert_allclose(step(*args), jax.grad(fn)(*args), rtol=1e-5)


def test_a_gradient_is_found_where_only_parameters_have_one():
    """Three values are then multiplied with the input, all of the same type."""

    def loss(p, x):
        q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in "qkv")
        scores = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k))
        return jnp.sum(jnp.einsum("bhts,bshd->bthd", scores, v) ** 2)

    args = {name: jnp.ones((8, 2, 4)) for name in "qkv"}, jnp.ones((2, 16, 8))
    program = on_one_device(jax.grad(loss), args).lowered.program
    uses = read_uses(program, ("k", "q", "v", "x"))
    heads = [v for v in uses if v.shape == (2, 16, 2, 4) and uses[v].twin]
    twins = [uses[v].twin for v in heads]
    assert len(set(twins)) == 3
    weights = [uses[v].maker.operands[1] for v in heads]
    gradients = [
        next(op for op, _ in uses[twin].readers if op.kind == "dot_general").results[0]
        for twin in twins
    ]
    moved = {op.operands[0]: op.results[0] for op in program.ops}
    assert [program.outputs[program.inputs.index(w)] for w in weights] == [
        moved[g] for g in gradients
    ]
