import json

import pytest

import meshwright as mw
from meshwright.cli.main import format_warning

MESH = ("--mesh", "data=4,model=2")


def test_plan_prints_counts_tactic_by_tactic_and_shardings(run, mlp):
    done = run("plan", mlp, *MESH, "--schedule", "dp+mp")
    assert done.status == 0, done.err
    assert "mlp.py:target: mesh data=4,model=2, 8 devices, gather shared" in done.out
    assert "shard({'batch.*': 0}, axis='data')" in done.out
    assert "params.0.up: f32[8, 16] [-, model]" in done.out
    assert "batch.x: f32[32, 8] [data, -]" in done.out
    assert "all_reduce     data" in done.out
    assert "mlp.py:9" in done.out
    assert not done.err


def test_plan_as_json_is_a_plan_and_nothing_else(run, mlp):
    done = run("plan", mlp, *MESH, "--schedule", "dp", "--json")
    assert done.status == 0, done.err
    counts = json.loads(done.out)["counts"]
    assert counts.pop("all_reduce") == 2
    assert counts == dict.fromkeys(
        ("all_gather", "reduce_scatter", "all_to_all", "permute"), 0
    )
    assert mw.Plan.from_json(done.out).counts["all_reduce"] == 2


def test_what_a_target_prints_is_not_in_the_json(run, mlp, write):
    write("loud.py", f"from mlp import *\nprint('loaded')\n{LOUD}")
    done = run("plan", "loud.py:loud", "--mesh", "data=4", "--schedule", "dp", "--json")
    assert json.loads(done.out)["name"] == "loud.py:loud"
    assert done.err == "loaded\nbuilt\n"


LOUD = """
def loud():
    print("built")
    return target()
"""


def test_plan_saves_itself(run, mlp, tmp_path):
    done = run("plan", mlp, *MESH, "--schedule", "dp", "--out", "plan.json")
    assert done.status == 0, done.err
    plan = mw.Plan.from_json((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert done.out == f"{plan}\n"


def test_plan_saves_exact_offsets_and_prints_their_gain(run, mlp, tmp_path):
    step = ("plan", mlp, *MESH, "--schedule", "dp", "--machine", "tpu-v5e")
    done = run(*step, "--offsets", "offsets.csv")
    assert done.status == 0, done.err
    lines = (tmp_path / "offsets.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "id,lower,upper,size,offset"
    assert "offsets in offsets.csv\noutcome    fits: " in done.out
    assert f"buffers    {len(lines) - 1}" in done.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--offsets needs a machine: add --machine"),
        (["--machine", "tpu-v5e,tpu-v5p"], "--offsets takes one machine"),
        (
            ["--pipeline", "--machine", "tpu-v5e", "--chips", "4"],
            "--offsets does not go with --pipeline",
        ),
    ],
)
def test_offsets_are_for_one_machine(run, mlp, tmp_path, options, words):
    mesh = [] if "--pipeline" in options else MESH
    done = run("plan", mlp, *mesh, "--offsets", "offsets.csv", *options)
    assert done.status == 2
    assert words in done.err
    assert not (tmp_path / "offsets.csv").exists()


def test_plan_cannot_save_where_there_is_no_folder(run, mlp):
    done = run("plan", mlp, *MESH, "--schedule", "dp", "--out", "none/plan.json")
    assert done.status == 2
    assert done.err == "error: cannot write none/plan.json: there is no folder none\n"
    done = run("plan", mlp, *MESH, "--machine", "tpu-v5e", "--offsets", "none/x.csv")
    assert done.status == 2
    assert "cannot write none/x.csv" in done.err


def test_layers_that_are_alike_are_one_line(run, write):
    place = write(
        "deep.py",
        "import jax, jax.numpy as jnp, meshwright as mw\n"
        "def fn(layers, x):\n"
        "    for w in layers:\n"
        "        x = jnp.sin(x @ w['w'])\n"
        "    return x\n"
        "def target():\n"
        "    w = {'w': jax.ShapeDtypeStruct((8, 8), jnp.float32)}\n"
        "    return fn, ([w] * 5, jax.ShapeDtypeStruct((4, 8), jnp.float32))\n"
        "schedules = {'z': [mw.shard({'x': 0}, axis='a'), "
        "mw.shard({'layers.**': 0}, axis='a')]}\n",
    )
    done = run("plan", place, "--mesh", "a=4")
    assert done.status == 0, done.err
    assert "  layers.*.w: f32[8, 8] [a, -]  (x5)" in done.out
    assert "all_gather     a                 256 B x5     deep.py:4" in done.out
    out = run("explain", place, "--mesh", "a=4").out
    assert out.count("all_gather of") == 1
    assert "operand 1 of dot_general, layers.*.w, f32[8, 8]," in out
    assert (
        run("explain", place, "--mesh", "a=4", "--full").out.count("all_gather of") == 5
    )


def test_tactics_may_be_written_out(run, mlp):
    tactics = "shard({'batch.*': 0}, axis='data'), mw.replicate('params.**')"
    done = run("plan", mlp, *MESH, "--tactics", tactics, "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["counts"]["all_reduce"] == 2


def test_the_option_gather_reaches_the_plan(run, mlp):
    done = run("plan", mlp, *MESH, "--schedule", "dp", "--gather", "at_use")
    assert "gather at_use" in done.out
    refused = run("plan", mlp, *MESH, "--schedule", "dp", "--gather", "never")
    assert refused.status == 2
    assert "'never' is not one of 'at_use', 'shared'" in refused.err


LAYERS = """
import jax, jax.numpy as jnp
import meshwright as mw

def step(layers, x):
    for layer in layers:
        x = x @ layer["w"]
    return x

def target():
    s = jax.ShapeDtypeStruct
    return step, ([{"w": s((8, 8), jnp.float32)}] * 5, s((32, 8), jnp.float32))

schedules = {"mp": [mw.shard({"layers.*.w": 1}, axis="model")]}
"""


def test_a_plan_that_partitions_nothing_says_so_once_for_all_layers(run, write):
    place = write("layers.py", LAYERS)
    done = run("plan", place, "--mesh", "model=3", "--schedule", "mp")
    assert done.status == 0, done.err
    assert "\nnothing was cut: every device does the whole step\n" in done.out
    assert "  6 inputs, whole on every device, 2.25 KiB together\n" in done.out
    assert done.out.count("3 parts do not divide extent 8") == 1
    assert "layers.*.w along 'model'" in done.out
    assert "(x5)" in done.out


def test_a_plan_that_partitions_something_does_not_say_otherwise(run, write):
    place = write("layers.py", LAYERS)
    done = run("plan", place, "--mesh", "model=4", "--schedule", "mp")
    assert "nothing was cut" not in done.out


def test_tactics_may_be_a_list_in_brackets(run, mlp):
    tactic = "data_parallel('data')"
    plain, listed = (
        run("plan", mlp, *MESH, "--tactics", text) for text in (tactic, f"[{tactic}]")
    )
    assert listed.status == 0, listed.err
    assert listed.out == plain.out


def test_work_left_whole_is_a_warning_of_one_line(run, write):
    place = write(
        "left.py",
        "import jax, jax.numpy as jnp\n"
        "def step(w, stored, x):\n"
        "    return x @ w, jnp.sum((stored @ w) @ (stored @ w).T)\n"
        "def target():\n"
        "    shapes = (16, 16), (63, 16), (8, 16)\n"
        "    return step, tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)\n",
    )
    tactics = "data_parallel('data', inputs='x')"
    with pytest.warns(mw.MeshwrightWarning) as found:
        run("plan", f"{place}:target", "--mesh", "data=4", "--tactics", tactics)
    line = format_warning(found[0].message, found[0].category, "typer.py", 1)
    assert line.startswith(f"warning: {tactics} leaves 97% of the work")
    assert line.count("\n") == 1


def test_other_warnings_are_printed_as_python_does():
    line = format_warning(UserWarning("no"), UserWarning, "model.py", 7)
    assert line.startswith("model.py:7: UserWarning: no")
