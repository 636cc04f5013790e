"""The planner's integer program as data, which `builder.py` builds."""

from dataclasses import dataclass

from meshwright.planner.integer_program.live_counts import BufferKey
from meshwright.planner.integer_program.resharding_tables import ResultSharding
from meshwright.planner.strategies.strategy import StrategySet
from meshwright.planner.strategies.symmetry import ReducedGraph
from meshwright.search.arrays import Floats


@dataclass(frozen=True, slots=True)
class SharedValue:
    """A value with several readers, as a variable of the integer program.

    producer, result: the node class that computes it, and the number of the result.
    shardings: the variable's choices, in which the value can be kept.
    """

    producer: int
    result: int
    shardings: tuple[ResultSharding, ...]


@dataclass(frozen=True, slots=True)
class PairCost:
    """Seconds of resharding, and bytes of the copy, over the choices of two variables.

    first, second: numbers of the variables, with A and B choices. seconds: [A, B].
    copy_key: key in `LiveCounts.copies` of the copy that the second variable makes of
    the first one's value. num_bytes: bytes of the whole value. copy_share: the share of
    them that the copy takes on a device, [A, B].
    """

    first: int
    second: int
    seconds: Floats
    copy_key: BufferKey
    num_bytes: float
    copy_share: Floats


@dataclass(frozen=True, slots=True)
class IntegerProgram:
    """The integer program. Its variables are the node classes, then the shared values.

    choices: strategies of each class. costs: seconds per choice, for each variable.
    result_bytes: for each class, for each of its results, bytes of one value by choice;
    one more entry for an op that reduces: bytes of its partial result if that is
    reduce-scattered.
    """

    reduced_graph: ReducedGraph
    choices: tuple[StrategySet, ...]
    shared_values: tuple[SharedValue, ...]
    costs: tuple[Floats, ...]
    pair_costs: tuple[PairCost, ...]
    result_bytes: tuple[tuple[Floats, ...], ...]
