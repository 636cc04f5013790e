"""In which order plans have their turn to be simulated."""

from meshwright.machine import Mesh
from meshwright.planner.candidates.proposal import FOUND, Proposal, interleave

SMALL, LARGE = Mesh({"data": 2}), Mesh({"data": 4})
LIMIT = 10.0


def proposal(name, seconds, choices, mesh=SMALL, num_bytes=1.0):
    return Proposal(name, mesh, (), seconds, num_bytes, choices)


def order(*proposals):
    """Names and seconds of some plans in their turns."""
    turns = interleave(proposals, LIMIT, lambda c: c.step_time_s)
    return [(p.name, p.seconds) for p in turns]


def test_found_plans_and_those_of_people_have_their_turns_by_what_they_promise():
    found, other = proposal(FOUND, 1.0, (0,)), proposal(FOUND, 2.0, (1,), LARGE)
    zero, data = proposal("ZeRO-2", 1.5, (2,)), proposal("data parallel", 1.2, (3,))
    names = [name for name, _ in order(other, zero, data, found)]
    assert names == [FOUND, "data parallel", FOUND, "ZeRO-2"]


def test_what_does_not_fit_comes_last():
    large, slow = (
        proposal("a", 1.0, (0,), num_bytes=2 * LIMIT),
        proposal("b", 9.0, (1,)),
    )
    assert order(large, slow) == [("b", 9.0), ("a", 1.0)]


def test_what_is_the_same_plan_under_another_name_comes_behind_others():
    same = [proposal(name, 1.0, (7,)) for name in ("ZeRO-3", "FSDP")]
    zero = proposal("ZeRO-2", 2.0, (8,))
    assert [name for name, _ in order(*same, zero)] == ["ZeRO-3", "ZeRO-2", "FSDP"]


def test_one_mesh_of_a_strategy_comes_before_its_others():
    meshes = [proposal("a", 1.0, (0,)), proposal("a", 1.1, (0,), LARGE)]
    assert order(*meshes, proposal("b", 3.0, (1,))) == [
        ("a", 1.0),
        ("b", 3.0),
        ("a", 1.1),
    ]
