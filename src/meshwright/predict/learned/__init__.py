"""Learned performance models: rankings of a compiler's choices, without running them.

In: an HLO module (`hlo_graph`) with configurations, or files of TpuGraphs (`read_folder`).
Out: a `TrainedModel`, whose `scores` rank tilings of a kernel or layouts in a program, the
fastest lowest. Begin reading at `measured_graph.py`, the record of a data set, then
`network.py` and `training.py`. docs/learned.md has formats, figures and references.
"""

from meshwright.predict.learned.data_files import read_folder, read_npz, write_npz
from meshwright.predict.learned.features import layout_features, tile_features
from meshwright.predict.learned.graph_arrays import Lesson
from meshwright.predict.learned.hlo_graph import HloGraph, hlo_graph
from meshwright.predict.learned.losses import Loss
from meshwright.predict.learned.measured_graph import (
    Collection,
    MeasuredGraph,
    Provenance,
)
from meshwright.predict.learned.metrics import Ranking
from meshwright.predict.learned.network import NetworkConfig
from meshwright.predict.learned.trained_model import (
    Architecture,
    SegmentOptions,
    TrainedModel,
    TrainingConfig,
)
from meshwright.predict.learned.training import ModelCheckpoints, evaluate, train

__all__ = [
    "Architecture",
    "Collection",
    "HloGraph",
    "Lesson",
    "Loss",
    "MeasuredGraph",
    "ModelCheckpoints",
    "NetworkConfig",
    "Provenance",
    "Ranking",
    "SegmentOptions",
    "TrainedModel",
    "TrainingConfig",
    "evaluate",
    "hlo_graph",
    "layout_features",
    "read_folder",
    "read_npz",
    "tile_features",
    "train",
    "write_npz",
]
