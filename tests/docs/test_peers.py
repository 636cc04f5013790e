"""docs/peers.md shows what `python -m benchmarks partitioning peers` stored."""

import json

import pytest

from benchmarks.partitioning.peer_cases import CASES
from benchmarks.partitioning.peer_steps import BASE
from benchmarks.partitioning.peers import PAGE, RESULTS, line, num_collectives, table

ROWS = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]


def test_the_page_shows_the_stored_table():
    assert table(ROWS) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_program_was_run_under_every_peer(case):
    rows = [row for row in ROWS if row["case"] == case.name]
    assert [row["peer"] for row in rows] == [row["peer"] for row in ROWS[: len(rows)]]
    assert rows[0]["peer"] == BASE
    assert rows[0]["ratio"] == 1


def test_a_peer_that_could_not_says_why():
    told = line({"case": "vit", "peer": "AUTO", "why_not": "no rule for scan"})
    assert told == "| vit: AUTO | no rule for scan | - | - | - | - | - | - |\n"


def test_collectives_of_a_loop_count_every_time():
    text = """HloModule m

%body (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  ROOT %sum = f32[8] all-reduce(%p), to_apply=%add
}

%condition (p.1: f32[8]) -> pred[] {
  ROOT %p.1 = f32[8] parameter(0)
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8] parameter(0)
  %whole = f32[64] all-gather-start(%x), dimensions={0}
  %done = f32[64] all-gather-done(%whole)
  ROOT %loop = f32[8] while(%x), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"3"}}
}
"""  # noqa: E501  HLO as it is printed
    assert num_collectives(text) == 4
