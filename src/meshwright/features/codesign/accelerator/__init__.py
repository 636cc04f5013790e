"""Search for a machine: datapath and memories of a chip for the programs that it runs.

Begin reading at `command.py`, which is `meshwright accelerator`. `design` reads a design,
`mapping` finds how it computes a product, `simulate` how it runs a program.
"""

from meshwright.features.codesign.accelerator.cost.chip_cost import ChipCost
from meshwright.features.codesign.accelerator.design.design import Design, design_names
from meshwright.features.codesign.accelerator.mapping.map_product import map_product
from meshwright.features.codesign.accelerator.mapping.product import ProductMapping
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
    "ProductMapping",
    "Workload",
    "design_names",
    "evaluate",
    "evaluate_workload",
    "map_product",
    "workload_of",
]
