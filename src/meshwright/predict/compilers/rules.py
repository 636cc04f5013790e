"""What differs between compilers in what they store, where, and what they overlap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from meshwright.machine import Chip, Machine
from meshwright.predict.compilers.tpu.duplication import Balance, balance_of


@dataclass(frozen=True, slots=True)
class Rules:
    """How one compiler runs a device program.

    platform: JAX's name of what it compiles for, "" where that is nobody's.
    overlaps: kinds of collectives that run beside computation.
    reshapes: what adds dims of one element is another shape, and no array.
    sinks: what a loop only adds up over devices is reduced once, behind it.
    keeps_remats: what is made again is a region of its own, not part of the program.
    narrows: values that only 16-bit products read are stored in 16 bits.
    joins_softmax: elements of the longest row of a product's scores whose softmax is taken
        in the product's own pass; 0 if none is.
    regroups: few images are cut in space into parts that count as images.
    places: memory on the chip is the compiler's to place values in, which then take none
        of the main memory; else it is a cache of that.
    receives: among those is what collectives write.
    overwrites: an elementwise result, and a sum over devices, comes in the place of an
        operand that is read no more, unless the pass that wrote that wrote more.
    fills_late: what repeats something smaller, to be written into, is made when it is
        read, not when the first is written.
    compacts: of what does not fit, values are stored without the padding of tiles.
    step_bytes: places in main memory are multiples of this, and so are the tables of
        addresses that passes with several results, and arguments fetched ahead, have;
        0 where that is not known.
    packs_in_time: blocks get their places in main memory in the order in which their
        lives begin; else the largest, or those that live longest, come first.
    hands_out_last: a loop's turn ends with what the next does not wait for.
    calls_library: products and large reductions are calls that read and write memory,
        elementwise results lie where an operand lay that is read no more, what loops
        stack is there from the start, results have memory of their own all along, and
        units run breadth first; else products take elementwise ops in on both sides,
        and units run in the order of the program.
    balance: of the chip that it compiles for, where it weighs by that what products
        compute again.
    """

    platform: str = ""
    overlaps: frozenset[str] = frozenset()
    reshapes: bool = False
    sinks: bool = False
    keeps_remats: bool = False
    narrows: bool = False
    joins_softmax: int = 0
    regroups: bool = False
    places: bool = False
    receives: bool = False
    overwrites: bool = False
    fills_late: bool = False
    compacts: bool = False
    step_bytes: int = 0
    packs_in_time: bool = False
    hands_out_last: bool = False
    calls_library: bool = False
    balance: Balance | None = None


_STEP_BYTES = 16384
"""Of the TPU compiler: so are all 144,994 places in 59 of its heaps (libtpu 0.0.50)."""

_WINDOWS_OF_ROWS = 6400
"""Bytes of windows that a product has for each element of the longest such row.

Of 16 MiB rows of 2,304 are taken, and not of 3,072; of 32 MiB those of 4,096 are.
"""

_LEAST_ON_CHIP = 2**25
"""Bytes of scratch memory below which none is taken, as on v2 and v3, which have half."""

PLAIN = Rules()
TPU = Rules(
    "tpu",
    frozenset({"all_gather", "permute", "reduce_scatter"}),
    reshapes=True,
    sinks=True,
    narrows=True,
    joins_softmax=2560,
    regroups=True,
    places=True,
    overwrites=True,
    fills_late=True,
    compacts=True,
    packs_in_time=True,
    hands_out_last=True,
)
GPU = Rules(
    "cuda",
    frozenset({"all_gather", "all_reduce", "all_to_all", "permute", "reduce_scatter"}),
)
CPU = Rules("cpu", keeps_remats=True, calls_library=True)

RULES: Mapping[str, Rules] = {"plain": PLAIN, "tpu": TPU, "gpu": GPU, "cpu": CPU}
"""By `Machine.compiler`."""


def rules_for(machine: Machine) -> Rules:
    """The rules of a machine's compiler, for its chip."""
    rules, chip = RULES[machine.compiler], machine.chip
    if not rules.places:
        return rules
    return replace(
        rules,
        balance=balance_of(chip),
        joins_softmax=_longest_row(chip, rules),
        receives=bool(chip.receives_on_chip),
        step_bytes=_STEP_BYTES,
    )


def _longest_row(chip: Chip, rules: Rules) -> int:
    """Elements of a row whose softmax a product takes; 7x, like v5p, says no windows."""
    if chip.on_chip_bytes < _LEAST_ON_CHIP:
        return 0
    return int(chip.window_bytes / _WINDOWS_OF_ROWS) or rules.joins_softmax
