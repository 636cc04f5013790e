"""Call inlining, and broadcasts simplified to reshapes."""

import jax
import jax.numpy as jnp
from jax import lax

from meshwright.predict.compilers.cpu.cpu_passes import CPU
from meshwright.predict.compilers.gpu.gpu_passes import GPU
from meshwright.predict.compilers.model.compilation import Origins, compile_program
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.predict.compilers.xla.algebraic_simplifier import simplified
from meshwright.predict.compilers.xla.call_inliner import Inliner
from meshwright.predict.compilers.xla.shared_passes import PLAIN
from meshwright.program.ir import num_bytes
from tests.predict.compilers.compiled import fused_memory, fusions_of
from tests.predict.memory.test_buffer_assignment import W, X, program_of


def test_a_loop_of_one_iteration_is_inlined():
    def body(c, w):
        y = jnp.tanh(c @ w)
        return y @ w, y * 2

    def looped(x, w):
        return lax.scan(body, x, w[None], length=1)

    def plain(x, w):
        end, y = body(x, w)
        return end, y.reshape(1, *y.shape)

    found = Inliner().program(program_of(looped, X, W), Origins())
    assert not any(op.bodies for op in found.ops)
    wanted = program_of(plain, X, W)
    assert [u.root.kind for u in fusions_of(found)] == [
        u.root.kind for u in fusions_of(wanted)
    ]
    assert fused_memory(found).peak_bytes == fused_memory(wanted).peak_bytes


def test_a_program_without_loops_of_one_iteration_stays_itself():
    def fn(x):
        return lax.scan(lambda c, _: (c + 1, None), x, length=2)[0]

    program = program_of(fn, X)
    origins = Origins()
    assert Inliner().program(program, origins) is program
    assert not origins


def test_a_choice_by_platform_becomes_the_platforms_branch():
    def fn(x):
        return lax.platform_dependent(x, tpu=jnp.sin, cuda=jnp.cos, default=jnp.tan)

    program = program_of(fn, X)
    for compiler, kind in ((TPU, "sin"), (GPU, "cos"), (CPU, "tan"), (PLAIN, "tan")):
        found = Inliner(compiler.platform).program(program, Origins())
        assert kind in [op.kind for op in found.ops]
        assert not any(op.bodies for op in found.ops)
        (out,) = found.outputs
        assert any(out in op.results for op in found.ops)


def test_a_choice_without_a_branch_for_a_platform_stays():
    program = program_of(
        lambda x: lax.platform_dependent(x, tpu=jnp.sin, cpu=jnp.cos), X
    )
    found = Inliner(GPU.platform).program(program, Origins())
    assert any(op.kind == "cond" for op in found.ops)


def test_a_broadcast_that_adds_dims_of_one_element_becomes_a_reshape():
    def fn(x):
        return jnp.cumsum(jnp.cumsum(x)[:, None], 0)

    program = program_of(fn, jax.ShapeDtypeStruct((2**16,), "float32"))
    assert Inliner().program(program, Origins()) is program
    origins = Origins()
    found = simplified(program, origins, program.outputs)
    (shaped,) = (op for op in found.ops if op.kind == "reshape")
    assert origins[shaped].kind == "broadcast_in_dim"
    assert [u.root.kind for u in fusions_of(found)] == ["cumsum", "cumsum"]


def test_a_broadcast_that_leaves_the_program_stays_a_broadcast():
    def fn(x):
        return x[None], jnp.sin(x)

    program = program_of(fn, X)
    assert simplified(program, Origins(), program.outputs) is program
    assert fused_memory(program, compiler=TPU).peak_bytes >= 3 * num_bytes(
        program.inputs[0]
    )


def test_the_cpu_compiler_keeps_remat_calls():
    program = program_of(
        jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), X
    )
    assert any(
        op.kind == "remat" for op in compile_program(program, CPU, (1, 1)).program.ops
    )
    assert not any(
        op.bodies for op in compile_program(program, TPU, (1, 1)).program.ops
    )
