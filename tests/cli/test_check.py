import json
import os
import subprocess
import sys

import pytest

MESH = ("--mesh", "data=4,model=2")

SERVE = """
import jax, jax.numpy as jnp
import meshwright as mw

def step(table, tokens, second, count, key, done):
    rows = table[tokens] * jax.random.bernoulli(key, 0.5, tokens.shape)[..., None]
    scale = jax.lax.rsqrt(second) / (1 - 0.9 ** (count + 1))
    return rows * scale, jnp.where(done, count, -1), jax.random.split(key)

def target():
    s = jax.ShapeDtypeStruct
    key = jax.eval_shape(lambda: jax.random.key(0))
    return step, (
        s((5, 8), jnp.bfloat16), s((16, 4), jnp.int32), s((8,), jnp.float32),
        s((), jnp.int32), key, s((), jnp.bool_),
    )

schedules = {"dp": [mw.shard({"tokens": 0}, axis="data")]}
"""

HUGE = """
import jax, jax.numpy as jnp

def huge():
    return (lambda x: x + 1), (jax.ShapeDtypeStruct((2**30, 2**20), jnp.float32),)

schedules = {"none": []}
"""


def test_check_compares_every_output_and_succeeds(run, mlp):
    done = run("check", mlp, *MESH, "--schedule", "dp+mp")
    assert done.status == 0, done.err
    assert "out.0.up" in done.out
    assert "f32[8, 16]" in done.out
    assert "equal: 2 outputs, largest error" in done.out


def test_a_seed_is_a_whole_number_from_0_on(run, mlp):
    done = run("check", mlp, "--mesh", "data=4", "--schedule", "dp", "--seed", "-1")
    assert done.status == 2
    assert "Invalid value for '--seed'" in done.err


def test_check_as_json(run, mlp):
    done = run("check", mlp, *MESH, "--schedule", "dp+mp", "--json")
    fields = json.loads(done.out)
    assert fields["ok"]
    assert fields["mesh"] == "data=4,model=2"
    assert [row["path"] for row in fields["outputs"]] == ["out.0.down", "out.0.up"]


def test_random_inputs_are_of_sensible_range(run, write):
    """Tokens lie inside of the table, second moments are positive, keys are keys."""
    place = write("serve.py", SERVE)
    done = run("check", place, *MESH, "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["ok"]


def test_a_wrong_program_fails_the_check(run, write):
    """A rule that lies: the sum over a cut dim, taken for elementwise."""
    place = write(
        "lie.py",
        "import jax, jax.numpy as jnp, meshwright as mw\n"
        "from jax.extend.core import Primitive\n"
        "from jax.interpreters import mlir\n"
        "p = Primitive('centre')\n"
        "p.def_abstract_eval(lambda x: x)\n"
        "p.def_impl(lambda x: x - x.mean(0))\n"
        "mlir.register_lowering(p, mlir.lower_fun(lambda x: x - x.mean(0), False))\n"
        "mw.rule('centre')(lambda op: 'ij->ij')\n"
        "def target(): return p.bind, (jax.ShapeDtypeStruct((8, 4), jnp.float32),)\n",
    )
    tactics = "shard({'**': 0}, axis='data')"
    done = run("check", place, *MESH, "--tactics", tactics)
    assert done.status == 1, done.err
    assert "WRONG" in done.out
    assert "NOT EQUAL: 1 outputs" in done.out


def test_a_target_too_large_for_memory_is_refused(run, write):
    place = write("huge.py", HUGE)
    done = run("check", f"{place}:huge", *MESH)
    assert done.status == 2
    assert "error: huge.py:huge needs at least 16.0 PiB to run on" in done.err
    assert "give a smaller target" in done.err


@pytest.mark.slow
def test_check_makes_as_many_virtual_devices_as_the_mesh_needs(mlp):
    """In a process of its own, where JAX has not started."""
    env = {
        k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")
    }
    command = [sys.executable, "-m", "meshwright", "check", mlp, "--mesh", "data=16"]
    command += ["--schedule", "dp"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "equal: 2 outputs" in done.stdout
    assert not done.stderr


def test_too_few_devices_in_a_running_process_are_an_error(run, mlp):
    done = run("check", mlp, "--mesh", "data=16", "--schedule", "dp")
    assert done.status == 2
    assert "mesh data=16 needs 16 devices, but JAX sees 8" in done.err
