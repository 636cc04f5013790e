"""`overlap`: a tactic that decides which collectives run beside computation.

An all-gather or reduce-scatter and the matrix product next to it become a loop of
smaller products beside permutes. `partitioner/lower/overlap.py` makes these loops,
`predict/simulate/overlap_gate.py` decides whether one loop saves time, and `mark_faster`
whether the whole step is no slower with it. `partitioner/lower/combined.py` combines
small collectives, `gathers_ahead.py` lets gathers of scanned weights run one layer ahead,
and `loop_search.py` chooses loops for `autoplan`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial

from meshwright.errors import TacticError
from meshwright.machine import Machine, load_machine
from meshwright.partitioner.lower import ProductLoop
from meshwright.partitioner.structure.workspace import Refusal
from meshwright.partitioner.tactics import TacticKind, Workspace, as_code
from meshwright.planner.overlap.gathers_ahead import gathers_ahead, mark_ahead
from meshwright.planner.overlap.possible_loops import (
    equal_layers,
    loops_by_node,
    named_nodes,
    refused_by_rule,
    why_too_many_parts,
)
from meshwright.planner.overlap.step_times import (
    mark_faster,
    mark_loops,
    mark_saving,
    step_times,
)
from meshwright.predict.compilers.targets import compiler_of


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
    at: names of the inputs and ops whose collectives become loops; none to make loops
        wherever it is possible.
    ahead: whether loops gather the weights of their next iteration.
    """

    axis: str
    machine: Machine | str | None = None
    products: bool = True
    combine_bytes: int = 0
    at: tuple[str, ...] = ()
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
        loops = loops_by_node(work.state, axes)
        if not loops and not is_ahead:
            raise TacticError(
                f"overlap finds no all-gather along {self.axis!r} whose value a "
                "product reads first, and no reduce-scatter of a product; tactics that "
                "make them, such as sequence_parallel or fsdp, come before"
            )
        if self.at:
            loops = named_nodes(work, self.at, loops)
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
            mark_loops(work.state, loops, axes)
            return {}
        if "permute" not in compiler_of(machine).async_collectives:
            why = f"permutes on {machine.name} do not run beside products"
            return dict.fromkeys(loops, why)
        if why := why_too_many_parts(mesh, axes):
            return dict.fromkeys(loops, why)
        refused = refused_by_rule(loops, mesh, machine)
        worthwhile = [number for number in loops if number not in refused]
        groups = equal_layers(loops, worthwhile)
        slower = mark_faster(work.state, groups, axes, machine)
        rest = equal_layers(loops, refused)
        times_of = partial(step_times, machine=machine)
        for number in mark_saving(work.state, rest, axes, times_of):
            del refused[number]
        return refused | slower

    def __str__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if isinstance(self.machine, Machine):
            values["machine"] = self.machine.name
        values["at"] = list(self.at)
        options = "".join(
            f", {field.name}={values[field.name]!r}"
            for field in fields(self)[1:]
            if getattr(self, field.name) != field.default
        )
        return f"overlap({self.axis!r}{options})"

    def __repr__(self) -> str:
        return as_code(self)


def overlap(
    axis: str,
    *,
    machine: Machine | str | None = None,
    products: bool = True,
    combine_bytes: int = 0,
    at: Sequence[str] = (),
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
    at: names of inputs and ops, as in `pin`, whose collectives become loops; default all.
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
    if isinstance(at, str) or not all(isinstance(name, str) for name in at):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TacticError(
            f"overlap got at={at!r:.60}; wanted a list of names of inputs and ops, such "
            "as ['model.py:40 dot_general']"
        )
    return Overlap(axis, machine, products, int(combine_bytes), tuple(at), bool(ahead))
