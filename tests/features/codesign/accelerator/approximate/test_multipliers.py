"""Approximate multipliers: error statistics, tables of users, and exact sums."""

import math

import numpy as np
import pytest

from meshwright.codesign import accelerator as acc
from meshwright.errors import AcceleratorError


def numbers(signed):
    return range(-128, 128) if signed else range(256)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("name", ["truncated-5", "broken-6-2", "mitchell"])
def test_error_statistics_are_those_of_a_loop_over_all_pairs(name, signed):
    made = acc.LIBRARY[name](signed)
    errors, relative = [], []
    for a, row in zip(numbers(signed), made.table.tolist(), strict=True):
        for b, product in zip(numbers(signed), row, strict=True):
            errors.append(product - a * b)
            relative.append(abs(product - a * b) / max(1, abs(a * b)))
    pairs = 65536
    assert made.mae == sum(map(abs, errors)) / pairs
    assert made.wce == max(map(abs, errors))
    assert made.error_probability == sum(e != 0 for e in errors) / pairs
    assert made.mre == pytest.approx(math.fsum(relative) / pairs, rel=1e-12)
    assert made.mse == sum(e * e for e in errors) / pairs
    assert made.bias == sum(errors) / pairs
    assert made.wcre == max(relative)


def test_library_by_its_definitions():
    for signed in (True, False):
        assert acc.exact(signed).wce == 0
        assert acc.broken_array(0, 0, signed).wce == 0
        assert acc.mitchell(signed).wcre == 1 / 9  # Mitchell (1962)
    # without the columns below 2^4, 15 x 15 loses 1 + 2 * 2 + 3 * 4 + 4 * 8
    assert acc.broken_array(4, signed=False).table[15, 15] == 225 - 49
    assert acc.truncated(4, signed=False).table[0, 0] == 16
    # without rows, the second factor loses its low bits
    assert acc.broken_array(0, 2).table[128 - 7, 128 + 7] == -7 * 4
    shares = [acc.broken_array(n).figures.area for n in range(9)]
    assert shares[0] == pytest.approx(1.0, abs=0.01)
    assert shares == sorted(shares, reverse=True)
    with pytest.raises(AcceleratorError, match="columns is 9; wanted 0 to 7"):
        acc.truncated(9)


def test_tables_are_read_by_codes_or_by_values():
    values = np.arange(-128, 128)
    by_value = np.outer(values, values)
    by_code = np.roll(by_value, (128, 128), (0, 1))
    for table in (by_value, by_code, by_value.astype(float)):
        assert acc.Multiplier.from_table(table).wce == 0
    assert not acc.Multiplier.from_table(np.outer(range(256), range(256))).signed


@pytest.mark.parametrize("signed", [True, False])
def test_sums_are_those_of_a_loop_in_plain_python(signed):
    rng = np.random.default_rng(0)
    dtype = np.int8 if signed else np.uint8
    ends = (-128, 128) if signed else (0, 256)
    for name in ("truncated-6", "broken-7-3", "mitchell"):
        made = acc.LIBRARY[name](signed)
        table, least = made.table.tolist(), ends[0]
        x, w = (
            rng.integers(*ends, shape).astype(dtype) for shape in ((60, 7), (7, 60))
        )
        wanted = [
            [
                sum(table[a - least][b - least] for a, b in zip(r, c, strict=True))
                for c in w.T.tolist()
            ]
            for r in x.tolist()
        ]
        assert acc.approximate_dot(x, w, made).tolist() == wanted  # 3,600 sums
        assert acc.approximate_dot(x[0], w[:, 0], made) == wanted[0][0]
    with pytest.raises(AcceleratorError, match="wanted"):
        acc.approximate_dot(x.astype(np.int32), w, made)
    with pytest.raises(AcceleratorError, match=r"is no acc\.Multiplier"):
        acc.approximate_dot(x, w, "mitchell")
    empty = acc.approximate_dot(np.zeros((2, 0), dtype), np.zeros((0, 3), dtype), made)
    assert empty.tolist() == [[0, 0, 0], [0, 0, 0]]
    with pytest.raises(AcceleratorError, match=r"wanted x \[..., K\]"):
        acc.approximate_dot(x, w[1:], made)


def test_a_folder_of_tables(tmp_path):
    for made in (acc.mitchell(), acc.exact()):
        acc.write_multiplier(tmp_path, made)
    scaled = (tmp_path / "exact.toml").read_text().replace("1.0", "2.0")
    (tmp_path / "exact.toml").write_text(scaled)
    (tmp_path / "._exact.npy").write_bytes(b"what another system keeps beside a file")
    right, other = acc.read_multipliers(tmp_path)
    assert (right.name, right.figures) == ("exact", acc.MultiplierFigures())
    assert other.figures.power == acc.mitchell().figures.power / 2
    assert (other.products == acc.mitchell().products).all()


@pytest.mark.parametrize(
    ("table", "about", "words"),
    [
        (np.zeros((255, 256)), None, r"bad.npy: .* \(255, 256\); wanted \(256, 256\)"),
        (np.full((256, 256), 70000), None, "70000 is no product of unsigned"),
        (np.full((256, 256), -40000), None, "-40000 is no product of signed"),
        (np.full((256, 256), 0.5), None, "not whole"),
        (np.zeros((256, 256), "U1"), None, "wanted integers"),
        (np.zeros((256, 256)), "power = 1\narea = 1", "lacks delay"),
        (
            np.zeros((256, 256)),
            "power = -1\narea = 1\ndelay = 1",
            "power is -1; wanted",
        ),
        (np.zeros((256, 256)), "power = ", "no readable TOML"),
        (np.zeros((256, 256)), "", "no bad.toml beside it"),
        (None, "power = 1\narea = 1\ndelay = 1", "no table bad.npy beside it"),
    ],
)
def test_faulty_tables_are_refused(tmp_path, table, about, words):
    if table is not None:
        np.save(tmp_path / "bad.npy", table)
    if about != "":
        text = about or "power = 1\narea = 1\ndelay = 1"
        (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(AcceleratorError, match=words):
        acc.read_multipliers(tmp_path)
