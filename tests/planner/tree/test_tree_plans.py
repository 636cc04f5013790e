"""Plans by tree search from the API: `autoplan(search="tree")`, `auto(search="tree")`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import MeshwrightError, PlanError, TacticError
from meshwright.planner.driver import tree_plans
from meshwright.planner.tree import tree_search as tree
from tests.planner.programs import DEEP, LARGE, MESH, MLP

MACHINE = "tpu-v5e"


def arrays(args, seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype), args
    )


def tree_plan(program, **options):
    fn, args = program
    asked = {"machine": MACHINE, "chips": 8, "budget_s": 20, "search": "tree"}
    return mw.autoplan(fn, args, **(asked | options))


@pytest.fixture(scope="module")
def plan():
    return tree_plan(LARGE)


def tree_auto(axes, **options):
    return mw.auto(axes, machine=MACHINE, search="tree", **options)


def test_the_record_names_the_search_and_its_states(plan):
    assert plan.search.method == "tree"
    assert plan.search.num_states > 10
    assert plan.search.gap == 0  # it proves nothing
    assert plan.search.num_meshes == plan.search.all_meshes == 2


def test_the_plan_is_at_least_as_fast_as_all_that_were_simulated(plan):
    made = [c for c in plan.search.candidates if not c.why_not]
    names = {"tree search", "nothing cut", "data parallel", "data on both axes"}
    assert names <= {c.name for c in made}
    assert plan.step_time_s == pytest.approx(min(c.step_time_s for c in made))
    uncut = next(c for c in made if c.name == "nothing cut")
    assert plan.step_time_s < uncut.step_time_s


def test_what_cannot_be_made_faster_is_left_uncut():
    found = tree_plan(MLP, experts=False)
    assert found.tactics == ()
    assert found.search.candidates[0].name == "nothing cut"


def test_its_tactics_are_ordinary_ones_that_run(plan):
    """They were found for a large step, and cut a small one of the same layers."""
    own = [c for c in plan.search.candidates if c.name == "tree search"]
    assert {c.mesh for c in own} == {mw.Mesh(MESH), mw.Mesh({"data": 8})}
    fn, args = DEEP
    for found in own:
        assert all(str(tactic).startswith("shard(") for tactic in found.tactics)
        assert mw.partition(fn, found.mesh, found.tactics).check(*arrays(args)).ok


def test_given_tactics_are_kept():
    given = [mw.shard({"params.*.up": 1}, axis="model")]
    found = tree_plan(LARGE, tactics=given, experts=False)
    assert found.tactics[0] == given[0]
    assert "model" in found.spec("params.0.up")[1]
    assert any(c.name == "as given" for c in found.search.candidates)


def test_one_seed_finds_one_plan(plan):
    other = tree_plan(LARGE)
    assert [str(t) for t in plan.tactics] == [str(t) for t in other.tactics]
    assert plan.step_time_s == other.step_time_s


def test_progress_is_said_in_lines():
    lines = []
    tree_plan(LARGE, on_progress=lines.append, experts=False)
    assert any(line.startswith("tree search on data=8: ") for line in lines)


def test_an_interrupt_leaves_the_best_so_far(monkeypatch):
    searched = []

    def interrupted(problem, *args):
        if searched:
            raise KeyboardInterrupt
        searched.append(problem)
        return tree.search_cuts(problem, *args)

    monkeypatch.setattr(tree_plans, "search_cuts", interrupted)
    found = tree_plan(LARGE).search
    assert found.is_interrupted
    assert found.num_meshes == 1
    assert found.candidates[0].name == "tree search"


def test_where_nothing_fits_the_error_says_what_is_missing():
    with pytest.raises(PlanError, match="nothing fits: the smallest plan"):
        tree_plan(LARGE, memory=1e6)


def test_the_objective_may_be_memory(plan):
    small = tree_plan(LARGE, objective="memory")
    assert small.peak_memory_bytes <= plan.peak_memory_bytes


def test_an_unknown_search_is_refused():
    fn, args = MLP
    with pytest.raises(PlanError, match="search is 'dfs'; wanted one of program, tree"):
        mw.autoplan(fn, args, machine=MACHINE, chips=8, search="dfs")
    with pytest.raises(
        TacticError, match="search is 'dfs'; wanted one of program, tree"
    ):
        mw.auto("model", machine=MACHINE, search="dfs")


# -- as a tactic ------------------------------------------------------------------------


def test_the_tactic_decides_on_top_of_the_tactics_before():
    fn, args = DEEP
    data = mw.data_parallel("data")
    before = mw.partition(fn, MESH, [data]).decide(*args).work.state
    after = mw.partition(fn, MESH, [data, tree_auto("model")]).decide(*args).work.state
    for old, new in zip(before.factor_of, after.factor_of, strict=True):
        assert old.items() <= new.items()
        assert {axis for axis in new if axis not in old} <= {"model"}


def test_the_tactic_is_never_worse_than_nothing():
    for program in (LARGE, MLP):
        fn, args = program
        without = mw.partition(fn, MESH).plan(*args)
        found = mw.partition(fn, MESH, [tree_auto(["data", "model"])]).plan(*args)
        times = [p.on(MACHINE, donate_state=True).step_time_s for p in (found, without)]
        assert times[0] <= times[1]


def test_the_step_equals_the_original():
    fn, args = LARGE
    small = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct([n // 32 for n in x.shape], x.dtype), args
    )
    step = mw.partition(fn, MESH, [tree_auto(["data", "model"])])
    assert step.check(*arrays(small)).ok


def test_its_causes_say_which_search_and_after_how_many_states():
    fn, args = LARGE
    tactic = tree_auto(["data"])
    assert str(tactic) == "auto(['data'], machine='tpu-v5e', search='tree')"
    state = mw.partition(fn, MESH, [tactic]).decide(*args).work.state
    causes = {cause.tactic for cause in state.causes.values()}
    assert causes
    assert all(text.startswith(f"{tactic}, ") for text in causes)
    assert all(" states: shard({" in text for text in causes)


def test_the_tactic_says_its_progress():
    fn, args = LARGE
    for search in ("tree", "program"):
        lines = []
        tactic = mw.auto(
            "data", machine=MACHINE, search=search, on_progress=lines.append
        )
        mw.partition(fn, MESH, [tactic]).plan(*args)
        assert "by the model" in lines[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"axes": ["modle"]}, "modle"),
        ({"axes": "model", "memory": 1000.0}, "finds no plan that fits"),
    ],
)
def test_bad_options_are_said(options, words):
    fn, args = MLP
    with pytest.raises(MeshwrightError, match=words):
        mw.partition(fn, MESH, [tree_auto(**options)]).plan(*args)
