"""`meshwright machines`, and plans compared on several of them."""

import json
import math

import pytest

from meshwright.cli.plans.comparison import find_run_length
from meshwright.errors import TargetError

PLAN = ["plan", "shapes.py:tiny", "--mesh", "batch=4,model=2", "--schedule", "bp+mp"]

SHAPES = """
from functools import partial
import jax, jax.numpy as jnp
from zoo.gpt import TINY, init, schedules, train_step

def tiny():
    state = jax.eval_shape(partial(init, TINY), jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((TINY.batch, TINY.sequence), jnp.int32)
    return train_step, (state, {"inputs": tokens, "targets": tokens})
"""
"""The tiny GPT without weights, which take as long to draw as all else."""


@pytest.fixture(autouse=True)
def with_shapes(tmp_path, monkeypatch, request):
    monkeypatch.syspath_prepend(request.config.rootpath)
    (tmp_path / "shapes.py").write_text(SHAPES)


def test_machines_are_listed_with_their_numbers(run):
    done = run("machines")
    assert done.status == 0
    (line,) = (line for line in done.out.splitlines() if line.startswith("tpu-v5e"))
    assert "197" in line
    assert "ici 16x16 torus 45" in line


def test_machines_as_json_for_programs(run):
    rows = {row["name"]: row for row in json.loads(run("machines", "--json").out)}
    assert rows["tpu-v3"]["devices_per_chip"] == 2
    assert rows["v100"]["half_flops_per_s"] == 125e12


def test_a_plan_is_compared_on_machines_for_a_run_of_tokens(run):
    options = ["--machine", "tpu-v3,tpu-v5p", "--place", "iowa", "--tokens", "1e9"]
    done = run(*PLAN, *options, "--json")
    assert done.status == 0, done.err
    v3, v5p = json.loads(done.out)
    assert (v3["machine"], v3["devices"]) == ("tpu-v3", 8)
    assert v3["step_time_s"] > v5p["step_time_s"]
    assert v3["days"] * 86_400 / v3["step_time_s"] == pytest.approx(1e9 / (16 * 64))
    assert v3["run_co2e_t"] > 0
    assert v5p["fits"]


def test_the_tokens_of_a_step_can_be_given(run):
    options = ["--machine", "tpu-v3", "--tokens", "1e9", "--tokens-per-step", "500"]
    done = run(*PLAN, *options)
    assert done.status == 0, done.err
    assert "run: 1e+09 tokens, 500 a step (--tokens-per-step)" in done.out


def test_a_comparison_names_the_length_of_the_run_and_plans_that_do_not_fit(
    run, tmp_path
):
    small = tmp_path / "small.toml"
    small.write_text(
        "[chip]\nvector_flops_per_s = 1e12\nhbm_bytes = 1e6\nusable_bytes = 1e6\n"
        "hbm_bytes_per_s = 1e9\non_chip_bytes = 1e6\nlaunch_s = 1e-6\n"
        "[chip.flops_per_s]\nfloat32 = 1e12\n"
        '[[levels]]\nname = "wire"\nkind = "switch"\nextents = [8]\n'
        "link_bytes_per_s = 1e9\nlatency_s = 1e-6\n"
    )
    options = ["--machine", f"{small},tpu-v4", "--samples", "16e6"]
    done = run(*PLAN, *options)
    assert done.status == 0, done.err
    out = done.out
    assert "run: 1.6e+07 samples, 16 a step (batch.inputs)" in out
    (line,) = (line for line in out.splitlines() if line.startswith("small"))
    assert line.rstrip().endswith("DOES NOT FIT")


def test_one_machine_gives_the_page_of_the_plan_there(run):
    done = run(*PLAN, "--machine", "tpu-v5e")
    assert done.status == 0, done.err
    assert "8 devices of tpu-v5e" in done.out
    fields = json.loads(run(*PLAN, "--machine", "tpu-v5e", "--json").out)
    assert fields["figures"]["machine"] == "tpu-v5e"


def test_explain_on_a_machine_shows_seconds_and_the_largest_values(run):
    # A TPU's scratch memory would hold all that so small a step computes.
    arguments = ["explain", *PLAN[1:], "--machine", "h100"]
    out = run(*arguments).out
    assert " µs each" in out
    assert "on h100 memory peaks at" in out
    assert "zoo/layers.py" in out.split("largest values")[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--machine", "tpu-v9"], "no machine 'tpu-v9'; did you mean 'tpu-v4'"),
        (["--machine", ","], "no machine in ','"),
        (["--machine", "nope.toml"], "cannot read a machine from nope.toml"),
        (["--machine", "tpu-v4", "--place", "mars"], "no place 'mars'; there are"),
        (
            ["--machine", "tpu-v4", "--tokens", "1", "--samples", "1"],
            "--tokens or --samples, not both",
        ),
    ],
)
def test_an_impossible_comparison_is_refused_with_the_reason(run, options, message):
    done = run(*PLAN, *options)
    assert done.status == 2
    assert message in done.err


@pytest.mark.parametrize(
    "option", [("--tokens", "1e9"), ("--samples", "1e9"), ("--place", "iowa")]
)
def test_options_of_a_comparison_need_a_machine(run, option):
    done = run(*PLAN, *option)
    assert done.status == 2
    assert f"{option[0]} needs a machine: add --machine" in done.err


NOT_A_LENGTH = "wanted a finite number above 0"


def test_a_run_has_a_positive_number_of_tokens(run):
    done = run(*PLAN, "--machine", "tpu-v4", "--tokens", "-5")
    assert done.status == 2
    assert NOT_A_LENGTH in done.err


@pytest.mark.parametrize("total", [0, math.nan, math.inf])
@pytest.mark.parametrize("unit", ["tokens", "samples"])
def test_a_run_has_a_finite_length(total, unit):
    asked = {"tokens": None, "samples": None} | {unit: total}
    with pytest.raises(TargetError, match=NOT_A_LENGTH):
        find_run_length(None, **asked)


def test_a_dash_in_the_table_is_explained(run):
    done = run(*PLAN, "--machine", "tpu-v5p,b200,tpu-v4", "--place", "iowa")
    assert "no power is known of tpu-v5p; a TOML" in done.out
    assert "no price is known of b200; a TOML" in done.out
    assert "J of b200: an upper bound, at peak power" in done.out
