"""Search for a machine: datapath and memories of a chip for the programs that it runs.

Begin reading at `command.py`, which is `meshwright accelerator`. `design` reads a design,
`mapping` finds how it computes a product, `simulate` how it runs a program.
"""

from meshwright.features.codesign.accelerator.cost.chip_cost import ChipCost
from meshwright.features.codesign.accelerator.design.design import Design, design_names
from meshwright.features.codesign.accelerator.mapping.map_product import map_product
from meshwright.features.codesign.accelerator.mapping.product import ProductMapping
from meshwright.features.codesign.accelerator.search.search import (
    FoundDesign,
    die_shrunk,
    search_design,
)
from meshwright.features.codesign.accelerator.search.space import datapaths
from meshwright.features.codesign.accelerator.simulate.evaluate import (
    Evaluation,
    evaluate,
    evaluate_workload,
)
from meshwright.features.codesign.accelerator.workload.layers import (
    Workload,
    workload_of,
)

__all__ = [
    "ChipCost",
    "Design",
    "Evaluation",
    "FoundDesign",
    "ProductMapping",
    "Workload",
    "datapaths",
    "design_names",
    "die_shrunk",
    "evaluate",
    "evaluate_workload",
    "map_product",
    "search_design",
    "workload_of",
]
