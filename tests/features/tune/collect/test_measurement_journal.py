"""The journal of a collection."""

import pytest

from meshwright.errors import LearnedError
from meshwright.features.tune.collect.measurement_journal import MeasurementJournal


def test_measurements_and_errors_read_back_without_a_line_that_was_cut_short(tmp_path):
    path = tmp_path / "it.partial.jsonl"
    journal = MeasurementJournal.open(path, {"seed": 0})
    journal.add(pass_number=0, config=3, ns=70)
    journal.fail(4, "too large")
    with path.open("a") as file:
        file.write('{"pass": 1, "con')
    again = MeasurementJournal.open(path, {"seed": 0})
    assert again.times == {(0, 3): 70}
    assert again.errors == {4: "too large"}


def test_a_corrupt_line_is_named_with_its_number(tmp_path):
    path = tmp_path / "it.partial.jsonl"
    MeasurementJournal.open(path, {"seed": 0})
    with path.open("a") as file:
        file.write("{not json}\n")
    with pytest.raises(LearnedError, match=r"line 2 of .* is no measurement"):
        MeasurementJournal.open(path, {"seed": 0})
