"""Searches that start from tactics of the user, and meshes of up to three axes."""

import pytest

import meshwright as mw
from meshwright.errors import MeshwrightError, TacticError
from meshwright.machine import Mesh, load_machine
from meshwright.partitioner.structure.sites import sites_of
from meshwright.planner.candidates.expert_plans import expert_strategies
from meshwright.planner.candidates.meshes import meshes_of
from meshwright.planner.solve.space import Space
from tests.planner.driver.test_autoplan import arrays
from tests.planner.programs import DEEP, MESH, MLP

OPTIONS = {"machine": "tpu-v5e", "budget_s": 8}

PINNED = mw.shard({"params.*.up": 1}, axis="model")
WHOLE = mw.replicate("params.*.down", axis="data")
PRODUCT = "programs.py:21 dot_general f32[32,64]"
SITE = mw.cut({PRODUCT: mw.REPLICATED}, axis="data")


def search(program, **options):
    fn, args = program
    return mw.autoplan(fn, args, **(OPTIONS | options))


def spec_of(plan, name):
    """The specs of all inputs whose path ends with this name."""
    return {leaf.spec for leaf in plan.inputs if leaf.path.endswith(name)}


@pytest.fixture(scope="module")
def pinned():
    return search(DEEP, chips=8, tactics=[PINNED, WHOLE], budget_s=30)


def plans_of(found, program):
    """Each simulated candidate, with a plan made again from its tactics."""
    fn, args = program
    return [
        (c, mw.partition(fn, c.mesh, c.tactics).plan(*args))
        for c in found.search.candidates
        if not c.why_not
    ]


def test_every_plan_keeps_the_given_tactics_and_the_rest_is_searched(pinned):
    plans = plans_of(pinned, DEEP)
    names = {c.name for c, _ in plans}
    assert {"as given", "auto"} < names - {"auto, as tactics"}
    for _, plan in plans:
        assert all("model" in columns for _, columns in spec_of(plan, ".up"))
        for spec in spec_of(plan, ".down"):
            assert not any("data" in axes for axes in spec)
    assert pinned.step_time_s <= min(c.step_time_s for c, _ in plans)
    alone = next(c for c, _ in plans if c.name == "as given")
    assert pinned.step_time_s < alone.step_time_s


def test_tactics_of_the_plan_make_it_again_and_it_equals_the_original(pinned):
    fn, args = DEEP
    assert pinned.tactics[:2] == (PINNED, WHOLE)
    step = mw.partition(fn, pinned.mesh, pinned.tactics)
    again = step.plan(*args).on("tpu-v5e", donate_state=True)
    assert again.step_time_s == pinned.step_time_s
    assert step.check(*arrays(args)).ok


def test_the_plan_written_as_tactics_begins_with_the_given_ones(pinned):
    spelled = pinned.search.spelled
    assert spelled is not None
    assert spelled.tactics[:2] == (PINNED, WHOLE)
    assert str(PINNED) in spelled.text


def test_a_given_tactic_can_replicate_an_op():
    plan = search(MLP, mesh=MESH, tactics=[SITE], experts=False)
    work = plan.decided.work
    nodes = sites_of(work.graph).find(PRODUCT)
    assert nodes
    assert not any(work.is_cut(node, "data") for node in nodes)


def test_given_rewrites_are_applied_first():
    tactics = [mw.data_parallel("data"), mw.recompute("dot_general")]
    plan = search(DEEP, mesh={"data": 8}, tactics=tactics)
    assert plan.tactics[:2] == tuple(reversed(tactics))
    fn, args = DEEP
    assert mw.partition(fn, plan.mesh, plan.tactics).check(*arrays(args)).ok


def test_rewrites_of_a_search_come_between_those_given_and_the_rest():
    """A search of a rewritten program keeps the tactics of the first search."""
    fn, args = DEEP
    own, more = mw.recompute("dot_general"), mw.recompute("tanh")
    data = mw.data_parallel("data")
    captured = mw.partition(fn, MESH).capture(*args)
    first = Space(captured, load_machine("tpu-v5e", 8), tactics=(data, own))
    less = Space(captured, first.machine, 0, first.tactics, (more,))
    assert (first.kept_tactics, less.kept_tactics) == ((own, data), (own, more, data))


def test_only_meshes_with_the_named_axes_are_tried():
    machine = load_machine("tpu-v5e", 8)

    def sizes(*named, most=2):
        return [mesh.shape for mesh in meshes_of(machine, most, named)]

    assert sizes("model") == [
        {"model": 8}, {"data": 4, "model": 2}, {"data": 2, "model": 4},
    ]  # fmt: skip
    assert sizes("batch", "model")[0] == {"batch": 4, "model": 2}
    assert sizes("batch")[0] == {"batch": 8}
    assert sizes("model", "data", most=3)[-1] == {"data": 2, "model": 2, "more": 2}


def test_three_axes_are_searched_and_the_step_equals_the_original():
    fn, args = MLP
    plan = search(MLP, mesh={"data": 2, "model": 2, "more": 2}, budget_s=30)
    names = {c.name for c in plan.search.candidates if not c.why_not}
    assert "auto" in names
    assert any(name.startswith("Megatron") for name in names)
    assert mw.partition(fn, plan.mesh, plan.tactics).check(*arrays(args)).ok


def test_all_experts_on_three_axes_equal_the_original():
    fn, args = MLP
    for tactics in expert_strategies(Mesh({"a": 2, "b": 2, "c": 2})).values():
        step = mw.partition(fn, {"a": 2, "b": 2, "c": 2}, tactics)
        try:
            assert step.check(*arrays(args)).ok
        except TacticError as error:
            assert "no experts" in str(error)  # noqa: PT017


def test_more_axes_are_more_meshes():
    machine = load_machine("tpu-v5e", 32)
    counts = [len(meshes_of(machine, most)) for most in (1, 2, 3)]
    assert counts == sorted(set(counts))
    assert {len(mesh.axes) for mesh in meshes_of(machine, 3)} == {1, 2, 3}


WRONG = {
    "most_axes is 4; wanted 1, 2 or 3": {"most_axes": 4},
    "most_axes is 0": {"most_axes": 0},
    "name 2 axes, data, model, and most_axes is 1": {
        "most_axes": 1, "tactics": [mw.data_parallel("data"), mw.megatron("model")],
    },
    "2 devices cannot form a mesh with axes data, model of at least 2 devices each": {
        "chips": 2, "tactics": [mw.data_parallel("data"), mw.megatron("model")],
    },
    "axis 'modle' is not in the mesh": {
        "mesh": MESH, "tactics": [mw.megatron("modle")],
    },
    "'params.upp' matches nothing; the program's leaves are: params.up": {
        "tactics": [mw.shard({"params.upp": 0}, axis="data")],
    },
    "these tactics fit none of 3 meshes; for example, on model=8": {
        "tactics": [mw.shard({"x": 5}, axis="model")],
    },
    "cannot be kept: params.up along 'data': 3 parts do not divide extent 16": {
        "mesh": {"data": 3}, "chips": 3,
        "tactics": [mw.shard({"params.up": 0}, axis="data")],
    },
    "cannot be kept: x along 'data': it is cut already": {
        "tactics": [mw.data_parallel("data"), mw.replicate("x")],
    },
    "megatron is no tactic yet": {"tactics": [mw.megatron]},
    "runs a search of its own": {"tactics": [mw.auto("data", machine="tpu-v5e")]},
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_option_or_tactic_is_refused_with_its_reason(words):
    with pytest.raises(MeshwrightError) as error:
        search(MLP, **({"chips": 8} | WRONG[words]))
    assert words in str(error.value)
