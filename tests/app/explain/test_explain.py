"""The reason for each collective: the line of the user's code, and the decisions."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive

import meshwright as mw
from meshwright.app.explain.show import show_explanation

X = np.ones((8, 16), np.float32)
W = np.ones((16, 16), np.float32)


def line_of(fn, text):
    """`file:line` of the first line of a function that holds a text."""
    lines, first = inspect.getsourcelines(fn)
    found = next(i for i, line in enumerate(lines) if text in line)
    return f"tests/app/explain/test_explain.py:{first + found}"


def planned(fn, tactics, *args, mesh=None, **options):
    return mw.partition(fn, mesh or {"data": 4}, tactics, **options).plan(*args)


def cut(axis="data", **dims):
    return mw.shard({name.replace("_", ":"): dim for name, dim in dims.items()}, axis)


# -- reads -----------------------------------------------------------------------------


def two_matmuls(x, w):
    y = x @ w
    return jnp.sin(y)


def test_a_gather_names_the_sharded_operand_its_reader_and_the_tactics():
    (found,) = planned(two_matmuls, [cut(x=0), cut(w=0)], X, W).collectives
    assert found.kind == "all_gather"
    assert found.source == line_of(two_matmuls, "x @ w")
    assert found.reason == (
        "operand 1 of dot_general, w, f32[16, 16], is stored cut on dim 0 along 'data' "
        "(since shard({'w': 0}, axis='data') cut it), but needed whole, as this op "
        "cuts dim 0 of operand 0 along it (since shard({'x': 0}, axis='data') cut x)"
    )
    assert found.chain == (
        "stored: 'data' cuts dim 0 of w: shard({'w': 0}, axis='data')",
        f"used: 'data' cuts dot_general ({found.source}), as its operand is cut",
        "used: 'data' cuts dim 0 of x: shard({'x': 0}, axis='data')",
    )


def kept(x):
    return mw.tag(jnp.sin(x), "kept") * 2


def test_a_gather_for_a_replicated_value_names_the_tactic_that_keeps_it_whole():
    tactics = [mw.replicate("tag:kept"), cut(x=0)]
    (found,) = planned(kept, tactics, X).collectives
    assert "but needed whole: a tactic keeps tag (" in found.reason


def one_row(x):
    return jnp.sort(jnp.sin(x))


def test_a_gather_for_a_dim_that_an_op_cannot_partition_says_so():
    (found,) = planned(one_row, [cut(x=0)], X[0]).collectives
    assert found.reason.endswith("but needed whole: sort cannot be cut on that dim")


def exchange(x):
    rows = jnp.fft.fft(x, axis=1)
    return mw.tag(jnp.fft.fft(rows.T, axis=1), "columns")


def test_an_all_to_all_names_both_dims():
    (found,) = planned(exchange, [cut(x=0), cut(tag_columns=0)], X).collectives
    assert found.kind == "all_to_all"
    assert "is stored cut on dim 1 along 'data'" in found.reason
    assert "but needed cut on dim 0, as this op cuts dim 0 of operand 0" in found.reason


unknown_p = Primitive("unheard_of")
unknown_p.def_abstract_eval(lambda x: x)


def without_rule(x):
    y = jnp.sin(x)
    return unknown_p.bind(y)


def test_an_op_without_a_rule_is_named_with_its_line():
    plan = planned(without_rule, [cut(x=0)], X)
    why = "primitive 'unheard_of' has no factor rule"
    where = line_of(without_rule, "unknown_p")
    assert plan.whole == (f"unheard_of ({where}): {why}",)
    assert plan.collectives[0].reason.endswith(f"but needed whole: {why}")
    assert (
        f"whole on every device, for lack of a sharding rule\n  {plan.whole[0]}"
        in str(plan)
    )


# -- reductions ------------------------------------------------------------------------


def summed(x, w):
    y = (x @ w).T
    return jnp.exp(y)


def test_a_reduction_names_the_op_with_partial_results_and_the_reader():
    (found,) = planned(summed, [cut(x=1)], X, W).collectives
    assert found.kind == "all_reduce"
    where = line_of(summed, "x @ w")
    assert found.reason == (
        f"the sum over 'data' of dot_general ({where}), whose dim 1 of operand 0 is "
        f"cut, carried through transpose; taken here for exp "
        f"({line_of(summed, 'exp')})"
    )
    assert found.chain[-1] == "'data' cuts dim 1 of x: shard({'x': 1}, axis='data')"


def test_a_reduction_of_an_output_names_it():
    (found,) = planned(lambda x: {"loss": x.sum()}, [cut(x=0)], X).collectives
    assert found.reason.endswith("taken here for output out.loss")


def test_a_maximum_is_called_max():
    (found,) = planned(lambda x: jnp.sin(x.max(0)), [cut(x=0)], X).collectives
    assert found.reason.startswith("the max over 'data' of reduce_max")


def test_a_reduce_scatter_names_the_dim_that_is_partitioned():
    tactics = [cut(x=1), cut(y=0)]
    plan = planned(lambda x, w, y: (x @ w) * y, tactics, X, W, X)
    assert plan.counts["reduce_scatter"] == 1
    assert ", cut on dim 0" in plan.collectives[0].reason


# -- outputs and loops -----------------------------------------------------------------


def update(state, x):
    return {"w": state["w"] + x}


def test_updated_state_is_stored_like_the_input_that_it_replaces():
    tactics = [mw.replicate("state.**"), cut(x=0)]
    (found,) = planned(update, tactics, {"w": W}, W).collectives
    assert found.reason == (
        "output out.w is made cut along 'data' (since shard({'x': 0}, axis='data') cut "
        "x), but stored as the input state.w that it replaces"
    )


def loop(x, w):
    def body(carry, row):
        return jnp.tanh(carry @ w) + row, None

    return lax.scan(body, x[0], x)[0]


def test_a_collective_in_a_loop_has_its_line_and_executions():
    x = np.ones((5, 8, 16), np.float32)
    plan = planned(loop, [cut(x=1), cut(w=0)], x, W)
    found = max(plan.collectives, key=lambda c: c.executions)
    assert found.source.startswith("tests/app/explain/test_explain.py:")
    assert all(c.chain for c in plan.collectives)


def test_every_collective_of_a_train_step_has_a_tactic_at_the_end_of_its_chain():
    def loss(params, x):
        return jnp.mean(jnp.tanh(x @ params["up"]) @ params["down"])

    def train(params, x):
        value, grads = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    params = {"up": W, "down": W}
    tactics = [
        cut(x=0),
        mw.shard({"params.up": 1}, axis="model"),
        mw.shard({"params.**": mw.FIRST_DIVISIBLE}, axis="data"),
    ]
    mesh = {"data": 4, "model": 2}
    plan = planned(train, tactics, params, X, mesh=mesh)
    names = tuple(map(str, tactics))
    for found in plan.collectives:
        assert found.source, found
        assert found.chain[-1].endswith(names), found
    assert show_explanation(plan).count("\n\n") >= 3


def test_a_long_chain_is_shown_by_its_two_ends():
    def deep(x, w):
        for _ in range(3):
            x = jnp.sin(x)
            x = jnp.cos(x)
            x = jnp.tan(x)
            x = jnp.exp(x)
        return x @ w

    (found,) = planned(deep, [cut(x=0), cut(w=0)], X, W).collectives
    used = [line for line in found.chain if line.startswith("used: ")]
    assert len(used) == 9
    assert used[4] == "used: ... 6 more lines of code ..."
    assert used[-1].startswith("used: 'data' cuts dim 0 of x")


# -- where the propagation stopped -----------------------------------------------------


def square(x):
    return x @ x.T


def test_a_conflict_has_both_sides_and_their_tactics():
    plan = planned(square, [cut(x=0)], X)
    where = line_of(square, "x.T")
    assert plan.steps[-1].conflicts == (
        f"dot_general ({where}) stays whole along 'data', which dim 0 of operand 0 (x, "
        "since shard({'x': 0}, axis='data') cut it) and dim 1 of operand 1 (transpose "
        f"({where}), since shard({{'x': 0}}, axis='data') cut x) both want",
    )
    assert all("both want" in c.reason for c in plan.collectives)


def test_a_dim_that_does_not_line_up_is_reported_once_with_its_line():
    """16 columns become the minor part of 32: they cannot be cut alone."""

    def merged(x):
        return jnp.sin(x.reshape(4, 32))

    steps = planned(merged, [cut(x=1), cut(x=1)], X).steps
    (message,) = [line for s in steps for line in s.indivisible]
    assert message == (
        f"reshape ({line_of(merged, 'reshape')}) stays whole along 'data': x, f32[8, "
        "16], is cut, but the cut does not line up with the split of a reshape"
    )


def test_a_refused_request_of_a_tactic_is_reported():
    step = planned(square, [cut(x=0), cut(x=1)], X).steps[-1]
    assert step.refused == (
        "x along 'data': 'data' cuts another dim of this input already",
    )
