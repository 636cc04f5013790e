"""Traces from files of all forms, and what is refused."""

import gzip
import json
import lzma
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from meshwright.errors import PolicyError
from meshwright.policies import read_trace, simulate, trace


def test_forms_of_files(tmp_path: Path) -> None:
    rows = "time,id,size,quality\n0,a,10,1\n1,b,20,2\n1,a,10,1\n"
    (tmp_path / "t.csv").write_text(rows)
    named = read_trace(tmp_path / "t.csv")
    assert named.ids.tolist() == [0, 1, 0]
    assert named.sizes.tolist() == [10, 20, 10]
    assert named.tags.tolist() == [[1], [2], [1]]
    (tmp_path / "plain.txt").write_bytes(b"0 7 10\n1 9 20\n2 7 10\n")
    (tmp_path / "words.txt").write_text("0 page7 10\n1 page9 20\n2 page7 10\n")
    (tmp_path / "t.gz").write_bytes(gzip.compress(b"*\n7\n9\n7\n"))
    (tmp_path / "t.xz").write_bytes(lzma.compress(np.array([7, 9, 7], ">i4").tobytes()))
    (tmp_path / "t.bin").write_bytes(np.array([7, 9, 7], "<u4").tobytes())
    for read in (
        read_trace(tmp_path / "plain.txt"),
        read_trace(tmp_path / "words.txt"),
        read_trace(tmp_path / "t.gz"),
        read_trace(tmp_path / "t.xz", form="int32-big"),
        read_trace(tmp_path / "t.bin", form="uint32-little"),
    ):
        assert read.ids.tolist() == [0, 1, 0]


BAD = {
    "0 1 5\n1 2 -3\n": "request 2 of t.txt has size -3",
    "0 1 0\n": "request 1 of t.txt has size 0",
    "0 1 1.5\n": "no whole numbers",
    "0 1 nan\n": "no whole numbers",
    "5 1 1\n4 1 1\n": "request 2 of t.txt is earlier",
    "0 1 5\n1 1 6\n": "gives object 1 the size 6, which was 5",
    "": "has no requests",
    "* only\n": "has no requests",
    "time,size\n0,1\n": "wanted id",
    "1 2\n": "two columns",
    "0 1 x\n": "cannot be read",
    "0 1 1\n1 1\n": "cannot be read",
}


@pytest.mark.parametrize("text", BAD)
def test_refused_files(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(PolicyError, match=BAD[text]):
        read_trace(tmp_path / "t.txt")


def test_refused_arguments(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "t.gz").write_bytes(gzip.compress(b"1\n2\n")[:-9])
    for wrong, words in (
        (lambda: read_trace(tmp_path / "t"), "is not text"),
        (lambda: read_trace(tmp_path / "t", form="int32-big"), "no multiple of 4"),
        (lambda: read_trace(tmp_path / "t", form="int32"), "did you mean"),
        (lambda: read_trace(tmp_path / "t.gz"), "cannot read"),
        (lambda: read_trace(tmp_path / "none"), "cannot read"),
        (lambda: trace([]), "no requests"),
        (lambda: trace([1, 2], [3]), "2 ids and 1 sizes"),
        (lambda: simulate(trace([1]), 0), "stores nothing"),
        (lambda: simulate(trace([1]), 1, "lruu"), "did you mean 'lru'"),
    ):
        with pytest.raises(PolicyError, match=words):
            wrong()


def test_pairs_of_id_and_size_may_be_objects() -> None:
    separate = trace([1, 1, 1], [5, 6, 5], changed="separate")
    assert separate.ids.tolist() == [0, 1, 0]
    assert separate.working_set == 11


def test_command(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("0,1,10\n1,2,10\n2,1,10\n3,3,10\n4,1,10\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "meshwright", "policies", "simulate"]
        return subprocess.run(
            [*command, str(tmp_path / "t.csv"), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    done = run("--cache", "67%,20B", "--policies", "lru,belady", "--json")
    result = json.loads(done.stdout)
    assert [run["misses"] for run in result["runs"]] == [3, 3, 3, 3]
    assert result["working_set_bytes"] == 30
    page = tmp_path / "page.html"
    assert run("--cache", "67%", "--policies", "lru", "--out", str(page)).stdout
    assert "<svg" in page.read_text()
    for wrong in (
        ("--out", "page.txt"),
        ("--cache", "0%"),
        ("--cache", "x"),
        ("--policies", "lrv"),
    ):
        refused = run(*wrong)
        assert refused.returncode == 2
        assert refused.stderr.startswith("error: ")
