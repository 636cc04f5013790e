"""`meshwright plan --machine --chips`: the table, its comparisons, and wrong options."""

import json
import re
from dataclasses import replace

import pytest

import meshwright as mw
from meshwright.app.explain.candidates import candidate_table, won_text
from meshwright.cli.plans.searched_plan import code_lines, search_text, spelled_text
from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.planner.candidates.candidate import (
    Candidate,
    differences,
    visible_parts,
)
from meshwright.planner.candidates.search_result import REJECTED, SearchResult, Spelling

SEARCH = ("--machine", "tpu-v5e", "--chips", "8", "--budget", "5")
PIN = "shard({'params.*.up': 1}, axis='model')"


@pytest.fixture
def found(run, mlp):
    return run("plan", mlp, *SEARCH, "--tactics", PIN, "--out", "plan.json")


def test_the_table_says_what_makes_each_plan_slower(found):
    assert found.status == 0, found.err
    won, _, *lines = found.out.splitlines()
    assert re.search(r" won: .* a step, .* on each device", won)
    assert lines[0].split()[-6:] == [
        "times",
        "memory",
        "compared",
        "with",
        "the",
        "first",
    ]
    (first, *rest) = lines[1 : lines.index("")]
    assert " 1.00 " in first
    assert any(line.startswith("as given") for line in (first, *rest))
    slower = [
        line for line in rest if re.search(r"\d [mµ]s", line) and " 1.00 " not in line
    ]
    assert slower
    assert all(re.search(r"\+\S+ .s \S", line) for line in slower)


def test_given_tactics_are_in_the_plan_and_the_saved_file_is_a_plan(found, tmp_path):
    text = (tmp_path / "plan.json").read_text(encoding="utf-8")
    plan = mw.Plan.from_json(text)
    assert "model" in plan.spec("params.0.up")[1]
    assert PIN in found.out


def test_the_printed_plan_has_the_tactics_that_rebuild_it(found, run, mlp, tmp_path):
    plan = mw.Plan.from_json((tmp_path / "plan.json").read_text(encoding="utf-8"))
    _, _, printed = found.out.partition("\ncode that rebuilds this plan\n")
    code = "".join(line.strip() for line in printed.splitlines())
    assert eval(code, {"mw": mw}) == eval(plan.code, {"mw": mw})
    sizes = ",".join(f"{name}={size}" for name, size in plan.mesh.sizes)
    again = run("plan", mlp, "--mesh", sizes, "--tactics", code, "--out", "again.json")
    assert again.status == 0, again.err
    other = mw.Plan.from_json((tmp_path / "again.json").read_text(encoding="utf-8"))
    assert (other.inputs, other.counts) == (plan.inputs, plan.counts)


def test_a_long_list_of_tactics_is_cut_short():
    shown = code_lines("\n".join(["["] + ["    mw.fsdp('data'),"] * 30 + ["]"]))
    assert len(shown.splitlines()) == 25
    assert "(the first 24 of 32 lines; --json has all as code)" in shown


def test_json_has_all_candidates_with_their_differences_in_seconds(run, mlp):
    done = run("plan", mlp, *SEARCH, "--objective", "step_time=1,memory=0.3", "--json")
    assert done.status == 0, done.err
    search = json.loads(done.out)["search"]
    first = search["candidates"][0]
    assert first["fits"]
    for each in search["candidates"]:
        if each["why_not"]:
            assert each["step_time_s"] is None
            continue
        spent = sum(each["breakdown"].values())
        assert spent == pytest.approx(each["step_time_s"], rel=1e-6)
        longer = each["step_time_s"] - first["step_time_s"]
        assert sum(each["longer_s"].values()) == pytest.approx(longer, abs=1e-12)


LIMIT = 2.0 * 2**30


def candidate(name, breakdown, num_bytes=2**30):
    shown = visible_parts(breakdown)
    seconds = sum(s for _, s in shown)
    return Candidate(name, Mesh({"data": 8}), (), seconds, num_bytes, "", shown, LIMIT)


BEST = candidate("best", {"compute": 1.0, "all_reduce exposed": 0.1})


def compared(other):
    """The last cell of a plan's row."""
    return compare(BEST, other).rows[1][-1]


def compare(*candidates):
    return candidate_table(SearchResult(candidates, LIMIT, 1.0, 0.9, 3.0, 1, 1))


CELLS = {
    "+1.00 s computing, +500 ms all-gather, -100 ms all-reduce": (
        {"compute": 2.0, "all_gather exposed": 0.5, "idle": 0.01}, 2**30,
    ),
    "+200 ms idle": ({"compute": 1.0, "all_reduce exposed": 0.1, "idle": 0.2}, 2**30),
    "+0.5 GiB memory, -100 ms computing": (
        {"compute": 0.9, "all_reduce exposed": 0.1}, 3 * 2**29,
    ),
    "does not fit: 512 MiB more than 2.00 GiB": ({"compute": 0.5}, 5 * 2**29),
    "-100 ms all-reduce": ({"compute": 1.0, "all_gather hidden": 9.0}, 2**30),
}  # fmt: skip


def test_candidates_print_aligned_and_are_html_in_notebooks():
    table = compare(BEST, candidate("<other>", {"compute": 11.0}, 2**30))
    titles, best, other = str(table).splitlines()
    assert titles.split()[:5] == ["plan", "mesh", "step", "times", "memory"]
    ends = best.index("1.10 s") + 6, other.index("11.0 s") + 6, titles.index("step") + 4
    assert len(set(ends)) == 1
    html = table._repr_html_()
    assert "&lt;other&gt;" in html
    assert 'text-align:right">11.0 s' in html


@pytest.mark.parametrize("cell", CELLS)
def test_at_most_three_differences_the_largest_first(cell):
    expected = cell.replace("+0.5 GiB", "+512 MiB")
    assert compared(candidate("other", *CELLS[cell])) == expected


def test_equal_plans_are_one_row_and_so_are_strategies_that_do_not_apply():
    same = replace(BEST, name="other", mesh=Mesh({"data": 4, "model": 2}))
    refused = [
        Candidate(name, BEST.mesh, (), why_not=f"zero({axis!r}) finds no state: none")
        for name, axis in (("ZeRO-2", "data"), ("ZeRO-3", "model"))
    ]
    rejected = Candidate("auto", BEST.mesh, (), why_not=REJECTED + "out of memory")
    table = compare(BEST, same, *refused, rejected)
    assert [row[:2] for row in table.rows] == [
        ("best = other", "data=8 or data=4,model=2"),
        ("auto", "data=8"),
        ("do not apply", ""),
    ]
    assert table.rows[1][-1] == "out of memory"
    assert table.rows[2][-1] == "ZeRO-2, ZeRO-3: zero finds no state"


def test_what_won_is_said_with_the_next_plan():
    search = SearchResult((BEST,), LIMIT, 1.0, 0.9, 3.0, 1, 1)
    first = "best on data=8 won: 1.10 s a step, 1.00 GiB of 2.00 GiB on each device"
    assert won_text(search) == first
    others = replace(BEST, name="equal"), candidate("slow", {"compute": 1.21})
    assert won_text(replace(search, candidates=(BEST, *others))) == (
        f"{first}; the next is slow on data=8, 10.0 % slower"
    )


def test_differences_add_up_to_the_difference_of_the_steps():
    other = candidate("other", {"compute": 0.2, "permute exposed": 0.4, "idle": 0.3})
    found = differences(other, BEST)
    assert sum(s for _, s in found) == pytest.approx(
        other.step_time_s - BEST.step_time_s
    )
    assert found[0][0] == "compute"


def test_the_found_plan_is_printed_as_tactics():
    spelled = Spelling((), "mw.megatron('model'),", 1.21, 3 * 2**20)
    assert "nothing is partitioned" in spelled_text(replace(spelled, text=""), BEST)
    assert spelled_text(spelled, BEST) == (
        "as tactics (1.10 times the step time of the first plan, 3.00 MiB):\n"
        "  mw.megatron('model'),"
    )


def test_a_search_that_ended_early_says_so():
    whole = SearchResult((BEST,), 2.0 * 2**30, 0.0, 0.0, 3.0, 8, 8)
    assert search_text(whole) == "3.0 s for 8 meshes"
    short, why = search_text(replace(whole, num_meshes=1)).splitlines()
    assert short == "3.0 s for 1 of 8 meshes"
    assert "larger --budget" in why
    _, why = search_text(replace(whole, is_interrupted=True)).splitlines()
    assert why == "interrupted: this is the best so far"
    _, why = search_text(replace(whole, is_cut=True)).splitlines()
    assert why.startswith("cut short after 3 s")


def test_tree_search_is_named_with_its_states_and_spelled_as_tactics(run, mlp):
    done = run("plan", mlp, *SEARCH, "--search", "tree", "--tactics", PIN)
    assert done.status == 0, done.err
    assert re.search(r"tree search, which priced [1-9][\d,]* states", done.out)
    done = run("plan", mlp, *SEARCH, "--search", "tree", "--json")
    found = json.loads(done.out)["search"]
    assert found["method"] == "tree"
    assert found["num_states"] > 1
    names = {each["name"] for each in found["candidates"]}
    assert {"nothing cut", "tree search"} <= names
    for each in found["candidates"]:
        if each["name"] == "tree search":
            assert all(tactic.startswith("shard(") for tactic in each["tactics"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--objective", "speed"], "objective is 'speed'; wanted one of step_time"),
        (["--objective", "memory=-1"], "weight of 'memory' is -1"),
        (["--most-axes", "4"], "most_axes is 4; wanted 1, 2 or 3"),
        (["--memory", "0"], "memory is '0'; wanted a size such as '80GiB'"),
        (["--memory", "16"], "memory is 16 bytes of a device; did you mean '16GiB'?"),
        (["--memory", "16 gigs"], "memory is '16 gigs'; wanted a size"),
        (["--search", "dfs"], "search is 'dfs'; wanted one of program, tree"),
        (["--tactics", "shard({'w': 0}, 'data')"], "pattern 'w' matches nothing"),
        (["--tactics", "sharde('w')"], "no tactic 'sharde'; did you mean 'shard'"),
        (["--machine", "tpu-v4,tpu-v5e"], "a search takes one machine"),
        (["--gather", "at_use"], "--gather is for given tactics on a --mesh"),
        (["--tokens", "1e9"], "--tokens is for given tactics on a --mesh"),
        (
            [
                "--mesh",
                "data=8",
                "--search",
                "program",
                "--tactics",
                "shard({'params.0.down': 1}, 'data')",
            ],
            "params.0.down along 'data': 8 parts do not divide extent 4",
        ),
    ],
)
def test_wrong_options_of_a_search_are_refused_with_the_reason(
    run, mlp, options, message
):
    done = run("plan", mlp, *SEARCH, *options)
    assert done.status == 2
    assert message in done.err


@pytest.mark.parametrize(
    "option",
    ["--chips 8", "--objective step_time", "--memory 4GiB", "--budget 3", "--most-axes 3",
     "--seed 1", "--confirm"],
)  # fmt: skip
@pytest.mark.parametrize("others", [(), ("--machine", "tpu-v4,tpu-v5e")])
def test_options_of_a_search_without_one_are_refused(run, mlp, option, others):
    done = run("plan", mlp, "--mesh", "data=8", *others, *option.split())
    assert done.status == 2
    assert f"{option.split()[0]} is for a search: add --search program" in done.err


UNBUILT = """
def target():
    raise AssertionError("was built")
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--machine", "tpu-v5e"], "how many chips?"),
        (["--machine", "tpu-v9"], "there is no machine 'tpu-v9'"),
        (["--machine", "tpu-v55", "--chips", "8"], "tpu-v55"),
        (["--mesh", "data=8", "--search", "tree"], "a search needs a machine"),
        ([*SEARCH, "--budget", "0"], "budget_s is 0"),
        ([*SEARCH, "--place", "iowaa"], "did you mean 'iowa'"),
        ([*SEARCH, "--objective", "speed"], "objective is 'speed'"),
        (
            [*SEARCH, "--search", "tree", "--mesh", "data=3"],
            "mesh data=3 has 3 devices",
        ),
        (["--mesh", "data=8", "--machine", "tpu-v55"], "tpu-v55"),
        (
            ["--mesh", "data=8", "--machine", "tpu-v5e", "--place", "iowaa"],
            "did you mean 'iowa'",
        ),
    ],
)
def test_wrong_options_are_refused_before_the_target_is_built(
    run, tmp_path, options, message
):
    path = tmp_path / "unbuilt.py"
    path.write_text(UNBUILT)
    done = run("plan", str(path), *options)
    assert done.status == 2
    assert message in done.err
    assert "was built" not in done.err


def test_the_search_gets_the_seed_and_whether_to_compile(run, mlp, monkeypatch):
    given = []

    def noted(fn, args, request):
        given.append(request)
        raise PlanError("that is all")

    monkeypatch.setattr("meshwright.cli.plans.searched_plan.find_plan", noted)
    run("plan", mlp, *SEARCH, "--seed", "7")
    run("plan", mlp, *SEARCH, "--confirm")
    assert given[0].seed == 7
    assert [each.confirm for each in given] == [False, True]
    assert given[0].budget_s == 5
