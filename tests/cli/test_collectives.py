"""`meshwright collectives`: placements and programs on the command line."""

import json

CASE = ["collectives", "--hierarchy", "2,16", "--axes", "2,16", "--reduce", "1"]


def test_placements_are_listed_with_their_fastest_programs(run):
    done = run(*CASE, "--machine", "h100", "--hierarchy", "4,8", "--top", "1")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "[[2 1] [2 8]]",
        "[[1 2] [4 4]]",
    ]


def test_without_a_machine_programs_have_no_times(run):
    done = run(*CASE, "--json")
    cases = json.loads(done.out)
    assert sorted(len(case["programs"]) for case in cases) == [3, 47]
    assert cases[0]["programs"][0]["seconds"] is None


def test_a_wrong_program_is_an_answer_of_status_1(run):
    done = run(*CASE, "--check", "reduce inside 0; broadcast inside 0")
    assert (done.status, done.out.count("right")) == (0, 2)
    done = run(*CASE, "--check", "reduce inside 0")
    assert done.status == 1
    assert "step 2: the program ends without all_reduce's result" in done.out


def test_bad_numbers_are_misuse(run):
    done = run(*CASE, "--axes", "two")
    assert done.status == 2
    assert "--axes is 'two'; wanted ints, such as 4,16" in done.err
    done = run(*CASE, "--axes", "2,8")
    assert "axes 2x8 have 16 devices, hierarchy 2x16 32" in done.err
    done = run(*CASE, "--machine", "h100")
    assert "hierarchy 2x16 does not match h100" in done.err
