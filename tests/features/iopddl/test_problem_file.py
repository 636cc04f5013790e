"""The IOPDDL file format, and its smallest instances solved."""

import json
from pathlib import Path

import pytest

from meshwright.errors import AssignmentError
from meshwright.features.iopddl.problem_file import read_assignment, write_solution
from meshwright.search.assignment import solve

DATA = Path(__file__).parents[2] / "data" / "iopddl"


def example():
    return json.loads((DATA / "example.json").read_text())


def test_the_example_reads_as_published():
    problem = read_assignment(DATA / "example.json")
    assert str(problem) == "assignment of 5 nodes, 5 edges, 9 choices, limit 50"
    assert solve(problem, 600).cost == 445


def test_a_solution_is_a_json_list(tmp_path):
    write_solution(tmp_path / "solution.json", [0, 2, 1])
    assert json.loads((tmp_path / "solution.json").read_text()) == [0, 2, 1]


def broken(change):
    content = example()
    change(content["problem"])
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "has no object 'problem'"),
        ('{"problem": {}}', "has no object 'problem.nodes'"),
        (broken(lambda p: p["nodes"]["usages"].pop()), "4 usages for 5 nodes"),
        (broken(lambda p: p["nodes"]["usages"][1].pop()), "numbers of costs and of us"),
        (
            broken(lambda p: p["nodes"]["costs"][0].insert(0, "x")),
            "wanted numbers|differ",
        ),
        (broken(lambda p: p["edges"]["costs"][0].pop()), "has 1 costs, wanted 2"),
        (broken(lambda p: p["edges"]["costs"].pop()), "5 edges with 4 costs"),
        (
            broken(lambda p: p["nodes"]["intervals"][0].pop()),
            "intervals are to be pairs",
        ),
        (broken(lambda p: p.update(usage_limit="50")), "usage_limit is '50'"),
        (broken(lambda p: p["nodes"]["usages"].__setitem__(0, [-1])), "usage -1"),
    ],
)
def test_a_malformed_file_says_what_is_wrong(tmp_path, text, words):
    path = tmp_path / "problem.json"
    path.write_text(text)
    with pytest.raises(AssignmentError, match=words):
        read_assignment(path)


def test_a_broken_gzip_file_and_a_missing_one_are_refused(tmp_path):
    path = tmp_path / "problem.json.gz"
    with pytest.raises(AssignmentError, match="No such file"):
        read_assignment(path)
    path.write_bytes((DATA / "asplos-2025-iopddl-B.json.gz").read_bytes()[:1000])
    with pytest.raises(AssignmentError, match="no whole gzip file"):
        read_assignment(path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "optimum"), [("B", 532843), ("G", 217039)])
def test_the_smallest_instances_are_solved_to_their_optimum(name, optimum):
    problem = read_assignment(DATA / f"asplos-2025-iopddl-{name}.json.gz")
    found = solve(problem, 600.0)  # it ends as soon as it is proven
    assert found.cost == optimum
