"""Designs learned from logs alone: readers, training, the command and its refusals."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from meshwright.codesign import accelerator as acc
from meshwright.errors import AcceleratorError, NoDesignError
from meshwright.features.codesign.accelerator.command import accelerator_command
from meshwright.features.codesign.accelerator.logs.prime_space import VALUES
from meshwright.features.codesign.accelerator.offline.conservative import Conservatism
from meshwright.features.codesign.accelerator.offline.design_logs import (
    find_logs,
    read_application_log,
)
from meshwright.features.codesign.accelerator.offline.learn import learn_design
from meshwright.features.codesign.accelerator.offline.surrogate import (
    Training,
    train_surrogate,
)
from meshwright.features.codesign.accelerator.offline.tfrecord import (
    crc32c,
    parse_example,
    read_records,
)
from meshwright.features.codesign.accelerator.offline.training_set import (
    make_training_set,
)
from meshwright.learn.training import ModelCheckpoints
from tests.features.codesign.accelerator.logged import (
    example,
    record,
    records,
    rows,
    write_csv,
)

SMALL = {"steps": 100, "evaluations": 256}


def read(folder, name):
    return read_application_log(folder, name, find_logs(folder)[name])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("logs")
    write_csv(made / "narrow.csv", rows(600), {"size": 1.0})
    write_csv(made / "wide.csv", rows(600, power=0.7, seed=1), {"size": 3.0})
    write_csv(made / "none.csv", rows(50, cap=0.0))
    return made


@pytest.fixture
def no_simulator(monkeypatch):
    """Every way to simulate or to map raises."""

    def fail(*args, **kwargs):
        raise AssertionError("the simulator was called")

    home = "meshwright.features.codesign.accelerator"
    for name in (
        "simulate.evaluate.evaluate_workload",
        "simulate.evaluate.evaluate",
        "simulate.evaluate.map_to",
        "simulate.evaluate.fuse",
        "logs.write_logs.simulate_design",
        "logs.write_logs.evaluate_workload",
    ):
        monkeypatch.setattr(f"{home}.{name}", fail)


def test_the_checksum_is_the_published_one():
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, appendix B.4


def test_both_forms_of_logs_give_the_same_arrays(tmp_path):
    designs = list(rows(80))
    write_csv(tmp_path / "ours.csv", designs)
    (tmp_path / "theirs").mkdir()
    parts = list(records(designs))
    (tmp_path / "theirs" / "a.tfrecord").write_bytes(b"".join(parts[:50]))
    (tmp_path / "theirs" / "b.tfrecord").write_bytes(b"".join(parts[50:]))
    ours, theirs = read(tmp_path, "ours"), read(tmp_path, "theirs")
    assert 0 < ours.is_feasible.sum() < 80
    np.testing.assert_array_equal(ours.genes, theirs.genes)
    np.testing.assert_array_equal(ours.runtime_ms, theirs.runtime_ms)
    np.testing.assert_array_equal(ours.area_mm2, theirs.area_mm2)


def test_corrupt_records_are_skipped_and_counted(tmp_path):
    (tmp_path / "app").mkdir()
    parts = [bytearray(part) for part in records(rows(20))]
    parts[3][20] ^= 1  # in the payload
    parts[7] = bytearray(record(example({"param_1": 1.0})))
    parts[9] = bytearray(record(b"\xff\xff\xff"))
    parts[18][2] ^= 1  # in the length: what follows cannot be found
    (tmp_path / "app" / "x.tfrecord").write_bytes(b"".join(parts))
    log = read(tmp_path, "app")
    assert len(log.genes) == 15
    assert log.num_skipped == 4
    write_csv(tmp_path / "ours.csv", rows(20))
    text = (tmp_path / "ours.csv").read_text().splitlines()
    text[4] = text[4].replace(",", ",x", 1)
    text[6] = text[6][:9]
    (tmp_path / "ours.csv").write_text("\n".join(text))
    assert read(tmp_path, "ours").num_skipped == 2


def test_a_cut_file_ends_with_one_corrupt_record(tmp_path):
    whole = b"".join(records(rows(3)))
    for cut in (1, 8, 200):
        (tmp_path / "cut").write_bytes(whole[:-cut])
        found = list(read_records(tmp_path / "cut"))
        assert found[-1] is None
        assert None not in found[:-1]


def test_whole_numbers_may_be_negative_and_other_bytes_are_refused():
    assert parse_example(example({"x": 2**64 - 5})) == {"x": -5}
    assert parse_example(example({"y": 0.5})) == {"y": 0.5}
    with pytest.raises((ValueError, struct.error)):
        parse_example(b"\x0a\x05abc")


def test_learning_never_calls_the_simulator(folder, tmp_path, no_simulator):
    out = tmp_path / "design.toml"
    options = ["--avoid", "infeasible", "--area-mm2", "20", "--json"]
    options += ["--steps", "100", "--evaluations", "256"]
    arguments = ["learn", folder, "--for", "narrow", "--out", out, *options]
    found = CliRunner().invoke(accelerator_command, [str(a) for a in arguments])
    assert found.exit_code == 0, found.output
    figures = json.loads(found.stdout)
    design = acc.Design.load(out)
    assert design.area_mm2 <= 20
    assert figures["area_mm2"] == pytest.approx(design.area_mm2)
    assert all(figures["values"][name] in values for name, values in VALUES.items())
    assert figures["num_logged"] == 1200
    assert figures["tau"].keys() == {"narrow", "wide"}


def test_the_same_seed_learns_the_same_design(folder):
    one, two = (learn_design(folder, "wide", **SMALL) for _ in range(2))
    assert one == two
    assert learn_design(folder, "wide", **SMALL, seed=1).tau != one.tau


@pytest.mark.slow
def test_a_training_that_was_cut_ends_as_if_it_had_not_been(folder, tmp_path):
    logs = [read(folder, name).within(60.0) for name in ("narrow", "wide")]
    data = make_training_set(logs, 0)
    training = Training(60.0, Conservatism(), steps=400, seed=0)
    whole = train_surrogate(data, training)
    checkpoints = ModelCheckpoints(tmp_path / "cut.npz", every=1)

    class CutError(Exception):
        pass

    def cut(point):
        if point.epoch == 2:
            raise CutError

    with pytest.raises(CutError):
        train_surrogate(data, training, checkpoints, cut)
    resumed = train_surrogate(data, training, checkpoints)
    assert resumed.tau == whole.tau
    assert str(resumed.curve) == str(whole.curve)  # NaN differs from itself
    other = Training(60.0, Conservatism(), steps=400, seed=1)
    with pytest.raises(AcceleratorError, match="other logs or options"):
        train_surrogate(data, other, checkpoints)


@pytest.mark.slow
def test_a_surrogate_ranks_designs_that_it_has_not_seen(folder):
    logs = [read(folder, name).within(60.0) for name in ("narrow", "wide")]
    data = make_training_set(logs, 0)
    trained = train_surrogate(data, Training(60.0, Conservatism(), 400, 0))
    assert min(trained.tau.values()) > 0.5


def test_an_application_without_logs_needs_zero_shot(folder, tmp_path):
    with pytest.raises(AcceleratorError, match=r"there are narrow, none, wide"):
        learn_design(folder, "other", **SMALL)
    with pytest.raises(AcceleratorError, match="needs a description of none"):
        learn_design(folder, "none", is_zero_shot=True, **SMALL)
    found = learn_design(folder, "wide", is_zero_shot=True, **SMALL)
    assert found.predicted_ms is None
    assert found.tau.keys() == {"narrow"}


def test_logs_that_cannot_be_learned_from_say_why(folder, tmp_path):
    with pytest.raises(AcceleratorError, match="none have no feasible designs"):
        learn_design(folder, "none", **SMALL)
    with pytest.raises(AcceleratorError, match="is no folder of logs"):
        learn_design(tmp_path / "absent", "none")
    with pytest.raises(AcceleratorError, match="has no logs"):
        learn_design(tmp_path, "none")
    Path(tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(
        AcceleratorError, match=r"bad.csv is no log of designs: it lacks"
    ):
        learn_design(tmp_path, "bad")


def test_a_cap_that_no_design_keeps_is_no_misuse(tmp_path):
    logged = ((v, ms, area / 100, bad) for v, ms, area, bad in rows(300))
    write_csv(tmp_path / "app.csv", logged)
    with pytest.raises(NoDesignError, match=r"finds no design within 0.6 mm2"):
        learn_design(tmp_path, "app", area_mm2=0.6, **SMALL)
