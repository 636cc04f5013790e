import itertools

import numpy as np
import pytest

from zoo.text import batches, load_text, to_text


def test_targets_are_the_inputs_one_position_later():
    batch = next(batches(np.arange(100, dtype=np.uint8), 4, 8, seed=0))
    np.testing.assert_array_equal(batch["inputs"] + 1, batch["targets"])


def test_the_same_seed_gives_the_same_batches_and_another_gives_others():
    text = load_text()

    def first(seed):
        return [b["inputs"] for b in itertools.islice(batches(text, 2, 16, seed), 3)]

    np.testing.assert_array_equal(first(1), first(1))
    assert not np.array_equal(first(1), first(2))


def test_every_window_of_a_text_can_be_drawn():
    text = np.arange(6, dtype=np.uint8)
    drawn = next(batches(text, 200, 3, seed=0))["inputs"]
    assert {int(row[0]) for row in drawn} == {0, 1, 2}


def test_files_of_the_user_are_read_one_after_another(tmp_path):
    (tmp_path / "a").write_text("one ")
    (tmp_path / "b").write_text("two")
    assert to_text(load_text(tmp_path / "a", tmp_path / "b")) == "one two"


def test_the_text_that_comes_along_is_the_constitution():
    assert to_text(load_text()).startswith("We the People of the United States")


def test_a_text_shorter_than_a_window_is_refused():
    with pytest.raises(ValueError, match="a text of 8 bytes has no window of 8"):
        next(batches(np.zeros(8, np.uint8), 1, 8, seed=0))
