"""The modelled compilers, and the compiler of a machine.

A machine names its compiler in `Machine.compiler`. The passes of each compiler are
listed in its file of passes; `docs/extending.md` says how to add one.
"""

from collections.abc import Callable, Mapping

from meshwright.machine import Machine
from meshwright.predict.compilers.cpu.cpu_passes import CPU
from meshwright.predict.compilers.gpu.framework_passes import FRAMEWORKS
from meshwright.predict.compilers.gpu.gpu_passes import GPU
from meshwright.predict.compilers.model.compilation import Compiler
from meshwright.predict.compilers.tpu.tpu_passes import tpu_compiler_for
from meshwright.predict.compilers.xla.shared_passes import PLAIN

COMPILERS: Mapping[str, Callable[[Machine], Compiler]] = {
    "cpu": lambda machine: CPU,
    "gpu": lambda machine: GPU,
    "plain": lambda machine: PLAIN,
    "tpu": tpu_compiler_for,
    **{name: lambda machine, each=each: each for name, each in FRAMEWORKS.items()},
}
"""For each value of `Machine.compiler`, a function from the machine to the compiler."""


def compiler_of(machine: Machine) -> Compiler:
    """The modelled compiler that a machine names, set up for the machine's chips."""
    return COMPILERS[machine.compiler](machine)
