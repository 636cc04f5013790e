"""Reduce-scatters over all chips of a slice, which the TPU compiler runs as one."""

from dataclasses import replace

import pytest

from meshwright.machine import load_machine
from meshwright.predict.compilers.model.compilation import start_compilation
from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.compilers.tpu.all_reduce_combiner import combiner_for
from meshwright.predict.compilers.xla.collective_combiner import combine_collectives
from meshwright.predict.memory.buffer_assignment import Heap
from meshwright.program.ir import Op, Program, Value
from meshwright.program.ops import OpWork

COMPILED = {  # by libtpu 0.0.50: whether a reduce-scatter over all became an all-reduce
    ("tpu-v5e", 4): False,
    ("tpu-v5e", 8): False,
    ("tpu-v5e", 16): True,
    ("tpu-v5e", 32): False,
    ("tpu-v5e", 64): True,
    ("tpu-v5e", 128): False,
    ("tpu-v5e", 256): True,
    ("tpu-v6e", 8): False,
    ("tpu-v6e", 16): True,
    ("tpu-v5p", 4): False,
    ("tpu-v5p", 8): True,
    ("tpu-v5p", 16): True,
    ("tpu-v5p", 128): True,
    ("tpu-v4", 8): True,
    ("tpu-v4", 64): True,
    ("tpu-v3", 8): True,
    ("tpu-v3", 32): True,
    ("tpu-7x", 16): False,
}


@pytest.mark.parametrize(("name", "chips"), COMPILED)
def test_slices_on_which_reduce_scatters_over_all_chips_run_as_one(name, chips):
    joined = combiner_for(load_machine(name, chips)).num_devices
    assert joined == (chips if COMPILED[name, chips] else 0)


DEVICES, GRADS, BYTES = 16, 5, 4 * 2**20
"""Devices of a slice, gradients that are summed over them, and bytes of each."""


def kernel(kind, fusion_kind, read, written, **params):
    """A fusion of one op that reads one value and writes one value."""
    op = Op(kind, (read,), (written,), params)
    return Fusion(op, fusion_kind, (read,), (written,), OpWork(0, 0))


def backward(devices):
    """A product that makes a gradient, and its reduce-scatter, several times."""
    made = []
    for _ in range(GRADS):
        x, grad = Value((8,), "float32"), Value((BYTES // 4,), "float32")
        part = Value((BYTES // 4 // devices,), "float32")
        made += [
            kernel("dot_general", FusionKind.PRODUCT, x, grad),
            kernel("reduce_scatter", FusionKind.COLLECTIVE, grad, part, axes=("d",)),
        ]
    return made


def peak_bytes(machine, devices):
    """Live bytes of `backward`, as a machine's compiler schedules it."""
    compiler = compiler_of(machine)
    empty = start_compilation(Program((), (), ()), compiler, machine.chip.tile)
    (combine,) = (p for p in compiler.passes if p.name == "all-reduce-combiner")
    found = combine.run(replace(empty, fusions=tuple(backward(devices))))
    ends = [v for f in found.fusions[1:] for v in f.writes if f.reads[0].shape != (8,)]
    heap = Heap(found.layouts, found.fusions, ends, compiler.buffers, frozenset())
    return max(heap.assign((), (), {}).curve)


def test_gradients_of_a_step_on_a_square_slice_wait_for_the_last_of_them():
    """Over 4x4 chips all are live at once; over 4 of them, or 2x4, one after another."""
    square, oblong = (load_machine("tpu-v5e", n) for n in (DEVICES, DEVICES // 2))
    assert peak_bytes(square, DEVICES) >= GRADS * BYTES
    assert peak_bytes(square, 4) < 3 * BYTES
    assert peak_bytes(oblong, DEVICES // 2) < 2 * BYTES


def test_a_full_group_does_not_wait_for_the_collective_that_finds_it_full():
    first, compute, second = backward(DEVICES)[1:4]
    order = combine_collectives([first, compute, second], most_bytes=BYTES)
    assert order == (first, compute, second)
