"""Kills, damage, two writers and readers: the newest whole checkpoint always restores."""

import gc
import random
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import meshwright as mw
from meshwright.errors import CheckpointError
from meshwright.features.checkpoint.fingerprint import fingerprints
from meshwright.features.checkpoint.tasks import NEWEST, CheckpointTasks
from tests.features.checkpoint.killing import (
    kill_while_saving,
    require_newest_is_whole,
    started_writer,
)
from tests.features.checkpoint.states import (
    assert_same,
    make_state,
    put,
    shardings_on,
)


@pytest.fixture(scope="module", autouse=True)
def _collected():
    """Collects once: in a process that has traced many programs it takes two seconds."""
    yield
    gc.collect()


def test_after_each_kill_the_newest_committed_checkpoint_restores(tmp_path):
    rng = random.Random(0)
    newest = 0
    for _ in range(3):
        committed = kill_while_saving(tmp_path, 8, rng)
        assert committed > newest, "the next writer goes on from the last step"
        newest = require_newest_is_whole(tmp_path, committed, 8)


# -- damage ----------------------------------------------------------------------------


def write_two(directory):
    """Two checkpoints of states that differ."""
    with mw.Checkpoints(directory) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, make_state(step), position=step)


def data_files(directory, step):
    """The files that hold values of arrays, the largest first."""
    files = (directory / str(step) / "state").rglob("d/*")
    return sorted(files, key=lambda each: each.stat().st_size, reverse=True)


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def test_a_changed_byte_anywhere_is_found_and_the_checkpoint_before_restores(tmp_path):
    write_two(tmp_path)
    path = data_files(tmp_path, 2)[0]
    whole = path.read_bytes()
    like = make_state(0)
    found = set()
    for at in range(0, len(whole), max(1, len(whole) // 6)):
        path.write_bytes(whole)
        flip(path, at)
        reading = mw.Checkpoints(tmp_path, read_only=True)
        try:
            with pytest.warns(mw.MeshwrightWarning) as warned:
                restored = reading.restore(like)
        except pytest.fail.Exception:  # no warning: then nothing may have changed
            assert_same(reading.restore(like).state, make_state(2))
            continue
        assert restored.step == 1
        assert_same(restored.state, make_state(1))
        (skipped,) = restored.skipped
        assert skipped.step == 2
        assert "step 2" in str(warned[0].message)
        found.add(skipped.reason.split(" ")[0])
    assert {"params.up", "params.down"} & found, found


def test_a_truncated_file_names_the_array_and_the_one_before_restores(tmp_path):
    write_two(tmp_path)
    for path in data_files(tmp_path, 2):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with mw.Checkpoints(tmp_path) as checkpoints:
        with pytest.warns(mw.MeshwrightWarning, match="cannot be read"):
            restored = checkpoints.restore(make_state(0))
        assert restored.step == 1
        assert_same(restored.state, make_state(1))
        # The writer sets it aside and can save the step again.
        assert checkpoints.steps == (1,)
        checkpoints.save(2, make_state(7))
        checkpoints.wait()
        assert checkpoints.restore(make_state(0)).step == 2
    assert [each.name for each in (tmp_path / "damaged").iterdir()] == ["2.0"]


@pytest.mark.parametrize("name", ["about/metadata", "state/manifest.ocdbt"])
def test_a_lost_file_of_the_index_is_damage(name, tmp_path):
    write_two(tmp_path)
    (tmp_path / "2" / name).unlink()
    with pytest.warns(mw.MeshwrightWarning, match=r"step 2: .* cannot be read"):
        restored = mw.Checkpoints(tmp_path, read_only=True).restore(make_state(0))
    assert restored.step == 1


def test_a_damaged_step_that_is_asked_for_is_an_error(tmp_path):
    write_two(tmp_path)
    for path in data_files(tmp_path, 2):
        path.write_bytes(b"")
    reading = mw.Checkpoints(tmp_path, read_only=True)
    with pytest.raises(CheckpointError, match=r"step 2 of .* is damaged: .* cannot be"):
        reading.restore(make_state(0), step=2)


def test_if_all_are_damaged_each_is_named(tmp_path):
    write_two(tmp_path)
    for step in (1, 2):
        (tmp_path / str(step) / "about" / "metadata").write_text("{")
    reading = mw.Checkpoints(tmp_path, read_only=True)
    with pytest.raises(CheckpointError, match=r"(?s)step 2: .*step 1: "):
        reading.restore(make_state(0))


# -- two writers, and readers ----------------------------------------------------------


def test_a_second_writer_is_told_who_writes_until_the_first_is_killed(tmp_path):
    with started_writer(tmp_path, 1) as (first, heard):
        assert heard.recv() == ("saving", 1)
        with pytest.raises(CheckpointError) as refused:
            mw.Checkpoints(tmp_path)
        assert f"has another writer: process {first.pid} on " in str(refused.value)
        assert "since 20" in str(refused.value)
    with mw.Checkpoints(tmp_path) as checkpoints:  # a dead writer's lock is free
        checkpoints.save(10**6, {"x": jnp.ones(2)})


def test_two_writers_in_one_process_exclude_each_other(tmp_path):
    with (
        mw.Checkpoints(tmp_path),
        pytest.raises(CheckpointError, match="has another writer: process"),
    ):
        mw.Checkpoints(tmp_path)
    mw.Checkpoints(tmp_path).close()


def test_a_reader_always_sees_a_whole_checkpoint_while_others_are_written(tmp_path):
    seen: list[int] = []
    problems: list[Exception] = []
    like = {"x": jnp.zeros(1 << 16, int)}

    def read():
        reading = mw.Checkpoints(tmp_path, read_only=True)
        try:
            while len(set(seen)) < 3:
                if reading.latest is None:
                    continue
                restored = reading.restore(like)
                np.testing.assert_array_equal(restored.state["x"], restored.step)
                seen.append(restored.step)
        except Exception as problem:  # noqa: BLE001
            problems.append(problem)

    reader = threading.Thread(target=read)
    reader.start()
    with mw.Checkpoints(tmp_path, keep=1) as checkpoints:
        step = 0
        while reader.is_alive():
            step += 1
            checkpoints.save(step, {"x": jnp.full(1 << 16, step)})
    assert problems == []
    assert seen == sorted(seen)


def test_a_save_that_fails_says_so_at_the_next_call(tmp_path, monkeypatch):
    checkpoints = mw.Checkpoints(tmp_path)
    checkpoints.save(1, {"x": jnp.ones(2)})
    checkpoints.wait()
    monkeypatch.setattr(
        checkpoints._manager,
        "save",
        lambda *args, **options: (_ for _ in ()).throw(OSError("no space left")),
    )
    with pytest.raises(CheckpointError, match=r"saving step 2 in .* no space left"):
        checkpoints.save(2, {"x": jnp.ones(2)})
    checkpoints.close()


def test_an_error_in_the_background_names_the_step_that_was_not_saved(
    tmp_path, monkeypatch
):
    def fail():
        monkeypatch.undo()  # Orbax raises an error once
        raise OSError("no space left")

    with mw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"x": jnp.ones(2)})
        monkeypatch.setattr(checkpoints._manager, "wait_until_finished", fail)
        with pytest.raises(CheckpointError, match=r"saving step 1 in .* no space left"):
            checkpoints.save(2, {"x": jnp.ones(2)})
        checkpoints.save(2, {"x": jnp.ones(2)})
    assert mw.Checkpoints(tmp_path, read_only=True).latest == 2


def test_a_directory_that_cannot_be_opened_is_left_to_others(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise OSError("input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(ocp, "CheckpointManager", fail)
        with pytest.raises(CheckpointError, match=r"cannot be opened: input/output"):
            mw.Checkpoints(tmp_path)
    mw.Checkpoints(tmp_path).close()


@pytest.mark.parametrize("broken", [0, 1])
def test_tasks_give_up_all_directories_even_if_one_fails(broken, tmp_path, monkeypatch):
    def fail():
        raise OSError("input/output error")

    tasks = CheckpointTasks()
    folders = [str(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        tasks.run(NEWEST, folder, {"retention": {}}, jax.devices(), [])
    opened = tasks._open[folders[broken]]
    monkeypatch.setattr(opened._manager, "close", fail)
    with pytest.raises(CheckpointError, match="input/output error"):
        tasks.close()
    for folder in folders:
        mw.Checkpoints(folder).close()


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(CheckpointError, match="is a file; wanted a directory"):
        mw.Checkpoints(path)
    with pytest.raises(CheckpointError):
        mw.Checkpoints(Path(path) / "below")


def test_fingerprints_do_not_depend_on_the_sharding():
    state = make_state(1)["params"]
    wanted = fingerprints(jax.tree.leaves(state))
    for name in ("two by four", "transposed", "two"):
        placed = put(state, shardings_on(name, state))
        assert fingerprints(jax.tree.leaves(placed)) == wanted


def test_a_fingerprint_sees_every_bit():
    words = np.arange(1000, dtype=np.uint32)
    flipped = [words.copy() for _ in range(32)]
    for bit, each in enumerate(flipped):
        each[bit * 31] ^= np.uint32(1 << bit)
    assert fingerprints([words])[0] not in fingerprints(flipped)


@pytest.mark.parametrize(
    "dtype",
    ["int4", "uint8", "float8_e4m3fn", "bfloat16", "complex64", "bool", "int16"],
)
def test_arrays_of_every_dtype_have_a_fingerprint(dtype):
    one, other = (jnp.arange(6).reshape(2, 3) % n for n in (2, 3))
    assert fingerprints([one.astype(dtype)]) != fingerprints([other.astype(dtype) * 0])
