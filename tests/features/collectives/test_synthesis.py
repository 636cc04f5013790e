"""The enumeration of reduction programs: P2's totals, and a plain oracle."""

from collections import Counter
from itertools import product

import pytest

from meshwright.errors import CollectiveError
from meshwright.features.collectives.hierarchy import placements
from meshwright.features.collectives.reductions import reductions
from meshwright.features.collectives.semantics import ReductionGoal, why_wrong
from meshwright.features.collectives.synthesis import instructions, synthesize


def test_programs_by_size():
    """P2 finds nothing new above four steps on two levels."""
    assert len(synthesize((8,))) == 3
    sizes = Counter(map(len, synthesize((2, 16), most_steps=6)))
    assert sizes == {1: 1, 2: 4, 3: 19, 4: 23}
    assert len(synthesize((2, 2, 2))) == 662
    assert synthesize((1, 1)) == ((),)


@pytest.mark.parametrize("goal", ReductionGoal)
@pytest.mark.parametrize("factors", [(3,), (2, 3), (3, 2), (4, 4)])
def test_programs_are_those_of_trying_everything(factors, goal):
    every = instructions(factors)
    tried = {
        program
        for size in range(1, 4)
        for program in product(every, repeat=size)
        if why_wrong(program, factors, goal) is None
    }
    assert set(synthesize(factors, goal, most_steps=3)) == tried


TOTALS = [
    # system, axes, reduced axes, programs over all placements (P2, table 4, appendix A)
    ([2, 16], [32], [0], 47),
    ([2, 16], [2, 16], [0], 6),
    ([2, 16], [2, 16], [1], 50),
    ([2, 16], [4, 8], [0], 50),
    ([2, 16], [4, 8], [1], 50),
    ([2, 16], [8, 4], [0], 50),
    ([2, 16], [8, 4], [1], 50),
    ([2, 16], [16, 2], [0], 50),
    ([2, 16], [16, 2], [1], 6),
    ([4, 8], [32], [0], 47),
    ([4, 8], [2, 16], [0], 6),
    ([4, 8], [2, 16], [1], 94),
    ([4, 8], [4, 8], [0], 53),
    ([4, 8], [4, 8], [1], 97),
    ([4, 8], [8, 4], [0], 97),
    ([4, 8], [8, 4], [1], 53),
    ([4, 8], [16, 2], [0], 94),
    ([4, 8], [16, 2], [1], 6),
    ([4, 8], [2, 2, 8], [0, 2], 188),
    ([4, 8], [8, 2, 2], [0, 2], 188),
]


@pytest.mark.parametrize(("system", "axes", "reduced", "total"), TOTALS)
def test_the_totals_of_p2(system, axes, reduced, total):
    counts = [len(reductions(system, m, reduced)) for m in placements(system, axes)]
    assert sum(counts) == total


def test_too_many_levels_are_refused():
    with pytest.raises(CollectiveError, match="at most 5"):
        synthesize((2,) * 6)
    with pytest.raises(CollectiveError, match="most_steps is 0"):
        synthesize((2,), most_steps=0)
