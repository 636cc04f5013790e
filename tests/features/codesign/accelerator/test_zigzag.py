"""Mappings of products against zigzag-dse 3.9.1, which enumerates orders of loops.

The products are large enough for the first load to matter little, and their tiles divide
their dims; `benchmarks/codesign/zigzag_layers.py` has others.
"""

import pytest

from benchmarks.codesign.zigzag_runs import (
    COLUMNS,
    DESIGN,
    counted,
    covered,
    loops_of,
)
from meshwright.codesign import accelerator as acc

pytestmark = [
    pytest.mark.codesign,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (3136, 64, 256),
        (49, 2048, 512),
        (196, 384, 64),
        (64, 2048, 1024),
        (49, 512, 2048),
    ],
)
def test_a_mapping_is_as_good_as_the_best_of_zigzag(m, n, k, tmp_path):
    """Energy and cycles within 15 %; by its count ours takes at most 5 % more energy."""
    extents = {"M": m, "N": n, "K": k}
    best = counted(tmp_path, extents, "EDP")
    ours = acc.map_product(DESIGN, m=m, n=n, k=k, dataflow="ws")
    assert ours.energy_j * 1e12 == pytest.approx(best.energy_pj, rel=0.15)
    assert ours.cycles + ours.stall_cycles == pytest.approx(best.cycles, rel=0.15)
    same = min(
        counted(tmp_path, covered(loops, extents), "EDP", loops).energy_pj
        for loops in (loops_of(ours, extents, divides) for divides in (True, False))
    )
    assert same <= 1.05 * best.energy_pj


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1000, 2048), (16, 1024, 512)])
def test_products_of_few_rows_wait_for_each_load_as_zigzag_counts_it(m, n, k, tmp_path):
    """It takes in a row of weights a cycle, and counts the first load besides."""
    extents = {"M": m, "N": n, "K": k}
    best = counted(tmp_path, extents, "latency", weights_rate=COLUMNS)
    ours = acc.map_product(DESIGN, m=m, n=n, k=k, dataflow="ws")
    assert ours.cycles + ours.stall_cycles == pytest.approx(best.cycles, rel=0.15)
