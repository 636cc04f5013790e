"""The order in which proposals are simulated."""

from meshwright.machine import Mesh
from meshwright.planner.candidates.proposal import FOUND, Proposal, interleave

SMALL, LARGE = Mesh({"data": 2}), Mesh({"data": 4})
LIMIT = 10.0


def proposal(name, seconds, choices, mesh=SMALL, num_bytes=1.0):
    return Proposal(name, mesh, (), seconds, num_bytes, choices)


def order(*proposals):
    """Names and seconds of proposals in the order of simulation."""
    ordered = interleave(proposals, LIMIT, lambda seconds, num_bytes: seconds)
    return [(p.name, p.seconds) for p in ordered]


def test_found_and_expert_plans_alternate_the_best_of_each_first():
    found, other = proposal(FOUND, 1.0, (0,)), proposal(FOUND, 2.0, (1,), LARGE)
    zero, data = proposal("ZeRO-2", 1.5, (2,)), proposal("data parallel", 1.2, (3,))
    names = [name for name, _ in order(other, zero, data, found)]
    assert names == [FOUND, "data parallel", FOUND, "ZeRO-2"]


def test_a_plan_that_does_not_fit_comes_last():
    large, slow = (
        proposal("a", 1.0, (0,), num_bytes=2 * LIMIT),
        proposal("b", 9.0, (1,)),
    )
    assert order(large, slow) == [("b", 9.0), ("a", 1.0)]


def test_the_same_choices_under_another_name_come_after_other_strategies():
    same = [proposal(name, 1.0, (7,)) for name in ("ZeRO-3", "FSDP")]
    zero = proposal("ZeRO-2", 2.0, (8,))
    assert [name for name, _ in order(*same, zero)] == ["ZeRO-3", "ZeRO-2", "FSDP"]


def test_a_strategy_comes_on_one_mesh_before_it_comes_on_others():
    meshes = [proposal("a", 1.0, (0,)), proposal("a", 1.1, (0,), LARGE)]
    assert order(*meshes, proposal("b", 3.0, (1,))) == [
        ("a", 1.0),
        ("b", 3.0),
        ("a", 1.1),
    ]
