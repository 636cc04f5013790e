"""Learned performance models: rankings of a compiler's choices, without running them.

In: an HLO module (`hlo_graph`) with configurations, or files of TpuGraphs (`read_folder`).
Out: a `TrainedModel`, whose `scores` rank tilings of a kernel or layouts in a program, the
fastest lowest. Begin reading at `measured_graph.py`, the record of a data set, then
`network.py` and `training.py`. docs/learned.md has formats, figures and references.
"""

from meshwright.features.tune.learned.data_files import read_folder
from meshwright.features.tune.learned.hlo_graph import hlo_graph
from meshwright.features.tune.learned.training import train

__all__ = ["hlo_graph", "read_folder", "train"]
