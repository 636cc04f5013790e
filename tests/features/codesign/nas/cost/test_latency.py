"""`nas.latency`: seconds add up over blocks, and are those of a plan."""

import json
from functools import cache

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.cli import main
from meshwright.codesign import nas
from meshwright.errors import MachineError, NasError
from zoo import efficientnet


def shape(*extents):
    return jax.ShapeDtypeStruct(extents, jnp.bfloat16)


@cache
def of_b0(machine):
    return nas.latency(*efficientnet.inference["b0"](batch=8), machine=machine)


@pytest.mark.parametrize("machine", ["tpu-v3", "v100"])
def test_blocks_and_bounds_add_up_to_the_seconds_of_a_plan(machine):
    found = of_b0(machine)
    assert sum(b.seconds for b in found.by_block) == pytest.approx(found.seconds)
    assert sum(found.bounds.values()) == pytest.approx(found.seconds)
    fn, args = efficientnet.inference["b0"](batch=8)
    mesh = {"core": 2 if machine == "tpu-v3" else 1}
    tactics = [mw.data_parallel("core")] if machine == "tpu-v3" else []
    plan = mw.partition(fn, mesh, tactics).plan(*args).on(machine, "us-average")
    assert found.seconds == plan.figures.step_time_s
    assert found.co2e_g == plan.figures.co2e_g
    assert found.energy_j == plan.figures.energy_j


def test_blocks_are_those_of_the_net_in_order():
    names = [block.name for block in of_b0("tpu-v3").by_block]
    names.remove("EfficientNet")  # the mean over each image
    assert names[:1] + names[-2:] == ["stem", "head", "classes"]
    assert names[1:-2] == sorted(names[1:-2])
    assert "stage_5/rest" in names
    shares = [block.roofline_share for block in of_b0("tpu-v3").by_block]
    assert all(0 <= share <= 1 for share in shares)


def test_a_product_is_bound_by_the_matrix_unit_and_a_sum_by_memory():
    large = shape(4096, 4096)
    product = nas.latency(jnp.matmul, (large, large), "tpu-v5e")
    assert product.bound == "matrix"
    assert product.roofline_share == pytest.approx(0.92, abs=0.05)
    assert nas.latency(jnp.add, (large, large), "v100").bound == "memory"
    assert "bfloat16" in nas.latency(jnp.matmul, (large, large), "v100").widened


def test_a_record_survives_json():
    found = of_b0("tpu-v3")
    assert nas.Latency.from_json(found.to_json()) == found


def test_bad_requests_say_what_is_wanted():
    with pytest.raises(MachineError, match="no machine 'tpu-v33'; did you mean"):
        nas.latency(jnp.add, (shape(1), shape(1)), "tpu-v33")
    with pytest.raises(NasError, match="wants a function and its arguments, got 3"):
        nas.latency(3, (), "v100")
    with pytest.raises(NasError, match="this is no latency"):
        nas.Latency.from_json("{}")
    with pytest.raises(NasError, match="args is a ShapeDtypeStruct; wanted a tuple"):
        nas.latency(jnp.sin, shape(3), "v100")


def test_a_bare_product_on_two_cores_needs_no_names_of_roles(recwarn):
    assert nas.latency(jnp.matmul, (shape(64, 64), shape(64, 64)), "tpu-v3").seconds > 0
    assert not recwarn.list


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["nas", "latency", *arguments])
    return ended.value.code


TARGET = """
import jax, jax.numpy as jnp
def target():
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return (lambda x: x @ x), (x,)
def sized(batch=4):
    x = jax.ShapeDtypeStruct((batch, 64), jnp.float32)
    return jnp.tanh, (x,)
inference = {"sized": sized}
"""


@pytest.mark.parametrize(
    ("machines", "framework", "message"),
    [
        ("v100", "pytorhc", "framework is 'pytorhc'; did you mean 'pytorch'"),
        ("v100,tpu-v3", "pytorch", "tpu-v3 runs compiled programs only"),
    ],
)
def test_a_framework_is_checked_before_a_target_is_built(
    machines, framework, message, capsys
):
    options = ("--machine", machines, "--framework", framework)
    assert run("gone.py", *options) == 2
    assert message in capsys.readouterr().err


def test_the_command_prints_a_row_for_each_target_and_machine(tmp_path, capsys):
    path = tmp_path / "model.py"
    path.write_text(TARGET)
    texts = f"{path}:target", f"{path}:sized"
    assert run(*texts, "--machine", "tpu-v5e,v100", "--json") == 0
    records = json.loads(capsys.readouterr().out)
    assert [r["machine"] for r in records] == ["tpu-v5e", "v100"] * 2
    assert run(f"{path}:sized", "--machine", "v100", "--batch", "9") == 0
    assert "of roofline" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("{}:target", "--machine", "v101"), "no machine 'v101'; did you mean 'v100'?"),
        (("{}:target", "--machine", "v100", "--batch", "9"), "takes no batch"),
        (("{}:target", "--machine", ","), "wanted names such as tpu-v3,v100"),
        (("{}:target", "--machine", "v100", "--place", "iova"), "did you mean 'iowa'?"),
    ],
)
def test_misuse_is_one_sentence_and_status_2(given, words, tmp_path, capsys):
    path = tmp_path / "model.py"
    path.write_text(TARGET)
    assert run(*(each.format(path) for each in given)) == 2
    assert words in capsys.readouterr().err
