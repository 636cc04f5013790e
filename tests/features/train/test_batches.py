"""The order of examples depends on the seed alone; files of text and tokens."""

import numpy as np
import pytest

from meshwright.errors import RecipeError
from meshwright.features.train.data.batches import Batches
from meshwright.features.train.data.examples import open_source, split_held_out
from meshwright.features.train.recipes.recipe import DataPart

NUMBERS = [{"n": np.int32(i)} for i in range(20)]


def numbers(batches, count, start=0):
    ahead = batches.ahead(start)
    return np.concatenate([next(ahead)["n"] for _ in range(count)])


def test_every_example_comes_once_in_each_epoch_in_a_new_order():
    read = numbers(Batches(NUMBERS, 4, seed=0), 10)
    first, second = read[:20], read[20:]
    assert sorted(first) == sorted(second) == list(range(20))
    assert list(first) != list(second)
    assert list(first) != list(range(20))


def test_the_order_goes_on_at_any_place_and_depends_on_the_seed():
    batches = Batches(NUMBERS, 3, seed=1)
    np.testing.assert_array_equal(
        numbers(batches, 9)[15:], numbers(batches, 4, start=5)
    )
    assert list(numbers(batches, 6)) != list(numbers(Batches(NUMBERS, 3, seed=2), 6))


@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_the_rows_of_all_hosts_are_the_batch(hosts):
    batches = Batches(NUMBERS, 8, seed=3)
    size = 8 // hosts
    parts = [
        next(batches.ahead(7, range(host * size, (host + 1) * size)))["n"]
        for host in range(hosts)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), batches.read(7)["n"])


def test_text_is_cut_into_windows_with_targets_one_later(tmp_path):
    (tmp_path / "b.txt").write_bytes(b"defgh")
    (tmp_path / "a.txt").write_bytes(b"abc")
    source = open_source(DataPart(2, text=(f"{tmp_path}/*.txt",), sequence=3))
    assert len(source) == 2
    assert bytes(source[1]["inputs"].astype(np.uint8)) == b"def"
    assert bytes(source[1]["targets"].astype(np.uint8)) == b"efg"
    assert Batches(source, 2, 0).shapes()["inputs"].shape == (2, 3)


def test_tokens_come_from_an_array_file_without_being_loaded(tmp_path):
    np.save(tmp_path / "t.npy", np.arange(100, dtype=np.uint16))
    source = open_source(DataPart(1, tokens=str(tmp_path / "t.npy"), sequence=10))
    assert len(source) == 9
    np.testing.assert_array_equal(source[8]["targets"], range(81, 91))
    assert source[8]["inputs"].dtype == np.int32


def test_tokens_come_from_the_records_of_an_array_record(tmp_path):
    array_record = pytest.importorskip("array_record.python.array_record_module")
    path = tmp_path / "t.array_record"
    writer = array_record.ArrayRecordWriter(str(path), "group_size:1")
    for start in range(3):
        writer.write(np.arange(start, start + 6, dtype=np.int32).tobytes())
    writer.close()
    source = open_source(DataPart(1, tokens=str(path), sequence=5))
    assert len(source) == 3
    np.testing.assert_array_equal(source[2]["targets"], range(3, 8))
    with pytest.raises(RecipeError, match="record 0 has 6 tokens; wanted sequence"):
        open_source(DataPart(1, tokens=str(path), sequence=6))[0]


def test_held_out_examples_are_the_last_ones():
    kept, held_out = split_held_out(NUMBERS, 0.25)
    assert [each["n"] for each in held_out] == list(range(15, 20))
    assert len(kept) == 15


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"text": ("none.txt",)}, "there is no file none.txt"),
        ({"tokens": "none.npy"}, "there is no file none.npy"),
        ({"tokens": __file__}, "wanted .npy or .array_record"),
    ],
)
def test_a_missing_file_of_examples_is_named(part, words):
    with pytest.raises(RecipeError, match=words):
        open_source(DataPart(1, sequence=4, **part))


def test_tokens_that_are_no_row_of_numbers_are_refused(tmp_path):
    np.save(tmp_path / "t.npy", np.ones((3, 3)))
    with pytest.raises(RecipeError, match=r"float64\[3, 3\]; wanted one row"):
        open_source(DataPart(1, tokens=str(tmp_path / "t.npy"), sequence=2))


def test_a_text_that_is_too_short_has_no_example(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"ab")
    with pytest.raises(RecipeError, match="shorter than sequence"):
        open_source(DataPart(1, text=(str(tmp_path / "a.txt"),), sequence=2))
