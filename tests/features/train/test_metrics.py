"""Files of metrics: exact numbers, rows of an earlier run, events for TensorBoard."""

import csv
from types import SimpleNamespace

import pytest

from meshwright.features.train.metrics import CsvWriter, open_writers, read_csv
from meshwright.features.train.monitor import rates, show_row
from meshwright.features.train.recipes.recipe import OutputPart


def test_rows_after_the_place_of_resumption_are_written_anew(tmp_path):
    path = tmp_path / "metrics.csv"
    first = CsvWriter(path, 0)
    for step in (1, 2, 3):
        first.write(step, {"loss": step / 3})
    first.close()
    path.write_text(
        path.read_text() + "4,0.1", encoding="utf-8"
    )  # killed while writing
    second = CsvWriter(path, 2)
    second.write(3, {"loss": 9.0})
    second.close()
    rows = read_csv(path)
    assert [float(row["loss"]) for row in rows] == [1 / 3, 2 / 3, 9.0]


def test_a_kill_while_rows_are_kept_loses_none_of_them(tmp_path, monkeypatch):
    path = tmp_path / "metrics.csv"
    first = CsvWriter(path, 0)
    first.write(1, {"loss": 0.5})
    first.close()
    before = path.read_bytes()

    def die(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(csv.DictWriter, "writerows", die)
    with pytest.raises(KeyboardInterrupt):
        CsvWriter(path, 1)
    assert path.read_bytes() == before


def test_tensorboard_gets_an_event_file(tmp_path):
    pytest.importorskip("tensorboardX")
    (writer,) = open_writers(OutputPart(csv=False, tensorboard=True), tmp_path, 0)
    writer.write(1, {"loss": 0.5})
    writer.close()
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"loss" in events.read_bytes()


def test_rates_follow_from_the_seconds_of_a_step():
    plan = SimpleNamespace(figures=1, mfu=0.25, step_time_s=0.2, tokens_per_step=1000)
    row = rates(plan, 10, 0.1)
    assert row["mfu"] == pytest.approx(0.5)
    assert row["tokens_per_s"] == pytest.approx(10_000)
    assert show_row({"loss": 1.0, **row}) == (
        "loss 1.0000, 100 ms a step, 10.0 k tokens/s, MFU 50.0 %"
    )
