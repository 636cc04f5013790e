"""The planner's integer program as data, which `builder.py` builds."""

from dataclasses import dataclass

from meshwright.planner.integer_program.live_counts import BufferKey
from meshwright.planner.integer_program.resharding_tables import ResultSharding
from meshwright.planner.strategies.strategy import StrategySet
from meshwright.planner.strategies.symmetry import ReducedGraph
from meshwright.search.arrays import Floats


@dataclass(frozen=True, slots=True)
class SharedValue:
    """A result of a class with several readers; its choices are `shardings`."""

    producer: int
    result: int
    shardings: tuple[ResultSharding, ...]


@dataclass(frozen=True, slots=True)
class PairCost:
    """Seconds, and bytes of a copy, over the choices of two variables.

    copy_key: names the copy of the first variable's value that the second makes, in
    `LiveCounts.copies`. The copy takes the shares `copy_share` [A, B] of `num_bytes`, the
    bytes of the whole value.
    """

    first: int
    second: int
    seconds: Floats
    copy_key: BufferKey
    num_bytes: float
    copy_share: Floats


@dataclass(frozen=True, slots=True)
class IntegerProgram:
    """Variables: the node classes in order, then the shared values.

    choices: strategies of each class. costs: seconds per choice, of each variable.
    result_bytes: of each class, for each result, bytes of one value by choice; if the op
    reduces, then also bytes of the partial result that is reduce-scattered.
    """

    reduced_graph: ReducedGraph
    choices: tuple[StrategySet, ...]
    shared_values: tuple[SharedValue, ...]
    costs: tuple[Floats, ...]
    pair_costs: tuple[PairCost, ...]
    result_bytes: tuple[tuple[Floats, ...], ...]
