"""`StepRecord`: the data that plans of all kinds have, on one mesh or as a pipeline."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from meshwright.app.record.parts import UnknownLoop
from meshwright.errors import PlanError
from meshwright.machine import Machine
from meshwright.planner.candidates.search_result import SearchResult
from meshwright.predict.figures import Figures


@dataclass(frozen=True, kw_only=True)
class StepRecord(ABC):
    """The data of a plan of any kind: figures of a step on a machine, and its search.

    name: name of the function.
    figures: time, memory and energy on a machine; `None` if the plan names no machine.
    tokens_per_step: tokens of a step, over all devices; `None` if the program has no
        tokens.
    token_input: path of the input that contains the tokens; "" if the number was given.
    search: the search by which `autoplan` found the plan; `None` for a plan made from given
        tactics, or read from JSON.
    unpriced: ops of unknown cost with their source lines; if there are any, time, memory
        and shares of work are lower bounds.
    loops: loops whose number of iterations depends on values, with the number that all
        counts and figures assume.
    recorded_candidates: for a searched plan that was read from JSON, the rows of the table
        of simulated plans.
    """

    name: str = ""
    figures: Figures | None = None
    tokens_per_step: int | None = None
    token_input: str = ""
    unpriced: tuple[str, ...] = ()
    loops: tuple[UnknownLoop, ...] = ()
    search: SearchResult | None = field(default=None, compare=False, repr=False)
    recorded_candidates: tuple[tuple[str, ...], ...] = field(
        default=(), compare=False, repr=False
    )

    # -- what each kind of plan has --------------------------------------------------------

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """Number of elements of all parameters, unsharded; 0 for no parameters."""

    @property
    @abstractmethod
    def layout(self) -> str:
        """The mesh as text, or the stages and their meshes."""

    @property
    @abstractmethod
    def machine(self) -> Machine:
        """The machine of the figures; `PlanError` if the plan was not simulated here."""

    @abstractmethod
    def sections(self, tips: Any) -> Sequence[str]:
        """HTML sections about the simulated step, which only this kind of plan has.

        tips: the `Tooltips` of the page.
        """

    @abstractmethod
    def trace_events(self, first: int) -> list[dict[str, Any]]:
        """Trace events of the simulated step; `first`: the number of the first process."""

    # -- with other data -------------------------------------------------------------------

    def named(self, name: str) -> Self:
        """This plan with another name, which appears on pages about it."""
        return replace(self, name=name)

    def with_tokens(self, per_step: int) -> Self:
        """This plan with a given number of tokens per step.

        It replaces the number that was found from the shapes of the inputs.
        """
        if isinstance(per_step, bool) or not isinstance(per_step, int) or per_step < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"{per_step!r} tokens per step; wanted 1 or more")
        return replace(self, tokens_per_step=per_step, token_input="")

    # -- figures on a machine --------------------------------------------------------------

    @property
    def step_time_s(self) -> float:
        """Simulated seconds of one step."""
        return figures_of(self).step_time_s

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, from 0 to 1.

        It is the share of the machine's 16-bit peak FLOP/s that the model's FLOPs reach in
        a step. What a step computes again to save memory counts once.
        """
        return figures_of(self).mfu

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilisation: as `mfu`, with what a step computes again."""
        return figures_of(self).hfu

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second, over all devices; `None` if the step has no tokens."""
        tokens = self.tokens_per_step
        return None if tokens is None else tokens / self.step_time_s

    @property
    def peak_memory_bytes(self) -> int:
        """Peak memory of one device, in bytes; of a pipeline, of the fullest one."""
        return figures_of(self).peak_memory_bytes

    @property
    def fits(self) -> bool:
        """Whether the peak memory is within what a device offers to programs."""
        return figures_of(self).fits

    @property
    def breakdown(self) -> Mapping[str, float]:
        """Seconds of one step by activity: computing, idle, and kinds of collectives.

        A kind has two entries: `all_reduce exposed` is time in which nothing is computed,
        `all_reduce hidden` is time that overlaps with computing. Of a pipeline, the seconds
        are means over its devices, and `bubble` is time in which a device waits for others.
        """
        return figures_of(self).breakdown

    @property
    def energy_j(self) -> float | None:
        """Energy of one step in joules, of all devices, with the data centre's overhead."""
        return figures_of(self).energy_j

    @property
    def cost_usd(self) -> float | None:
        """Price of one step in dollars, at the list price of the devices."""
        return figures_of(self).cost_usd

    @property
    def co2e_g(self) -> float | None:
        """Grams of CO2 equivalent of one step; `None` until `on` is given a place."""
        return figures_of(self).co2e_g


def require_plans(plans: Iterable[StepRecord]) -> tuple[StepRecord, ...]:
    """The plans as a tuple; `PlanError` if the argument is no list of plans."""
    if not isinstance(plans, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"others is {str(plans)[:60]!r}; wanted a list of plans")
    listed = tuple(plans)
    for plan in listed:
        if not isinstance(plan, StepRecord):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"others holds {str(plan)[:60]!r}; wanted a list of plans")
    return listed


def figures_of(plan: StepRecord) -> Figures:
    """The figures of a plan on its machine; `PlanError` if the plan names no machine."""
    if plan.figures is None:
        raise PlanError(
            'this plan names no machine; plan.on("tpu-v5p") gives one that does'
        )
    return plan.figures
