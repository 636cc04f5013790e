"""The planner's integer program as plain data: variables, choices and their costs.

`builder.py` builds it.
"""

from dataclasses import dataclass

from meshwright.planner.integer_program.live_counts import BufferKey
from meshwright.planner.integer_program.resharding_tables import ResultSharding
from meshwright.planner.strategies.strategy import StrategySet
from meshwright.planner.strategies.symmetry import ReducedGraph
from meshwright.search.arrays import Floats


@dataclass(frozen=True, slots=True)
class SharedValue:
    """A value with several readers, which is a variable of the integer program.

    producer: number of the node class that computes the value.
    result: number of the value among that node's results.
    shardings: the variable's choices: shardings in which the value can be kept for its
        readers.
    """

    producer: int
    result: int
    shardings: tuple[ResultSharding, ...]


@dataclass(frozen=True, slots=True)
class PairCost:
    """Costs of the pairs of choices of two variables that a value connects.

    first, second: numbers of the two variables, which have A and B choices.
    seconds: seconds of resharding the value, [A, B].
    copy_key: key in `LiveCounts.copies` of the copy that the second variable makes of
        the first variable's value.
    num_bytes: bytes of the whole value.
    copy_share: the share of these bytes that the copy takes on a device, [A, B].
    """

    first: int
    second: int
    seconds: Floats
    copy_key: BufferKey
    num_bytes: float
    copy_share: Floats


@dataclass(frozen=True, slots=True)
class IntegerProgram:
    """The integer program: which choice of each variable makes the step fastest.

    Its variables are the node classes (classes of equal ops), then the shared values.
    choices: strategies of each class.
    costs: for each variable, the seconds of each choice in a step.
    pair_costs: further costs that depend on the choices of two variables.
    result_bytes: for each class and each of its results, the bytes of one value by
        choice. An op that reduces has one more entry: the bytes of its partial result
        if that is reduce-scattered.
    """

    reduced_graph: ReducedGraph
    choices: tuple[StrategySet, ...]
    shared_values: tuple[SharedValue, ...]
    costs: tuple[Floats, ...]
    pair_costs: tuple[PairCost, ...]
    result_bytes: tuple[tuple[Floats, ...], ...]
