"""MaxText's published runs: what is stored is what is predicted, and how far off."""

import json

import pytest

from benchmarks.prediction.maxtext import RESULTS, row_of, runs

STORED = json.loads((RESULTS / "maxtext.json").read_text(encoding="utf-8"))


def test_every_row_is_within_a_tenth_of_what_was_published():
    errors = {row["run"]: row["error"] for row in STORED["runs"]}
    assert list(errors) == [run.name for run in runs()]
    assert max(map(abs, errors.values())) < 0.1


@pytest.mark.parametrize("turn", [0, -1])
def test_a_row_is_predicted_as_stored(turn):
    run, stored = list(runs())[turn], STORED["runs"][turn]
    assert row_of(run)["predicted_mfu"] == pytest.approx(stored["predicted_mfu"])
