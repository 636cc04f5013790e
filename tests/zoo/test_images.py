"""Pictures from folders, and pictures made here."""

from itertools import islice

import numpy as np
import pytest
from PIL import Image

from zoo.images import batches, list_pictures, made_batches


@pytest.fixture
def folder(tmp_path):
    """Two classes of plain pictures, of several shapes and formats."""
    for name, colour in (("cats", (255, 0, 0)), ("dogs", (0, 0, 255))):
        (tmp_path / name).mkdir()
        Image.new("RGB", (20, 12), colour).save(tmp_path / name / "a.png")
        Image.new("RGB", (9, 30), colour).save(tmp_path / name / "b.JPG", "jpeg")
    (tmp_path / "cats" / "notes.txt").write_text("no picture")
    return tmp_path


def test_a_folder_of_classes_comes_as_batches(folder):
    for batch in islice(batches(folder, 4, 16, seed=0), 3):
        assert batch["image"].shape == (4, 16, 16, 3)
        assert batch["image"].dtype == np.float32
        assert sorted(batch["label"]) == [0, 0, 1, 1]
        red = batch["image"][..., 0].mean(axis=(1, 2))
        np.testing.assert_allclose(red, np.where(batch["label"] == 0, 1, -1), atol=0.02)


def test_the_same_seed_gives_the_same_batches(folder):
    one, same, other = (
        [b["label"].tolist() for b in islice(batches(folder, 2, 8, seed), 6)]
        for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other


def test_a_missing_or_empty_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere"):
        list_pictures(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"holds no pictures; wanted .*<class>"):
        list_pictures(tmp_path)


def test_a_broken_picture_is_named(folder):
    (folder / "dogs" / "c.png").write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"c\.png is no picture that can be read"):
        list(islice(batches(folder, 5, 8, seed=0), 1))


def test_made_pictures_lie_in_range_and_differ_by_class():
    batch = next(made_batches(64, 16, 16, seed=0))
    assert batch["image"].shape == (64, 16, 16, 3)
    assert -1 <= batch["image"].min() <= batch["image"].max() <= 1
    assert set(batch["label"]) <= set(range(16))
    red = batch["image"][batch["label"] < 4]
    assert (red[..., 0].max(axis=(1, 2)) == 1).all()


def test_made_pictures_are_the_same_for_the_same_seed():
    one, same, other = (next(made_batches(8, 8, 4, seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one["image"], same["image"])
    assert not np.array_equal(one["image"], other["image"])


def test_more_classes_than_there_are_is_an_error():
    with pytest.raises(ValueError, match="1 to 16 classes; got 17"):
        next(made_batches(1, 8, 17, seed=0))
