"""Compilers as tuples of named passes over frozen compilations."""

from dataclasses import fields

import jax
import jax.numpy as jnp
import pytest

from meshwright.machine import load_machine
from meshwright.predict.compilers.model.compilation import (
    Stage,
    compile_program,
    start_compilation,
)
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.predict.compilers.targets import COMPILERS, compiler_of
from meshwright.program.capture import capture

MACHINES = ("tpu-v5e", "h100", "cpu")
TILE = (8, 128)
X = jax.ShapeDtypeStruct((64, 128), jnp.float32)
W = jax.ShapeDtypeStruct((4, 128, 128), jnp.float32)


def step(x, w):
    """A scan with a broadcast, slices, a carry and a stack."""

    def body(c, w):
        y = jnp.tanh(c @ w) + jnp.ones((64, 128))
        return y, y.sum(0)

    return jax.lax.scan(body, x, w)


PROGRAM = capture(jax.grad(lambda x, w: step(x, w)[1].sum()), (X, W)).program


def facts(compilation):
    """All fields of a compilation and its layouts, except their memo of sizes."""
    layouts = compilation.layouts
    known = [getattr(layouts, f.name) for f in fields(Layouts) if f.name != "_memo"]
    others = [f.name for f in fields(compilation) if f.name != "layouts"]
    return [*known, *(getattr(compilation, name) for name in others)]


@pytest.mark.parametrize("name", MACHINES)
def test_a_pass_returns_a_new_compilation_and_leaves_its_own_as_it_was(name):
    compilation = start_compilation(PROGRAM, compiler_of(load_machine(name, 8)), TILE)
    for each in compilation.compiler.passes:
        before = facts(compilation)
        results = [each.run(compilation) for _ in range(2)]
        assert facts(compilation) == before
        first, second = ([f.root.kind for f in found.fusions] for found in results)
        assert first == second
        compilation = results[0]


def test_pipelines_list_passes_by_the_names_that_xla_gives_them():
    found = {
        machine: [each.name for each in compiler_of(load_machine(machine, 8)).passes]
        for machine in MACHINES
    }
    assert found["cpu"] == [
        "call-inliner", "library-rewriter", "layout-assignment", "instruction-fusion",
        "breadth-first-scheduler", "multi-output-fusion",
    ]  # fmt: skip
    assert found["h100"] == [
        "collective-pipeliner", "call-inliner", "layout-assignment", "priority-fusion",
        "output-fusion", "latency-hiding-scheduler", "multi-output-fusion",
    ]  # fmt: skip
    assert found["tpu-v5e"] == [
        "call-inliner", "algebraic-simplifier", "while-loop-all-reduce-code-motion",
        "all-reduce-reassociate", "layout-assignment", "space-to-batch-converter",
        "bfloat16-propagation", "instruction-fusion", "output-fusion",
        "deferred-initialization", "all-reduce-combiner", "multi-output-fusion",
        "memory-space-assignment",
    ]  # fmt: skip


def test_stages_in_turn_are_the_whole_pipeline():
    compiler = compiler_of(load_machine("tpu-v5e", 8))
    begun = start_compilation(PROGRAM, compiler, TILE)
    for stage in Stage:
        begun = begun.after(stage)
    whole = compile_program(PROGRAM, compiler, TILE)
    kinds = [[f.root.kind for f in found.fusions] for found in (begun, whole)]
    assert kinds[0] == kinds[1]


def test_only_compilers_with_such_a_pass_assign_memory_spaces():
    machine = load_machine("tpu-v5e", 8)
    found = [n for n, make in COMPILERS.items() if make(machine).assigns_memory_spaces]
    assert found == ["tpu"]
