"""The stages of Meshwright, in one file that runs.

A training step becomes a program for many devices with explicit collectives, which is
then executed. Each part below shows one stage on a small example, and asserts what it
claims. Run it with

    python docs/tutorial.py

It needs eight devices, real or virtual; the first lines make virtual ones.
"""

# %% Setting up
#
# The tutorial needs only JAX and Meshwright. The environment variable makes eight virtual
# CPU devices; on a machine with eight accelerators, leave it out.

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np

import meshwright as mw

rng = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


# %% 1. One function, one mesh, a list of tactics
#
# The example has two matmuls, as an MLP does. A *tactic* is one decision. Tactics apply in
# order. Each is propagated through the whole program before the next one, and no tactic
# undoes an earlier one.


def mlp(x, w1, w2):
    return jnp.tanh(x @ w1) @ w2


mesh = {"data": 4, "model": 2}
args = array(256, 8), array(8, 16), array(16, 8)

data_parallel = mw.shard({"x": 0}, axis="data")
megatron = mw.shard({"w1": 1}, axis="model")
zero3 = mw.shard({"w1": 0, "w2": 1}, axis="data")

step = mw.partition(mlp, mesh, [data_parallel, megatron, zero3], gather="at_use")
plan = step.plan(*args)
print(plan)

# The table has one row per tactic. Data parallelism costs nothing in a forward pass.
# Cutting the columns of `w1` also cuts the rows of `w2`, by propagation. The second matmul
# is then a partial sum over `model`, which needs one all-reduce. ZeRO-3 stores both weights
# cut along `data`, which the matmuls already use for the batch, so each weight is gathered
# just before its use.

assert [s.counts["all_reduce"] for s in plan.steps] == [0, 0, 1, 1]
assert [s.counts["all_gather"] for s in plan.steps] == [0, 0, 0, 2]
assert plan.spec("w2") == jax.sharding.PartitionSpec("model", "data")

# Planning needs no devices. Running does, and gives the same numbers as one device:

np.testing.assert_allclose(step(*args), mlp(*args), rtol=1e-4, atol=1e-4)

# %% 2. Capture: a program that is plain data
#
# `capture` traces the function as `jax.jit` would, inlines calls, and removes dead code.
# The program has shapes and dtypes, but no objects of JAX.

from meshwright.program.capture import capture

captured = capture(mlp, args)
print(captured.program)

assert [op.kind for op in captured.program.ops] == [
    "dot_general",
    "tanh",
    "dot_general",
]
assert captured.paths == ("x", "w1", "w2")

# %% 3. Rules: one for each op, read by all stages
#
# A rule names dims with letters, as an einsum does. A letter in operands and results is
# parallel. A letter in operands only is a reduction: if it is cut, the devices hold addends
# of the result. A dim that cannot be cut has no letter.

from meshwright.program.ops import rule_of

rule = rule_of(captured.program.ops[0])
print(
    "operands", rule.operands, "results", rule.results, "reduced", set(rule.reductions)
)

assert len(rule.reductions) == 1

# %% 4. Propagation: from one cut to a sharding of everything
#
# A *node* is an op, an input, or a wire of a loop. The only decision is to cut one factor
# of one node along an axis; the propagator then walks forward and backward to a fixed
# point.

from meshwright.machine import Mesh
from meshwright.partitioner.propagate import Graph, Propagator, State

graph = Graph(captured.program)
state = State(graph, Mesh(mesh))
propagator = Propagator(state)
x_node, w1_node, w2_node = graph.input_nodes

propagator.cut(w1_node, "model", factor=1)
print("w2 is now", state.sharding_at(w2_node, w2_node.outs[0]))

assert str(state.sharding_at(w2_node, w2_node.outs[0])) == "[model, -]"

# A refused cut returns a sentence instead of an exception, since searches try many cuts.

print("cut once more?", propagator.cut(w1_node, "model", factor=0))

# %% 5. The order of tactics
#
# Two factors of one op cannot be cut along the same axis. The first decision stays, and the
# op reads the other dim whole. This is how ZeRO-3 works above. If both arrive at once, the
# op stays whole along that axis, and the plan reports the conflict:


def gram(x):
    return x @ x.T


plan = mw.partition(gram, {"data": 8}, [mw.shard({"x": 0}, axis="data")]).plan(
    array(16, 4)
)
print(*plan.steps[-1].conflicts, sep="\n")

assert plan.steps[-1].conflicts
assert plan.counts["all_gather"] > 0

# A tag names an intermediate value, so that a tactic can resolve the conflict:


def gram_tagged(x):
    return x @ mw.tag(x, "right").T


tactics = [mw.replicate("tag:right"), mw.shard({"x": 0}, axis="data")]
settled = mw.partition(gram_tagged, {"data": 8}, tactics)
print(settled.plan(array(16, 4)).counts)

assert settled.plan(array(16, 4)).counts["all_gather"] == 1
assert settled.check(array(16, 4)).ok

# %% 6. Lowering: every collective is explicit
#
# If an op needs an operand in another sharding than the stored one, lowering writes the
# collectives between them. No compiler heuristic decides any of them, so the predicted
# program is the one that runs.

from meshwright.partitioner.lower import lower

propagator.cut(x_node, "data", factor=0)
lowered = lower(state)
print(lowered.program)

assert [op.kind for op in lowered.program.ops if op.params.get("axes")] == [
    "all_reduce"
]

# Partial sums pass through linear ops if that does not cost more. The sum of two matmuls
# needs one all-reduce.


def two(a, b, u, v):
    return a @ u + b @ v


tactics = [mw.shard({"a": 1, "b": 1}, axis="model")]
plan = mw.partition(two, {"model": 8}, tactics).plan(
    array(4, 16), array(4, 16), *[array(16, 4)] * 2
)

assert plan.counts["all_reduce"] == 1

# A gradient that is accumulated over micro-batches needs one all-reduce after the loop.


def accumulate(w, batches):
    def add(total, x):
        return total + jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), None

    return jax.lax.scan(add, jnp.zeros_like(w), batches)[0]


tactics = [mw.shard({"batches": 1}, axis="data")]
accumulated = mw.partition(accumulate, {"data": 8}, tactics)
plan = accumulated.plan(array(8, 4), array(5, 16, 8))

assert plan.counts["all_reduce"] == 1
assert accumulated.check(array(8, 4), array(5, 16, 8)).ok

# %% 7. Random numbers do not depend on the sharding
#
# Random bits depend on an element's index in the whole array, so a sharding never changes
# them. No key has to be split by hand.


def dropout(key, x):
    return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0)


dropped = mw.partition(
    dropout, mesh, [mw.shard({"x": 0}, "data"), mw.shard({"x": 1}, "model")]
)
np.testing.assert_array_equal(
    dropped(jax.random.key(7), args[0]), dropout(jax.random.key(7), args[0])
)

# %% 8. Why is this collective here?
#
# Each collective has the source line that needs it, and the decisions that led to it.

for collective in step.plan(*args).collectives:
    print(collective.kind, collective.axes, collective.source, "-", collective.reason)
    for line in collective.chain:
        print("     ", line)

# %% 9. Plans are saved as JSON
#
# A plan can be saved by whoever sizes the cluster and loaded by whoever runs on it. The
# shardings of a plan made in this process are pytrees for plain `jax.jit` as well.

plan = step.plan(*args)
assert mw.Plan.from_json(plan.to_json()) == plan

stock = jax.jit(mlp, in_shardings=plan.in_shardings, out_shardings=plan.out_shardings)
np.testing.assert_allclose(stock(*args), step(*args), rtol=1e-4, atol=1e-4)

print("all true")
