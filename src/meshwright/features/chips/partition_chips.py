"""`mw.partition_chips`: assign the ops of a program to the chips of a multi-chip module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from meshwright.errors import ChipsError
from meshwright.features.chips.chip_partition import ChipPartition
from meshwright.features.chips.graph.chip_graph import ChipGraph
from meshwright.features.chips.graph.program_graph import program_graph
from meshwright.features.chips.methods.policy import propose
from meshwright.features.chips.policy_network import shipped_policy
from meshwright.features.chips.problem.chip_module import module_machine, module_of
from meshwright.features.chips.problem.chip_problem import ChipProblem
from meshwright.features.chips.solve import OnChipProgress, partition_graph
from meshwright.machine import Machine
from meshwright.program.capture import capture
from meshwright.program.ir import Program
from meshwright.search.arrays import Ints


def partition_chips(
    program: Callable[..., Any] | Program | ChipGraph,
    machine: Machine | str | Path,
    *args: Any,
    weights: str | Sequence[str] | Sequence[int] = "*params*",
    seconds: float = 60.0,
    seed: int = 0,
    progress: OnChipProgress | None = None,
) -> ChipPartition:
    """An assignment of a program's ops to chips that makes the pipeline of the chips fast.

    program: a function with its arguments `args` (arrays or `jax.ShapeDtypeStruct`s), a
    captured program, or a graph of ops.
    machine: a multi-chip module such as "mcm-36", or a machine whose chips form a torus.
    weights: the inputs that stay the same from one run to the next, as path patterns or
    positions. If no path matches, all leaves of the first argument are weights.

    >>> import jax.numpy as jnp
    >>> def two_layers(params, x):
    ...     return jnp.tanh(x @ params[0]) @ params[1]
    >>> layers = jnp.ones((64, 64)), jnp.ones((64, 64))
    >>> partition_chips(two_layers, "mcm-4", layers, jnp.ones((8, 64)), seconds=1).num_used
    2
    """
    devices = module_machine(machine)
    return partition_graph(
        _graph_of(program, args, devices, weights),
        module_of(devices),
        seconds=seconds,
        seed=seed,
        policy=_shipped,
        progress=progress,
    )


def _graph_of(
    program: Callable[..., Any] | Program | ChipGraph,
    args: Sequence[Any],
    machine: Machine,
    weights: str | Sequence[str] | Sequence[int],
) -> ChipGraph:
    if isinstance(program, ChipGraph):
        return program
    if isinstance(program, Program):
        positions = range(len(program.inputs))
        chosen = {w for w in weights if isinstance(w, int)}
        if not chosen <= set(positions):
            raise ChipsError(
                f"weights has {max(chosen)} of inputs 0 to {len(positions) - 1}"
            )
        return program_graph(program, machine, chosen)
    if not callable(program):
        raise ChipsError(
            f"wanted a function, a program or a ChipGraph, got {type(program).__name__}"
        )
    captured = capture(program, args)
    chosen = _weight_inputs(captured.paths, weights)
    return program_graph(captured.program, machine, chosen)


def _weight_inputs(
    paths: Sequence[str], weights: str | Sequence[str] | Sequence[int]
) -> set[int]:
    """Positions of the inputs whose paths match a pattern or that are listed by position.

    If no input matches, the result is all inputs of the first argument.
    """
    patterns = (weights,) if isinstance(weights, str) else weights
    found = {
        i
        for i, path in enumerate(paths)
        for each in patterns
        if each == i or (isinstance(each, str) and fnmatch(path, each))
    }
    if found or not paths:
        return found
    first = paths[0].split(".")[0]
    of_first = {i for i, path in enumerate(paths) if path.split(".")[0] == first}
    return of_first if len(of_first) < len(paths) else set()


def _shipped(problem: ChipProblem, draft: Ints, seed: int) -> Iterator[Ints]:
    """Proposed assignments of ops to chips by the neural policy in this package."""
    yield from propose(problem, shipped_policy(), draft, seed)
