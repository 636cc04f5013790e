"""`autoplan`: its plans run and are the best of all candidates; errors for bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright as mw
from meshwright.errors import MeshwrightError, PlanError
from meshwright.machine import Mesh, load_machine
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.expert_plans import expert_strategies
from meshwright.planner.candidates.meshes import meshes_of
from meshwright.planner.candidates.objective import Objective
from meshwright.planner.driver import proposing, trials
from meshwright.planner.driver.mesh_programs import MeshPrograms
from meshwright.planner.driver.search import run_phases
from meshwright.planner.driver.state import SearchState
from meshwright.planner.driver.task import SearchTask, TimeBudget
from meshwright.planner.driver.trials import Trials
from meshwright.planner.integer_program.projection import chosen_strategies
from meshwright.planner.solve.solver_process import SolverProcess
from meshwright.search.work import WorkMeter
from tests.planner.programs import DEEP, MESH, MLP, shape, space_of


def arrays(tree, seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype), tree
    )


@pytest.fixture(scope="module")
def plan():
    fn, args = DEEP
    return mw.autoplan(fn, args, machine="tpu-v5e", chips=8, budget_s=20)


def test_the_plan_is_the_fastest_of_all_candidates(plan):
    times = [c.step_time_s for c in plan.search.candidates if not c.why_not]
    assert plan.step_time_s == pytest.approx(min(times))
    assert len(times) > 3
    assert plan.mesh.num_devices == 8


def test_the_optimality_gap_belongs_to_the_returned_plan(plan):
    """Its predicted seconds and the bound are at the same prices."""
    fn, args = DEEP
    search = plan.search
    assert search.model_s >= search.bound_s * (1 - 1e-9) > 0
    assert search.gap == pytest.approx(1 - search.bound_s / search.model_s, abs=1e-12)
    tight = mw.autoplan(
        fn, args, machine="tpu-v5e", mesh=plan.mesh, budget_s=20, experts=False
    )
    assert tight.search.candidates[0].name.startswith("auto")
    assert tight.search.bound_s <= tight.search.model_s * (1 + 1e-9)


def test_expert_plans_are_among_the_candidates(plan):
    names = {c.name for c in plan.search.candidates}
    assert {"auto", "data parallel", "ZeRO-3"} <= names


def test_the_plan_runs_and_equals_the_original(plan):
    fn, args = DEEP
    step = mw.partition(fn, plan.mesh, plan.tactics)
    assert step.check(*arrays(args)).ok


def test_meshes_skipped_for_lack_of_time_are_solved_if_time_is_left(monkeypatch):
    """As after a slow first pricing on a busy machine."""
    calls = []
    expected_s, solve = MeshPrograms._expected_pricing_s, MeshPrograms.solve

    def counted(programs, *args):
        calls.append(len(programs.solutions))
        solve(programs, *args)

    def cautious(programs, mesh):
        return np.inf if len(calls) == 1 else expected_s(programs, mesh)

    monkeypatch.setattr(MeshPrograms, "solve", counted)
    monkeypatch.setattr(MeshPrograms, "_expected_pricing_s", cautious)
    fn, args = DEEP
    found = mw.autoplan(fn, args, machine="tpu-v5e", chips=8, budget_s=20).search
    assert calls[:2] == [0, 1]
    meshes = {c.mesh for c in found.candidates if c.name == "auto"}
    assert any(len(mesh.axes) == 2 for mesh in meshes)


def residual_step(state, images):
    """A residual step of four images per device on 16, mostly in on-chip memory."""

    def conv(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def loss(weights):
        y = jax.nn.relu(conv(images, weights[0]))
        for w in weights[1:]:
            y = y + jax.nn.relu(conv(y, w))
        return jnp.mean(y**2)

    weights, momenta = state
    momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, jax.grad(loss)(weights))
    return jax.tree.map(lambda w, m: w - 0.1 * m, weights, momenta), momenta


def test_a_plan_that_fits_thanks_to_on_chip_memory_is_found():
    """The integer program counts all buffers; only the simulation places some on chip."""
    weights = [shape(3, 3, 3, 64), *[shape(3, 3, 64, 64)] * 5]
    args = (weights, weights), shape(64, 32, 32, 3)
    asked = {"machine": "tpu-v5e", "mesh": {"data": 16}}
    free = mw.autoplan(residual_step, args, **asked).search.candidates
    limit = 1.1 * min(c.peak_memory_bytes for c in free if c.name == "ZeRO-3")
    assert (
        mw.autoplan(residual_step, args, memory=limit, **asked).peak_memory_bytes
        < limit
    )


def test_the_error_that_nothing_fits_says_how_many_meshes_were_solved():
    fn, args = DEEP
    with pytest.raises(PlanError, match=r"nothing fits.*time for 1 of \d+ meshes"):
        mw.autoplan(fn, args, machine="tpu-v5e", chips=8, memory=1e4, budget_s=0.01)


@pytest.mark.parametrize("memory", [0, -1, float("nan")])
def test_a_memory_limit_that_is_not_positive_is_refused(memory):
    fn, args = DEEP
    with pytest.raises(PlanError, match="above 0"):
        mw.autoplan(fn, args, machine="tpu-v5e", chips=8, memory=memory)


def test_the_same_search_finds_the_same_plan(plan):
    fn, args = DEEP
    again = mw.autoplan(fn, args, machine="tpu-v5e", chips=8, budget_s=20)
    assert again.to_json() == plan.to_json()


@pytest.mark.parametrize("moment", ["by the integer program", "MiB", "as tactics"])
def test_ctrl_c_ends_the_search_with_the_best_plan_so_far(moment):
    fn, args = DEEP
    said = []

    def watch(text):
        said.append(text)
        if moment in text and "interrupted" not in said:
            said.append("interrupted")
            raise KeyboardInterrupt

    plan = mw.autoplan(fn, args, machine="tpu-v5e", chips=8, on_progress=watch)
    assert "interrupted" in said
    assert plan.search.is_interrupted
    assert plan.step_time_s == plan.search.candidates[0].step_time_s


def test_a_search_counts_the_meshes_that_it_solved_and_all(plan):
    fn, args = DEEP
    hasty = mw.autoplan(fn, args, machine="tpu-v5e", chips=8, budget_s=0.01).search
    assert hasty.num_meshes == 1
    assert hasty.all_meshes == plan.search.all_meshes == plan.search.num_meshes
    assert not plan.search.is_interrupted


def test_ctrl_c_before_anything_is_found_is_raised():
    fn, args = DEEP

    def watch(text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mw.autoplan(fn, args, machine="tpu-v5e", chips=8, on_progress=watch)


@settings(max_examples=3)
@given(st.integers(0, 2**32 - 1))
def test_any_allowed_choices_can_be_lowered_and_equal_the_original(seed):
    fn, args = MLP
    space = space_of(MLP)
    priced = space.price(Mesh(MESH))
    choices = random_choices(priced.model, np.random.default_rng(seed))
    tactic = chosen_strategies(priced.model, choices, priced.work.state, "random")
    step = mw.partition(fn, Mesh(MESH), (tactic,))
    assert step.check(*arrays(args, seed % 1000)).ok


def random_choices(model, rng):
    """The optimum of random costs: random, and nothing forbidden."""
    from meshwright.search.assignment import Assignment, solve

    costs = [rng.uniform(0, 1, len(cost)) for cost in model.costs]
    edges = [
        (link.first, link.second, np.where(np.isfinite(link.seconds), 0.0, np.inf))
        for link in model.pair_costs
    ]
    found = solve(Assignment.of(costs, edges), 20.0)
    return tuple(int(choice) for choice in found.choices)


def test_meshes_of_two_axes_are_all_that_use_different_links():
    meshes = meshes_of(load_machine("v100", 8))
    assert {tuple(size for _, size in mesh.sizes) for mesh in meshes} >= {(8,), (4, 2)}
    assert all(mesh.num_devices == 8 for mesh in meshes)
    assert all(expert_strategies(mesh) for mesh in meshes)


def test_a_mesh_can_be_given_and_memory_limited():
    fn, args = DEEP
    free = mw.autoplan(
        fn, args, machine="tpu-v5e", mesh=MESH, budget_s=10, experts=False
    )
    assert dict(free.mesh.sizes) == MESH
    limit = 0.6 * free.peak_memory_bytes
    try:
        less = mw.autoplan(
            fn, args, machine="tpu-v5e", mesh=MESH, memory=limit, budget_s=10
        )
    except MeshwrightError as error:
        assert "nothing fits" in str(error)  # noqa: PT017
    else:
        assert less.peak_memory_bytes <= limit


WRONG = {
    "objective is 'speed'": {"objective": "speed"},
    "weight of 'memory' is -1": {"objective": {"step_time": 1, "memory": -1}},
    "number of chips of tpu-v5e is missing": {"chips": None},
    "wanted seconds above 0": {"budget_s": 0},
    "leaves nothing to decide": {"chips": 1},
    "has 4 devices": {"mesh": {"data": 4}},
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_option_is_refused_with_its_reason(words):
    fn, args = MLP
    options = {"machine": "tpu-v5e", "chips": 8, "budget_s": 5} | WRONG[words]
    with pytest.raises(MeshwrightError) as error:
        mw.autoplan(fn, args, **options)
    assert words in str(error.value)


def test_a_memory_that_nothing_fits_is_refused_in_a_unit_of_its_size():
    fn, args = MLP
    words = (
        r"nothing fits: the smallest plan found .* needs \d+\.\d KiB per device, and "
        r"1\.00 KiB are allowed; use \d+ times the chips, .* microbatches \(pipeline=True"
    )
    with pytest.raises(MeshwrightError, match=words):
        mw.autoplan(fn, args, machine="tpu-v5e", chips=8, budget_s=5, memory="1KiB")


def test_a_step_that_computes_nothing_is_refused():
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    with pytest.raises(MeshwrightError, match="returns nothing that it computes"):
        mw.autoplan(lambda x: None, (x,), machine="tpu-v5e", chips=8)


def test_a_chosen_tactic_refuses_another_program():
    priced = space_of(MLP).price(Mesh(MESH))
    choices = random_choices(priced.model, np.random.default_rng(0))
    tactic = chosen_strategies(priced.model, choices, priced.work.state, "random")
    fn, args = DEEP
    with pytest.raises(MeshwrightError, match="search again"):
        mw.partition(fn, MESH, (tactic,)).plan(*args)


def test_the_device_program_of_the_simulation_is_returned(monkeypatch):
    """The returned plan is not lowered a second time."""
    simulated, simulate = [], trials.estimate

    def noted(decided, *args, **options):
        simulated.append(decided.lowered)
        return simulate(decided, *args, **options)

    monkeypatch.setattr(trials, "estimate", noted)
    fn, args = MLP
    found = mw.autoplan(fn, args, machine="tpu-v5e", chips=8, budget_s=10)
    assert any(found.decided.lowered is each for each in simulated)
    again = mw.partition(fn, found.mesh, found.tactics).plan(*args)
    assert again.counts == found.counts
    assert again.collectives == found.collectives
    assert again.steps == found.steps


def test_a_plan_that_could_not_be_made_comes_last():
    """Though it has no memory, which is the objective."""
    space, mesh = space_of(MLP), Mesh({"data": 8})
    task = SearchTask(space, (mesh,), 1e9, Objective.of("memory"))
    none = Candidate("none", mesh, (), why_not="no")
    large = Candidate("large", mesh, (), 1.0, 10**12, limit_bytes=1e9)
    some = Candidate("some", mesh, (), 1.0, 10**6, limit_bytes=1e9)
    found = Trials(task, TimeBudget(np.inf, WorkMeter()), [none, large, some]).ranked()
    assert found == (some, large, none)


def test_a_following_search_reads_expert_plans_on_its_own_meshes(monkeypatch):
    """The best plan of the earlier search may lie on a mesh without prices here."""
    space = space_of(MLP, "tpu-v5e", 8)
    before = Candidate("auto", Mesh({"data": 8}), (), 1e-9, 1000)
    mesh = Mesh({"data": 4, "model": 2})
    task = SearchTask(space, (mesh,), 1e9, Objective.of("step_time"))
    monkeypatch.setattr(proposing, "_has_time_to_refine", lambda *args: False)
    with SolverProcess() as solver:
        state = SearchState(task, solver, TimeBudget.of(5.0), candidates=[before])
        run_phases(state)
    named = {c.name for c in state.trials.candidates if c.mesh == mesh}
    assert {"auto", "Megatron"} <= {name.split(" ")[0] for name in named}
