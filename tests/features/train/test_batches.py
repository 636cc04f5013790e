"""The order of examples depends on the seed and the weights alone; text and tokens."""

import numpy as np
import pytest

from meshwright.errors import RecipeError
from meshwright.features.train.data.batches import Batches
from meshwright.features.train.data.examples import (
    Mixture,
    open_mixture,
    open_source,
    split_held_out,
)
from meshwright.features.train.data.position import identity_of
from meshwright.features.train.recipes.recipe import DataPart, SourcePart

NUMBERS = Mixture({"": [{"n": np.int32(i)} for i in range(20)]}, {"": 1.0})


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
    source = open_source(SourcePart(text=(f"{tmp_path}/*.txt",)), 3)
    assert len(source) == 2
    assert bytes(source[1]["inputs"].astype(np.uint8)) == b"def"
    assert bytes(source[1]["targets"].astype(np.uint8)) == b"efg"
    mixture = Mixture({"": source}, {"": 1.0})
    assert Batches(mixture, 2, 0).shapes()["inputs"].shape == (2, 3)


def test_tokens_come_from_an_array_file_without_being_loaded(tmp_path):
    np.save(tmp_path / "t.npy", np.arange(100, dtype=np.uint16))
    source = open_source(SourcePart(tokens=str(tmp_path / "t.npy")), 10)
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
    source = open_source(SourcePart(tokens=str(path)), 5)
    assert len(source) == 3
    np.testing.assert_array_equal(source[2]["targets"], range(3, 8))
    with pytest.raises(RecipeError, match="record 0 has 6 tokens; wanted sequence"):
        open_source(SourcePart(tokens=str(path)), 6)[0]


def test_held_out_examples_are_the_last_ones():
    kept, held_out = split_held_out(NUMBERS, 0.25)
    assert [each["n"] for each in held_out.parts[""]] == list(range(15, 20))
    assert len(kept.parts[""]) == 15


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
        open_source(SourcePart(**part), 4)


def test_tokens_that_are_no_row_of_numbers_are_refused(tmp_path):
    np.save(tmp_path / "t.npy", np.ones((3, 3)))
    with pytest.raises(RecipeError, match=r"float64\[3, 3\]; wanted one row"):
        open_source(SourcePart(tokens=str(tmp_path / "t.npy")), 2)


def test_a_text_that_is_too_short_has_no_example(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"ab")
    with pytest.raises(RecipeError, match="shorter than sequence"):
        open_source(SourcePart(text=(str(tmp_path / "a.txt"),)), 2)


# -- mixtures ----------------------------------------------------------------------------


def mixed(seed=0, batch=4, **weights):
    sizes = {"a": 10, "b": 7, "c": 3}
    parts = {
        name: [{"n": np.int32(100 * i + j)} for j in range(sizes[name])]
        for i, name in enumerate(weights)
    }
    return Batches(Mixture(parts, weights), batch, seed)


def test_sources_are_mixed_by_weight_and_none_repeats_an_example_before_its_epoch_ends():
    read = numbers(mixed(a=5, b=3, c=2), 100)
    assert [sum(read // 100 == i) for i in range(3)] == [200, 120, 80]
    for i, size in enumerate((10, 7, 3)):
        own = read[read // 100 == i] % 100
        epochs = own[: len(own) // size * size].reshape(-1, size)
        assert (np.sort(epochs, axis=1) == np.arange(size)).all()
        assert len(np.unique(epochs, axis=0)) > 1


def test_a_mixture_goes_on_at_any_place_and_depends_on_seed_and_weights():
    batches = mixed(a=0.5, b=0.3)
    whole = numbers(batches, 9)
    np.testing.assert_array_equal(whole[20:], numbers(batches, 4, start=5))
    assert list(whole) != list(numbers(mixed(seed=1, a=0.5, b=0.3), 9))
    assert list(whole) != list(numbers(mixed(a=0.3, b=0.5), 9))


def test_a_part_of_each_source_of_a_mixture_is_held_out(tmp_path):
    (tmp_path / "a.txt").write_bytes(bytes(41))
    np.save(tmp_path / "b.npy", np.ones(81, int))
    sources = {
        "a": SourcePart(1.0, text=(str(tmp_path / "a.txt"),)),
        "b": SourcePart(3.0, tokens=str(tmp_path / "b.npy")),
    }
    data = DataPart(4, mixture=sources, sequence=4)
    kept, held_out = split_held_out(open_mixture(data), 0.1)
    assert {name: len(each) for name, each in kept.parts.items()} == {"a": 9, "b": 18}
    assert {name: len(each) for name, each in held_out.parts.items()} == {
        "a": 1,
        "b": 2,
    }
    batch = Batches(held_out, 8, 0).read(0)["inputs"]
    assert batch.sum(axis=1).tolist().count(4) == 6


# -- identity ----------------------------------------------------------------------------


def identity(data):
    mixture = open_mixture(data)
    return identity_of(mixture, Batches(mixture, data.batch, data.seed))


def test_the_identity_of_data_changes_with_its_size_content_and_order(tmp_path):
    text, tokens = tmp_path / "a.txt", tmp_path / "t.npy"
    text.write_bytes(bytes(range(100)))
    np.save(tokens, np.arange(1000))
    of_text = DataPart(2, text=(str(text),), sequence=4)
    of_tokens = DataPart(2, tokens=str(tokens), sequence=4)
    first, second = identity(of_text), identity(of_tokens)
    assert first["records"] == {"": 24}
    assert identity(of_text) == first
    assert identity(DataPart(2, text=(str(text),), sequence=4, seed=1)) != first
    text.write_bytes(bytes(range(99)) + b"!")
    assert identity(of_text)["records"] == first["records"]
    assert identity(of_text)["index"] != first["index"]
    np.save(tokens, np.arange(1000) + 1)
    assert identity(of_tokens)["index"] != second["index"]
