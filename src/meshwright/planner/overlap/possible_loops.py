"""The product loops that a program allows, their names, and the rule for each of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from meshwright.errors import TacticError
from meshwright.machine import Machine, Mesh
from meshwright.machine.placement import place_mesh
from meshwright.partitioner.lower import Gather, ProductLoop, lower, walk_loops
from meshwright.partitioner.propagate import Node, State
from meshwright.partitioner.structure.sites import all_sites_of
from meshwright.partitioner.structure.workspace import Workspace, find_nodes
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.simulate.overlap_gate import loop_times
from meshwright.predict.simulate.timeline import Setting

MOST_PARTS = 64
"""Largest number of parts of a loop that is compared with its collective and product.

Loops are unrolled, so that the simulation of a step with them takes as long as they have
parts. Over an axis of 2,048 H100, 15 loops took 70 s of processor time to build, and
were 10 to 100 times slower than their collectives: each part waits for a message.
"""

type Loops = Mapping[int, Sequence[ProductLoop]]
"""Product loops by the index of the node that their collective belongs to."""


def loops_by_node(
    state: State, axes: tuple[str, ...], gathers: Iterable[Gather] = tuple(Gather)
) -> Loops:
    """The loops that are possible along these axes, by the node of their collective.

    A node has one loop for each way to gather (once, or at each use), since a plan may
    use either.
    """
    found: dict[int, list[ProductLoop]] = {}
    for gather in gathers:
        lowered = lower(state, gather)
        origins = lowered.origins
        loops = walk_loops(
            lowered.program,
            lambda op, known=origins: op in known and op.params["axes"] == axes,
        )
        for loop in loops:
            found.setdefault(origins[loop.collective].node, []).append(loop)
    return found


def equal_layers(loops: Loops, nodes: Iterable[int]) -> list[list[int]]:
    """The nodes in groups whose loops have ops of the same kinds and result types.

    Loops of equal layers are decided together: each decision simulates the whole step, so
    that deciding them one by one takes time that grows with the square of the layers.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for number in nodes:
        shapes = tuple(
            f"{op.kind} {op.results[0]}"
            for loop in loops[number]
            for op in (loop.collective, *loop.products)
        )
        groups.setdefault(shapes, []).append(number)
    return list(groups.values())


def why_too_many_parts(mesh: Mesh, axes: tuple[str, ...]) -> str:
    """The reason why no loop along these axes is worth a simulation; "" if one may be."""
    count = mesh.size(axes)
    if count <= MOST_PARTS:
        return ""
    return f"a loop would have {count:,} parts, and at most {MOST_PARTS} are simulated"


def refused_by_rule(loops: Loops, mesh: Mesh, machine: Machine) -> dict[int, str]:
    """The loops that are slower than collective and product, each with both times."""
    kinds = compiler_of(machine).async_collectives
    setting = Setting(place_mesh(mesh, machine), kinds)
    refused: dict[int, str] = {}
    for number, found in loops.items():
        times = [loop_times(loop, mesh, setting) for loop in found]
        slower = [each for each in times if not each.is_worthwhile]
        if slower:
            refused[number] = str(slower[0])
    return refused


def names_of(work: Workspace, numbers: Collection[int]) -> tuple[str, ...]:
    """Names of inputs and ops that `named_nodes` reads; they select exactly these nodes."""
    wanted = sorted(numbers)
    nodes = [work.graph.nodes[number] for number in wanted]
    inputs = zip(work.paths, work.graph.input_nodes, strict=True)
    paths = [path for path, node in inputs if node.index in numbers]
    ops = [node for node in nodes if node.input_position is None]
    return (*paths, *all_sites_of(work.graph).names(ops))


def named_nodes(work: Workspace, names: Sequence[str], loops: Loops) -> Loops:
    """The loops of the named inputs and ops; `TacticError` for a name without a loop."""
    found: dict[int, Sequence[ProductLoop]] = {}
    for name in names:
        nodes = [node for node in _find(work, name) if node.index in loops]
        if not nodes:
            known = ", ".join(map(repr, names_of(work, list(loops))[:8]))
            raise TacticError(
                f"overlap: no collective of {name!r} can become a loop here; those of "
                f"{known} can"
            )
        found |= {node.index: loops[node.index] for node in nodes}
    return dict(sorted(found.items()))


def _find(work: Workspace, name: str) -> list[Node]:
    if " " in name:
        return all_sites_of(work.graph).find(name)
    return [node for _, node in find_nodes(work, name)]
