import itertools

import numpy as np
import pytest

from zoo.text import batches, load_text, to_text


def test_targets_are_the_inputs_one_position_later():
    batch = next(batches(np.arange(100, dtype=np.uint8), 4, 8, seed=0))
    np.testing.assert_array_equal(batch["inputs"] + 1, batch["targets"])
    assert batch["inputs"].dtype == np.int32


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


def test_no_window_comes_twice_before_all_have_come_once():
    text = np.arange(13, dtype=np.uint8)
    drawn = itertools.islice(batches(text, 2, 3, seed=0), 10)
    starts = [int(row[0]) for batch in drawn for row in batch["inputs"]]
    assert sorted(starts[:10]) == sorted(starts[10:]) == list(range(10))
    assert starts[:10] != starts[10:]


def test_files_of_the_user_are_read_one_after_another(tmp_path):
    (tmp_path / "a").write_text("one ")
    (tmp_path / "b").write_text("two")
    assert to_text(load_text(tmp_path / "a", tmp_path / "b")) == "one two"


def test_a_folder_is_read_in_the_order_of_names_with_what_lies_inside(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "b.txt").write_text("2")
    (tmp_path / "a.txt").write_text("1")
    (tmp_path / "inner" / "c.txt").write_text("3")
    (tmp_path / "readme.md").write_text("none of it")
    assert to_text(load_text(tmp_path)) == "123"


def test_a_pattern_is_read_in_the_order_of_names(tmp_path):
    for name in ("b.md", "a.md", "c.txt"):
        (tmp_path / name).write_text(name[0])
    assert to_text(load_text(f"{tmp_path}/*.md")) == "ab"


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path):
    (tmp_path / "a[1].txt").write_text("itself")
    assert to_text(load_text(tmp_path / "a[1].txt")) == "itself"


def test_the_text_that_comes_along_is_the_constitution():
    assert to_text(load_text()).startswith("We the People of the United States")


def test_what_is_not_utf_8_is_marked():
    assert to_text(np.array([65, 255, 66])) == "A\N{REPLACEMENT CHARACTER}B"


def test_a_window_without_tokens_is_refused():
    with pytest.raises(ValueError, match="a window has a token at least, not 0"):
        batches(load_text(), batch=4, sequence=0, seed=0)


@pytest.mark.parametrize("length", [0, 3, 8])
def test_a_text_shorter_than_a_window_is_refused(length):
    with pytest.raises(ValueError, match=f"text of {length} bytes has no window of 8"):
        next(batches(np.zeros(length, np.uint8), 1, 8, seed=0))


def test_a_missing_file_is_refused_by_its_name(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file or folder .*absent\.txt"):
        load_text(tmp_path / "absent.txt")


def test_a_pattern_without_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no file matches the pattern .*\*\.txt"):
        load_text(f"{tmp_path}/*.txt")


def test_a_folder_without_text_is_refused(tmp_path):
    (tmp_path / "notes.md").write_text("text")
    with pytest.raises(
        ValueError, match=r"holds no text; wanted files ending in \.txt"
    ):
        load_text(tmp_path)


def test_empty_files_are_refused(tmp_path):
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ValueError, match=r"no text in .*empty\.txt: 0 bytes"):
        load_text(tmp_path)
