import json

MESH = ("--mesh", "data=4")

CONFLICT = """
import jax, jax.numpy as jnp
import meshwright as mw

def square(x):
    return x @ x.T

def target():
    return square, (jax.ShapeDtypeStruct((8, 6), jnp.float32),)

schedules = {"rows": [mw.shard({"x": 0}, axis="data")]}
"""

STUCK = """
import jax, jax.numpy as jnp
import meshwright as mw

def step(x, w):
    return jnp.fft.fft(x, axis=0).real @ w

def target():
    shapes = (8, 6), (6, 6)
    return step, tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)

schedules = {"rows": [mw.shard({name: 0}, axis="data") for name in ("x", "w")]}
"""


def test_a_collective_is_shown_with_its_line_and_both_chains(run, mlp):
    tactics = "shard({'batch.*': 0}, 'data'), shard({'params.*.up': 0}, 'data')"
    done = run("explain", mlp, *MESH, "--tactics", tactics)
    assert done.status == 0, done.err
    assert "all_gather of f32[2, 16] along data, 512 B, x1 at mlp.py:9" in done.out
    assert (
        "operand 1 of dot_general, params.0.up, f32[8, 16], is stored cut on dim 0 "
        "along 'data' (since shard({'params.*.up': 0}, axis='data') cut it), but needed "
        "whole, as this op cuts dim 0 of operand 0 along it (since "
        "shard({'batch.*': 0}, axis='data') cut batch.x)"
    ) in done.out
    assert "    stored: 'data' cuts dim 0 of params.0.up: shard({'params" in done.out
    assert "    used: 'data' cuts dim 0 of batch.x: shard({'batch.*'" in done.out
    assert "the sum over 'data' of dot_general (mlp.py:" in done.out


def test_a_conflict_is_shown_with_both_sides(run, write):
    done = run("explain", write("square.py", CONFLICT), *MESH)
    assert (
        "dot_general (square.py:6) stays whole along 'data', which dim 0 of operand 0 "
        "(x, since shard({'x': 0}, axis='data') cut it) and dim 1 of operand 1 "
        "(transpose (square.py:6), since shard({'x': 0}, axis='data') cut x) both want"
    ) in done.out
    assert "\nconflicts\n" in done.out


def test_a_refused_request_of_a_tactic_is_shown(run, write):
    done = run("explain", write("stuck.py", STUCK), *MESH)
    assert (
        "requested by a tactic, but not possible\n  shard({'w': 0}, axis='data'): w along"
        in done.out
    )
    assert "4 parts do not divide extent 6" in done.out


def test_explain_as_json_has_the_chains(run, mlp):
    done = run("explain", mlp, *MESH, "--schedule", "dp", "--json")
    fields = json.loads(done.out)
    names = {"mesh", "gather", "counts", "collectives", "steps", "whole", "figures"}
    assert set(fields) == names
    assert fields["figures"] is None
    assert fields["collectives"][0]["source"].startswith("mlp.py:")
    assert fields["collectives"][0]["chain"]


def test_a_program_without_collectives_says_so(run, mlp):
    done = run("explain", mlp, *MESH, "--tactics", "[]")
    assert "no collectives" in done.out


LOSS = """
import jax, jax.numpy as jnp

def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)

def target():
    return loss, tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in ((8, 6), (16, 8)))

def forward():
    return jnp.sin, target()[1][:1]
"""


def test_residuals_of_a_step_are_listed_with_bytes_and_lines(run, mlp):
    done = run("explain", mlp, *MESH, "--tactics", "[]", "--residuals")
    assert done.status == 0, done.err
    assert "residuals for its backward pass" in done.out
    assert "f32[32, 16]" in done.out
    assert "mlp.py:9 " in done.out


def test_residuals_of_a_loss_follow_recompute(run, write):
    path = f"{write('loss.py', LOSS)}:target"
    options = (*MESH, "--residuals", "--json", "--tactics")
    plain = json.loads(run("explain", path, *options, "[]").out)
    lean = json.loads(run("explain", path, *options, "recompute('dot_general')").out)
    saved = [r["num_bytes"] for r in plain if not r["is_input"]]
    assert saved == [16 * 6 * 4] * 2
    kept = [r for r in lean if not r["is_input"]]
    assert [r["num_bytes"] for r in kept] == [16 * 6 * 4]
    assert kept[0]["name"] == "loss.py:5 dot_general"
    assert kept[0]["source"] == "loss.py:5"


def test_residuals_of_a_loss_are_not_cut(run, write):
    path = f"{write('loss.py', LOSS)}:target"
    done = run(
        "explain", path, *MESH, "--residuals", "--tactics", "shard({'x': 0}, 'data')"
    )
    assert done.status == 2
    assert "the only tactic for it is one recompute" in done.err


def test_a_step_without_a_gradient_has_no_residuals(run, write):
    path = f"{write('loss.py', LOSS)}:forward"
    done = run("explain", path, *MESH, "--residuals", "--tactics", "[]")
    assert done.status == 2
    assert "the step has no residuals, as it computes no gradient" in done.err
