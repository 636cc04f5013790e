"""`overlap`: a tactic that decides which collectives run beside computation.

An all-gather or reduce-scatter and the matrix product next to it become a loop of
smaller products beside permutes. `partitioner/lower/overlap.py` makes these loops,
`predict/simulate/overlap_gate.py` decides whether one loop saves time, and `mark_faster`
whether the whole step is no slower with it. `partitioner/lower/combined.py` combines
small collectives, and `ahead.py` lets gathers of scanned weights run one layer ahead.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from meshwright.errors import TacticError
from meshwright.machine import Machine, load_machine
from meshwright.machine.placement import place_mesh
from meshwright.partitioner.lower import Gather, ProductLoop, lower, walk_loops
from meshwright.partitioner.propagate import State
from meshwright.partitioner.structure.workspace import Refusal
from meshwright.partitioner.tactics import TacticKind, Workspace, as_code
from meshwright.planner.overlap.ahead import gathers_ahead, mark_ahead
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.predict.estimate import simulated_s
from meshwright.predict.simulate.overlap_gate import loop_times
from meshwright.predict.simulate.timeline import Setting


@dataclass(frozen=True, slots=True, repr=False)
class Overlap:
    """The tactic that runs collectives along an axis beside matrix products.

    before: y = all_gather(x); z = y @ w
    after: parts of x are permuted around the axis; while one part is multiplied, the
    next arrives

    machine: the machine on which a loop has to be faster; `None` to make all loops.
    products: whether to make loops at all.
    combine_bytes: bytes up to which small collectives are combined into one; 0 to
        combine none.
    ahead: whether loops gather the weights of their next iteration.
    """

    axis: str
    machine: Machine | str | None = None
    products: bool = True
    combine_bytes: int = 0
    ahead: bool = False
    kind = TacticKind.STRATEGY
    rewrite = None

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.axis,)

    def apply(self, work: Workspace) -> None:
        """Mark the collectives that become loops; `TacticError` if there are none.

        A loop that would be slower on the machine is recorded as a refusal of the plan.
        """
        axes = work.sub_axes[work.mesh.require(self.axis)]
        if self.combine_bytes:
            work.state.combine(axes, self.combine_bytes)
        is_ahead = self.ahead and self._gather_ahead(work, axes)
        if self.products:
            self._make_loops(work, axes, is_ahead)

    def _gather_ahead(self, work: Workspace, axes: tuple[str, ...]) -> bool:
        """Mark the gathers that run one iteration ahead; whether any could."""
        found = gathers_ahead(work.state, axes)
        if not found.nodes and not self.products:
            reasons = "; ".join(dict.fromkeys(found.why_not.values()))
            raise TacticError(
                f"{self} finds no loop that gathers slices of stacked weights along "
                f"{self.axis!r}{f' ({reasons})' if reasons else ''}; scan over layers, and "
                "put zero(3) or fsdp before it"
            )
        refused = mark_ahead(work.state, found.nodes, axes, self._machine(work))
        self._refuse(work, {**found.why_not, **refused})
        return bool(found.nodes)

    def _machine(self, work: Workspace) -> Machine | None:
        if isinstance(self.machine, str):
            return load_machine(self.machine, work.mesh.num_devices)
        return self.machine

    def _make_loops(
        self, work: Workspace, axes: tuple[str, ...], is_ahead: bool
    ) -> None:
        loops = _loops_by_node(work, axes)
        if not loops and not is_ahead:
            raise TacticError(
                f"{self} finds no all-gather along {self.axis!r} whose value a product "
                "reads first, and no reduce-scatter of a product; tactics that make "
                "them, such as sequence_parallel or fsdp, come before"
            )
        self._refuse(work, self._gated(work, loops, axes))

    def _refuse(self, work: Workspace, reasons: Mapping[int, str]) -> None:
        for number, why_not in reasons.items():
            node = work.graph.nodes[number]
            name = f"{node.source} {node.label}".strip()
            work.refusals.append(Refusal(name, self.axis, why_not))

    def _gated(
        self,
        work: Workspace,
        loops: Mapping[int, Sequence[ProductLoop]],
        axes: tuple[str, ...],
    ) -> dict[int, str]:
        """Mark the loops that save time; the reason why not, by node, of the others."""
        machine, mesh = self._machine(work), work.state.mesh
        if machine is None:
            _mark(work.state, loops, axes)
            return {}
        kinds = compiler_of(machine).async_collectives
        setting = Setting(place_mesh(mesh, machine), kinds)
        if "permute" not in kinds:
            why = f"permutes on {machine.name} do not run beside products"
            return dict.fromkeys(loops, why)
        refused: dict[int, str] = {}
        for number, found in loops.items():
            times = [loop_times(loop, mesh, setting) for loop in found]
            slower = [each for each in times if not each.is_worthwhile]
            if slower:
                refused[number] = str(slower[0])
        worthwhile = [number for number in loops if number not in refused]
        slower = mark_faster(work.state, worthwhile, axes, machine)
        for number in mark_saving(work.state, list(refused), axes, machine):
            del refused[number]
        return refused | slower

    def __str__(self) -> str:
        options = ""
        if self.machine is not None:
            name = self.machine if isinstance(self.machine, str) else self.machine.name
            options += f", machine={name!r}"
        if not self.products:
            options += ", products=False"
        if self.combine_bytes:
            options += f", combine_bytes={self.combine_bytes}"
        if self.ahead:
            options += ", ahead=True"
        return f"overlap({self.axis!r}{options})"

    def __repr__(self) -> str:
        return as_code(self)


def mark_faster(
    state: State, nodes: Sequence[int], axes: tuple[str, ...], machine: Machine
) -> dict[int, str]:
    """Mark the loops that do not make the simulated step slower.

    The step counts with either way to gather, since a plan may use either. A collective
    that runs beside other work already has less to gain than the rule for one loop says.
    If all loops together make a step slower, each is decided by itself, in order.
    Returns the reasons against the loops that are not marked, by node.
    """
    if not nodes:
        return {}
    before, mark = _steps_s(state, machine), state.mark()
    _mark(state, nodes, axes)
    if _is_none_slower(_steps_s(state, machine), before):
        return {}
    state.rollback(mark)
    refused: dict[int, str] = {}
    for number in nodes:
        mark = state.mark()
        state.overlap(number, axes)
        after = _steps_s(state, machine)
        if _is_none_slower(after, before):
            before = after
        else:
            state.rollback(mark)
            refused[number] = _why_slower(before, after)
    return refused


def mark_saving(
    state: State, nodes: Sequence[int], axes: tuple[str, ...], machine: Machine
) -> list[int]:
    """Mark each loop with which the simulated step is faster; returns their nodes.

    The rule for one loop refuses some of these, since it does not know what else the
    collective or the loop runs beside.
    """
    found: list[int] = []
    before = _steps_s(state, machine) if nodes else {}
    for number in nodes:
        mark = state.mark()
        state.overlap(number, axes)
        after = _steps_s(state, machine)
        if _is_none_slower(after, before) and after != before:
            before = after
            found.append(number)
        else:
            state.rollback(mark)
    return found


def _mark(state: State, nodes: Iterable[int], axes: tuple[str, ...]) -> None:
    for number in nodes:
        state.overlap(number, axes)


def _steps_s(state: State, machine: Machine) -> dict[Gather, float]:
    """Simulated seconds of a step, by the way to gather: a plan may use either."""
    return {
        gather: simulated_s(lower(state, gather, XLA_WORKAROUNDS), machine)
        for gather in Gather
    }


def _is_none_slower(
    after: Mapping[Gather, float], before: Mapping[Gather, float]
) -> bool:
    return all(after[gather] <= before[gather] for gather in before)


def _why_slower(before: Mapping[Gather, float], after: Mapping[Gather, float]) -> str:
    slower = next(gather for gather in before if after[gather] > before[gather])
    return (
        f"the simulated step (gather={slower.value!r}) takes {1e3 * before[slower]:.6g} "
        f"ms without this loop, and {1e3 * after[slower]:.6g} ms with it"
    )


def _loops_by_node(
    work: Workspace, axes: tuple[str, ...]
) -> dict[int, list[ProductLoop]]:
    """The loops that are possible along these axes, by the node of their collective.

    A node has one loop for each way to gather (once, or at each use), since a plan may
    use either.
    """
    found: dict[int, list[ProductLoop]] = {}
    for gather in Gather:
        lowered = lower(work.state, gather)
        origins = lowered.origins
        loops = walk_loops(
            lowered.program,
            lambda op, known=origins: op in known and op.params["axes"] == axes,
        )
        for loop in loops:
            found.setdefault(origins[loop.collective].node, []).append(loop)
    return found


def overlap(
    axis: str,
    *,
    machine: Machine | str | None = None,
    products: bool = True,
    combine_bytes: int = 0,
    ahead: bool = False,
) -> Overlap:
    """Run collectives along an axis at the same time as matrix products.

    An all-gather whose value a product reads first becomes a loop: while one part is
    multiplied, the next comes from a neighbour. A reduce-scatter of a product becomes a
    loop of products of parts, added to a sum that goes around the axis (Wang et al.,
    ASPLOS 2023; XLA's windowed einsum). The tactic comes after those that make such
    collectives, for instance `sequence_parallel` and `fsdp`.
    machine: only loops that the model predicts to be faster on this machine are made,
        and none with which the simulated step would be slower; a name means a machine
        with as many devices as the mesh. By default all loops are made.
    products: whether to make such loops.
    combine_bytes: small collectives of a kind along the axis that do not depend on each
        other are combined into one, up to this many bytes together, since each takes at
        least the latency of the links. 0 combines none.
    ahead: whether a scan over layers with sharded weights gathers the weights of the next
        layer while it computes this one (prefetch), and carries them. With a machine, only
        the gathers are moved with which the simulated step is faster.
    When it is applied, it raises `TacticError` if there is nothing to overlap.
    """
    if not isinstance(axis, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TacticError(f"overlap got {axis!r} as axis; wanted the name of one")
    if not isinstance(machine, Machine | str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TacticError(
            f"overlap got machine={machine!r:.60}; wanted a machine or its name"
        )
    if isinstance(combine_bytes, bool) or combine_bytes < 0:
        raise TacticError(
            f"overlap got combine_bytes={combine_bytes!r}; wanted 0 or more bytes"
        )
    if not products and not combine_bytes and not ahead:
        raise TacticError(
            "overlap got products=False and no combine_bytes, which leaves it nothing to "
            "do; give the bytes up to which collectives are combined, or ahead=True"
        )
    return Overlap(axis, machine, products, int(combine_bytes), bool(ahead))
