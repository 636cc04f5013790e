"""Programs with layout constraints, and the sites on which they are put."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.compile.tune.constrain import LAYOUT_CONSTRAINT, constrain
from meshwright.compile.tune.problem import choices_of, question_of
from meshwright.compile.tune.sites import find_sites, orders
from meshwright.compile.tune.tune import on_one_device
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


def test_orders_are_all_up_to_rank_four_and_pairs_of_minor_dims_beyond():
    assert len(list(orders(4))) == 24
    found = list(orders(6))
    assert found[0] == (0, 1, 2, 3, 4, 5)
    assert len(found) == len(set(found)) == 30
