"""The Python of zoo/README.md runs as it stands, on files such as it names."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from zoo import audio, text

README = Path(__file__).parents[2] / "zoo" / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.M | re.S)


def put_files(folder):
    """What the examples read: a text, two classes of pictures, a recording."""
    words = text.to_text(text.load_text()[:4000])
    (folder / "notes.txt").write_text(words, encoding="utf-8")
    rng = np.random.default_rng(0)
    for place in ("cats", "dogs"):
        (folder / "pictures" / place).mkdir(parents=True)
        for i in range(3):
            pixels = rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "pictures" / place / f"{i}.png")
    (folder / "recordings").mkdir()
    sine = np.sin(np.arange(8000) / 10)
    audio.write_wav(folder / "recordings" / "a.wav", sine, 8000)


@pytest.mark.slow
def test_the_examples_run(tmp_path, monkeypatch, capsys):
    put_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in BLOCKS:
        exec(compile(block, str(README), "exec"), names)
    said = capsys.readouterr().out
    assert "after" in said, "no plan was shown"
    assert len(said.splitlines()) > 10
    assert (tmp_path / "made.wav").stat().st_size > 2 * 256
    assert np.isfinite(float(names["loss"]))
