"""Predicted reduction programs against the rows that P2 measured (MLSys 2022)."""

from pathlib import Path

import pytest

from benchmarks.collectives.p2 import compare, read_rows

MEASURED = Path("benchmarks/data/p2/measured.csv")


@pytest.fixture(scope="module")
def summary():
    return compare(read_rows(MEASURED))[0]


def test_every_total_of_programs_is_that_of_the_paper(summary):
    assert summary["rows"] == 84
    assert summary["totals_equal"] == "38 of 38"


def test_the_measured_gain_is_among_the_first_predicted_programs(summary):
    """P2's simulator: 52, 75 and 92 %, by the program itself."""
    found = summary["fastest_program"]["gain within 15%"]
    assert found["top-1"] >= 0.6
    assert found["top-5"] >= 0.85
    assert found["top-10"] >= 0.92


def test_the_predicted_placement_is_mostly_the_measured_one(summary):
    hits, of = map(int, summary["fastest_placement"].split(" of "))
    assert hits >= 0.9 * of
    assert summary["median_error_of_gain"] < 0.03
