"""One law from evaluated models: the published family for GPUs, and a law with noise."""

import json
from itertools import product

import numpy as np
import pytest

from meshwright.cli import main
from meshwright.cli.arguments.target import find_target
from meshwright.codesign import nas
from meshwright.errors import NasError
from meshwright.features.codesign.nas.families.published import (
    BASES,
    PUBLISHED,
    published_accuracy,
)
from meshwright.features.codesign.nas.families.scaling import edges_of
from zoo.efficientnet_sizes import GPU

WANTED = {"depth": 1.28, "width": 1.15, "resolution": 1.07}


def published():
    """X-GPU B2 to B7 (Li et al., CVPR 2021), each twice as slow as the one before."""
    return [
        nas.Point(depth, width, size, 80 + i, 5.0 * 2**i)
        for i, (width, depth, size) in enumerate(GPU[2:])
    ]


def test_the_published_family_for_gpus_has_one_law():
    targets = [point.latency_ms for point in published()]
    family = nas.scale_family(published(), targets)
    for name, value in WANTED.items():
        assert getattr(family.law, name) == pytest.approx(value, rel=0.02), name
    for member, target in zip(family.members, targets, strict=True):
        assert member.latency_ms == pytest.approx(target, rel=0.01)


@pytest.mark.parametrize("law", [(1.28, 1.148, 1.067), (1.2, 1.1, 1.15)])
@pytest.mark.parametrize("seed", [0, 2])
def test_a_law_with_one_per_cent_of_noise_is_recovered(law, seed):
    """Errors fall with powers of the scales, such that the best models lie on the law."""
    noise, points = np.random.default_rng(seed), []
    powers, costs = 0.3 / np.log(law), np.array([1, 2, 2])
    grid = (np.geomspace(1, end, 7) for end in (4, 2.2, 1.6))
    for scales in map(np.array, product(*grid)):
        error = 0.08 + 0.03 * (costs / powers * scales**-powers).sum()
        accuracy, time = np.array([1 - error, 5 * np.prod(scales**costs)]) * (
            1 + 0.01 * noise.normal(size=2)
        )
        depth, width, size = scales
        points.append(nas.Point(depth, width, 224 * size, accuracy, time))
    found = nas.scale_family(points, [8, 12, 18, 27, 40], base=224).law
    doubling = np.log(2) / (np.log(law) @ costs)
    wanted = np.power(law, doubling)
    assert (found.depth, found.width, found.resolution) == pytest.approx(
        wanted, rel=0.05
    )


def test_targets_that_cannot_be_met_are_refused():
    with pytest.raises(
        NasError, match="no model takes 1 ms or less; the fastest takes 5"
    ):
        nas.scale_family(published(), [1, 2])
    with pytest.raises(NasError, match="two latency targets or more"):
        nas.scale_family(published(), [5])
    with pytest.raises(NasError, match="a law needs 2 models that differ"):
        nas.scale_family(published(), [5, 6])
    with pytest.raises(NasError, match="scales and latency are above 0"):
        nas.Point(0, 1, 224, 80, 1)


def line(column: int, power: int, values=(1, 1.5, 2, 3, 4)):
    """Models that differ in one scale, whose latency is a power of it."""
    rows = []
    for value in values:
        scales = [1.0, 1.0, 224.0]
        scales[column] *= value
        rows.append(nas.Point(*scales, 70 + value, value**power))
    return rows


@pytest.mark.parametrize(("column", "power"), [(0, 1), (1, 2), (2, 2)])
def test_models_that_differ_in_one_scale_keep_their_targets(column, power):
    """Also a target beyond all of them, by the same power."""
    family = nas.scale_family(line(column, power), [2, 4, 40])
    for member, target in zip(family.members, (2, 4, 40), strict=True):
        scales = (member.depth, member.width, member.resolution / 224)
        assert scales[column] == pytest.approx(target ** (1 / power), rel=0.01)
        assert member.latency_ms == pytest.approx(target, rel=0.002)


def test_one_resolution_alone_still_gives_a_surface():
    """Of a grid of depth and width; the best width is half of the depth."""
    points = [
        nas.Point(d, w, 224, 80 - 5 / d - 5 / w, d * w * w)
        for d, w in product(np.geomspace(1, 8, 5), np.geomspace(1, 4, 5))
    ]
    targets = (8, 16, 32)
    winners = nas.scale_family(points, targets).winners
    for winner, target in zip(winners, targets, strict=True):
        assert winner.depth / winner.width == pytest.approx(2, rel=0.1)
        assert winner.latency_ms == pytest.approx(target, rel=0.05)
        assert winner.resolution == pytest.approx(224)


def test_a_law_that_does_not_come_down_to_a_target_says_so():
    with pytest.raises(NasError, match=r"no model of the law takes 1 ms.* takes 7 ms"):
        nas.scale_family(line(0, 1), [1, 2, 4], lambda *scales: 7.0)


def test_best_models_at_the_end_of_a_scale_are_told():
    points = [
        nas.Point(depth, width, 8, 1 - 1 / width - 0.1 / depth, width**0.1 * depth)
        for depth, width in product((1, 2, 4), repeat=2)
    ]
    winners = nas.scale_family(points, [1.2, 2.4, 3], base=8).winners
    (told,) = edges_of(points, winners)
    assert told.startswith("3 of the 3 best models have the largest width that was tr")
    assert "that was tried, 4; a larger one" in told


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["nas", "scale", *arguments])
    return ended.value.code


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "points.csv"
    rows = [
        f"{p.depth},{p.width},{p.resolution},{p.accuracy},{p.latency_ms}"
        for p in published()
    ]
    path.write_text("depth,width,resolution,accuracy,latency_ms\n" + "\n".join(rows))
    return path


def test_the_command_fits_a_table(table, tmp_path, capsys):
    out = tmp_path / "family"
    assert (
        run("--points", str(table), "--targets-ms", "5,20,160", "--out", str(out)) == 0
    )
    assert "law: depth 1.3" in capsys.readouterr().out
    family = json.loads((out / "family.json").read_text())
    assert [path.name for path in out.iterdir()] == ["family.json"]
    assert [m["target_ms"] for m in family["members"]] == [5, 20, 160]


@pytest.fixture
def model(tmp_path):
    """A file with a target that takes scales, and a function of its accuracy."""
    path = tmp_path / "model.py"
    path.write_text(
        "import jax, jax.numpy as jnp\n"
        "schedules = {'dp': []}\n"
        "def accuracy(depth, width, size):\n"
        "    return 1 - 0.2 / depth - 0.2 / width - 0.1 / size\n"
        "def target(depth=1.0, width=1.0, size=8):\n"
        "    wide = int(512 * width)\n"
        "    def fn(w, x):\n"
        "        for _ in range(round(4 * depth)):\n"
        "            x = jnp.tanh(x @ w)\n"
        "        return x\n"
        "    shape = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)\n"
        "    return fn, (shape(wide, wide), shape(64 * size * size, wide))\n"
    )
    return path


GRID = ["--base", "8", "--grid", "1,2,3", "--targets-ms", "1.5,3,8"]


def test_the_command_prices_a_grid_of_a_target(model, capsys):
    given = ["--machine", "v100", "--accuracy", f"{model}:accuracy", *GRID, "--json"]
    assert run(f"{model}:target", *given) == 0
    found = capsys.readouterr()
    members = json.loads(found.out)["members"]
    assert members[0]["latency_ms"] < members[1]["latency_ms"]
    assert "a proxy" not in found.err


def test_without_an_accuracy_the_published_one_counts_and_members_are_targets(
    model, tmp_path, capsys
):
    out = tmp_path / "family"
    given = ["--machine", "v100", *GRID, "--out", str(out)]
    assert run(f"{model}:target", *given) == 0
    assert "a proxy fitted to the published ImageNet" in capsys.readouterr().err
    members = json.loads((out / "family.json").read_text())["members"]
    for member in members:
        name = {1.5: "1_5", 3: "3", 8: "8"}[member["target_ms"]]
        path = out / f"model_{name}ms.py"
        found = find_target(str(path))
        assert list(found.schedules) == ["dp"]
        seconds = nas.latency(*found.made, "v100").seconds
        assert 1e3 * seconds == pytest.approx(member["latency_ms"], rel=0.1)
        assert member["latency_ms"] <= 1.001 * member["target_ms"]


def test_the_proxy_agrees_with_what_is_published():
    for depth, width, size, accuracy in PUBLISHED:
        found = published_accuracy(depth, width, size / 224)
        assert found == pytest.approx(accuracy, abs=0.6)
    # For equal operations EfficientNet's law is the best: any other split loses.
    phi = 3.0
    best = published_accuracy(*(base**phi for base in BASES))
    for more, less, rate in ((0, 1, 0.5), (1, 2, 1.0), (2, 0, 2.0)):
        scales = [base**phi for base in BASES]
        scales[more] *= 1.1
        scales[less] /= 1.1**rate
        assert published_accuracy(*scales) < best


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--targets-ms", "5,10"), "either a TARGET with --machine, or --points"),
        (("x.py:t", "--targets-ms", "5,10"), "with TARGET, --machine is needed"),
        (("--points", "none.csv", "--targets-ms", "5,10"), "cannot read a table"),
        (("--points", "none.csv", "--targets-ms", "5,x"), "wanted numbers such as 5"),
        (
            ("--points", "x.csv", "--targets-ms", "5,9", "--machine", "v100"),
            "--machine is for a TARGET; with --points it changes nothing",
        ),
        (
            ("--points", "x.csv", "--targets-ms", "5,9", "--grid", "1,2"),
            "--grid is for a TARGET",
        ),
        (
            ("--points", "x.csv", "--targets-ms", "5,9", "--base", "-3"),
            "the base resolution is -3.0; wanted a number above 0",
        ),
    ],
)
def test_misuse_is_one_sentence_and_status_2(given, words, capsys):
    assert run(*given) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--machine", "v100,h100"), "--machine is 'v100,h100'; wanted one"),
        (("--machine", "v100", "--grid", "1,-2"), "wanted multipliers above 0"),
        (("--machine", "v100", "--grid", "1,nan"), "wanted multipliers above 0"),
        (("--machine", "v100", "--grid", ""), "wanted multipliers above 0"),
        (
            ("--machine", "v100", "--targets-ms", "900,999"),
            "is the best for all targets; the models tried take",
        ),
        (
            ("--machine", "v100", "--accuracy", "{model}:nothing"),
            "(1.0, 1.0, 8.0) is None; wanted a number",
        ),
    ],
)
def test_misuse_with_a_target_is_one_sentence(given, words, model, capsys):
    model.write_text(model.read_text() + "def nothing(*scales):\n    pass\n")
    given = [each.format(model=model) for each in given]
    assert run(f"{model}:target", *GRID, *given) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1, 1, 224, high, 3", "line 3: accuracy is 'high'; wanted a number"),
        ("1, 1, 224", "line 3: accuracy is ''; wanted a number"),
        ("1, -1, 224, 70, 3", "line 3: scales and latency are above 0"),
    ],
)
def test_faulty_rows_of_a_table_are_named_by_line(row, words, tmp_path, capsys):
    path = tmp_path / "points.csv"
    path.write_text(
        f"depth, width, resolution, accuracy, latency_ms\n1,1,224,70,2\n{row}\n"
    )
    assert run("--points", str(path), "--targets-ms", "5,10") == 2
    assert words in capsys.readouterr().err


def test_a_table_without_a_column_says_which(tmp_path, capsys):
    path = tmp_path / "points.csv"
    path.write_text("depth,width,accuracy,latency_ms\n1,1,2,3\n")
    assert run("--points", str(path), "--targets-ms", "5,10") == 2
    assert "lacks the column resolution; it has depth, width" in capsys.readouterr().err
