"""Search for a machine: datapath and memories of a chip for the programs that it runs.

Begin reading at `command.py`, which is `meshwright accelerator`. `design` reads a design,
`mapping` finds how it computes a product, `simulate` how it runs a program.
"""

from meshwright.features.codesign.accelerator.approximate.dots import approximate_dot
from meshwright.features.codesign.accelerator.approximate.folder import (
    read_multipliers,
    write_multiplier,
)
from meshwright.features.codesign.accelerator.approximate.library import (
    LIBRARY,
    broken_array,
    exact,
    mitchell,
    truncated,
)
from meshwright.features.codesign.accelerator.approximate.multiplier import (
    Multiplier,
    MultiplierFigures,
)
from meshwright.features.codesign.accelerator.approximate.quantised import (
    QuantisedNetwork,
)
from meshwright.features.codesign.accelerator.approximate.route import (
    RoutedNetwork,
    route,
)
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
    "LIBRARY",
    "ChipCost",
    "Design",
    "Evaluation",
    "FoundDesign",
    "Multiplier",
    "MultiplierFigures",
    "ProductMapping",
    "QuantisedNetwork",
    "RoutedNetwork",
    "Workload",
    "approximate_dot",
    "broken_array",
    "datapaths",
    "design_names",
    "die_shrunk",
    "evaluate",
    "evaluate_workload",
    "exact",
    "map_product",
    "mitchell",
    "read_multipliers",
    "route",
    "search_design",
    "truncated",
    "workload_of",
    "write_multiplier",
]
