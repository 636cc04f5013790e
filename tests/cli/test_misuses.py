"""What strangers type wrongly: each error says what is wrong and what is wanted."""

import os
import shlex
import subprocess
import sys

import pytest

TARGETS = """
import jax, jax.numpy as jnp
import meshwright as mw

def struct(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)

def step(params, batch):
    return jnp.mean((batch["x"] @ params["w"]) ** 2)

def slow():
    raise AssertionError("was built")

def no_args():
    return step

def needs(config):
    return step, (config,)

def few_args():
    return step, ({"w": struct(8, 4)},)

def many_args():
    return step, ({"w": struct(8, 4)}, {"x": struct(16, 8)}, 3)

value = 5
schedules = {
    "alone": mw.fsdp("data"),
    "mixed": [1],
    "uncalled": [mw.fsdp],
    "axis": [mw.fsdp("dta")],
    "dp": [mw.shard({"batch.*": 0}, axis="data")],
}
"""

MISUSES = {
    "slow --schedule dpp": "no schedule 'dpp'",
    "slow --schedule axis": "axis 'dta' is not in the mesh, which has data=4",
    "slow --schedule alone": "wanted schedules = {'alone': [mw.fsdp('data')]}",
    "slow --schedule mixed": "1 is no tactic; wanted mw.shard(...)",
    "slow --schedule uncalled": "fsdp is no tactic yet; call it, with an axis",
    "slow --tactics fsdp(data)": "names of axes stand in quotes: fsdp('data')",
    "slow --tactics fdsp('data')": "no tactic 'fdsp'; did you mean 'fsdp'?",
    "slow --tactics fsdp": "fsdp is no tactic yet; call it, with an axis",
    "slow --tactics fsdp('dta')": "axis 'dta' is not in the mesh",
    "slow --schedule dp --budget 3": "--budget is for a search: add --search program",
    "no_args --schedule dp": "such as `return train_step, (state, batch)`",
    "needs --schedule dp": "is called without arguments, needs(config): missing",
    "few_args --schedule dp": "returned 1 arguments for its function, step(params, batch)",
    "many_args --schedule dp": "returned 3 arguments for its function, step(params, ",
    "value --schedule dp": "is 5 (int), not a function; wanted a function without",
    "slow --schedule dp --machine tpu-v3 --search program --tokens 5": "--tokens is for",
}


@pytest.mark.parametrize("words", MISUSES)
def test_a_misused_target_or_tactic_is_explained(run, write, words):
    place = write("wrong.py", TARGETS)
    name, *options = words.split(" ")
    done = run("plan", f"{place}:{name}", "--mesh", "data=4", *options)
    assert done.status == 2
    assert MISUSES[words] in done.err
    assert "was built" not in done.err


def test_a_misspelled_command_is_answered_with_the_near_one(run):
    done = run("plann")
    assert done.status == 2
    assert "did you mean 'plan'" in done.err
    assert "iopddl" in done.err


def test_a_machine_without_a_compiler_names_those_that_have_one(run, mlp):
    done = run(
        "confirm", mlp, "--mesh", "data=4", "--schedule", "dp", "--machine", "cpu"
    )
    assert done.status == 2
    assert "give a TPU or a GPU, such as tpu-v5e or h100" in done.err


# -- processes -------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "meshwright"]


def test_output_that_nobody_reads_ends_quietly():
    """As in `meshwright machines | head -1`, but closed for certain."""
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [*COMMAND, "machines"], stdout=theirs, stderr=subprocess.PIPE, check=False
    )
    os.close(theirs)
    assert done.returncode == 141  # and not 1, by which `check` says "not equal"
    assert done.stderr == b""


@pytest.mark.parametrize(("closed", "words", "status"), [
    (">&-", "machines", 0),
    ("2>&-", "plan nothing.py --mesh data=2", 2),
])  # fmt: skip
def test_streams_that_the_caller_has_closed_are_no_error(closed, words, status):
    line = f"{shlex.join(COMMAND)} {words} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=False)
    assert done.returncode == status
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shapes", "arrays"])
def test_a_platform_that_cannot_start_is_named(write, name):
    place = write(
        "gpu.py",
        "import jax, jax.numpy as jnp, meshwright as mw\n"
        "def shapes():\n"
        "    return jnp.sin, (jax.ShapeDtypeStruct((8,), jnp.float32),)\n"
        "def arrays():\n"
        "    return jnp.sin, (jnp.ones(8),)\n"
        "schedules = {'dp': [mw.shard({'x': 0}, axis='data')]}\n",
    )
    done = subprocess.run(
        [*COMMAND, "check", f"{place}:{name}", "--mesh", "data=1", "--schedule", "dp"],
        env={**os.environ, "JAX_PLATFORMS": "cuda"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 2:
        pytest.skip("this machine has a GPU")
    assert "JAX cannot start a platform of JAX_PLATFORMS='cuda'" in done.stderr
    assert "set JAX_PLATFORMS=cpu to run on the processor" in done.stderr
