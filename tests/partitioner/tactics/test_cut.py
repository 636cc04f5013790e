"""`cut`: ops named by where they stand."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.errors import TacticError
from zoo import gpt3

MESH = {"data": 2, "model": 4}
LINES = Path(__file__).read_text().splitlines()


def mlp(x, a, b):
    hidden = jnp.tanh(x @ a)
    return hidden @ b


def line_of(text):
    """`test_cut.py:17`, of the only line that is so."""
    (number,) = [i for i, line in enumerate(LINES, 1) if line.strip() == text]
    return f"test_cut.py:{number}"


FIRST = line_of("hidden = jnp.tanh(x @ a)")
SECOND = line_of("return hidden @ b")


def args():
    keys = jax.random.split(jax.random.key(0), 3)
    return tuple(jax.random.normal(k, (8, 8)) for k in keys)


def plan_of(*tactics):
    return mw.partition(mlp, MESH, tactics).plan(*args())


def specs(plan):
    return [tuple(leaf.spec) for leaf in plan.inputs]


def kinds(plan):
    return [c.kind for c in plan.collectives]


def test_a_dim_of_a_result_is_cut_and_propagated():
    plan = plan_of(mw.cut({f"{FIRST} dot_general": 1}, axis="model"))
    assert specs(plan) == [((), ()), ((), ("model",)), (("model",), ())]
    assert kinds(plan) == ["all_reduce"]


def test_a_sum_is_cut_and_its_operands_with_it():
    plan = plan_of(mw.cut({f"{SECOND} dot_general f32[8, 8]": "sum"}, axis="model"))
    assert specs(plan) == [((), ()), ((), ("model",)), (("model",), ())]


def test_negative_dims_count_from_the_back():
    one = plan_of(mw.cut({f"{FIRST} dot_general": -1}, axis="model"))
    assert specs(one) == specs(plan_of(mw.cut({f"{FIRST} tanh": 1}, axis="model")))


def test_what_is_replicated_stays_whole():
    plan = plan_of(
        mw.cut({f"{SECOND} dot_general": mw.REPLICATED}, axis="model"),
        mw.shard({"x": 0}, axis="model"),
    )
    assert kinds(plan) == ["all_gather"]


def test_numbers_stay_those_of_the_original():
    step = mw.partition(
        mlp,
        MESH,
        [
            mw.cut({f"{FIRST} dot_general": 0}, axis="data"),
            mw.cut({f"{SECOND} dot_general": "sum"}, axis="model"),
        ],
    )
    assert step.check(*args()).ok


def test_all_layers_are_one_site_and_unlike_ops_are_numbered():
    fn, arguments = gpt3.tiny()
    graph_lines = Path(gpt3.__file__).read_text().splitlines()
    number = next(i for i, line in enumerate(graph_lines, 1) if "dnh->bsnh" in line)
    site = f"gpt3.py:{number} dot_general f32[16,64,8,8]"

    def count(name):
        step = mw.partition(fn, MESH, [mw.cut({name: 2}, axis="model")])
        decided = step.plan(*arguments).decided
        return sum(c.how == "tactic" for c in decided.work.state.causes.values())

    assert count(site) == 6  # three products in each of two layers
    parts = [count(f"{site} #{i}") for i in (1, 2, 3)]
    assert parts == [2, 2, 2]
    with pytest.raises(TacticError, match="there are #1 to #3"):
        count(f"{site} #4")


def test_what_it_prints_can_be_pasted():
    tactic = mw.cut(
        {f"{FIRST} dot_general": 1, f"{SECOND} dot_general": "sum"}, "model"
    )
    pasted = eval(str(tactic), {"cut": mw.cut})
    assert pasted == tactic
    kept = mw.cut({f"{FIRST} tanh": mw.REPLICATED}, "data")
    assert eval(str(kept), {"cut": mw.cut, "REPLICATED": mw.REPLICATED}) == kept


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        ({"nowhere.py:1 add": 0}, "no op is at 'nowhere.py:1 add'; the nearest are: "),
        ({f"{FIRST} dot": 0}, f"'{FIRST} dot_general f32[8,8]'"),
        ({"tanh": 0}, "names no op; wanted 'file:line kind'"),
        ({f"{FIRST} tanh": 2}, "dim 2 is out of range"),
        ({f"{FIRST} tanh": "sum"}, "sums over 0 dims; there is no 'sum'"),
        ({f"{FIRST} dot_general": "sum 1"}, "sums over 1 dims; there is no 'sum 1'"),
        ({f"{FIRST} tanh #2": 0}, "there are #1 only"),
    ],
)
def test_a_refusal_says_what_there_is(sites, said):
    with pytest.raises(TacticError, match=re.escape(said)):
        plan_of(mw.cut(sites, axis="model"))


@pytest.mark.parametrize("where", ["max", 1.5, True, None, mw.FIRST_DIVISIBLE])
def test_what_to_cut_is_checked_at_once(where):
    with pytest.raises(TacticError, match="wanted an int, 'sum', 'sum 1'"):
        mw.cut({f"{FIRST} tanh": where}, axis="model")


def test_what_is_ambiguous_is_refused_with_the_names_that_are_not():
    def two(x):
        return jnp.exp(x).sum() + jnp.exp(x[0]).sum()

    step = mw.partition(two, MESH, [mw.cut({f"{line_of(TWO)} exp": 0}, axis="model")])
    with pytest.raises(TacticError, match=r"could be any of .*f32\[8,8\].*f32\[8\]"):
        step.plan(jnp.ones((8, 8)))


TWO = "return jnp.exp(x).sum() + jnp.exp(x[0]).sum()"
