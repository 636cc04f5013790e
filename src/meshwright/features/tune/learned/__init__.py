"""Learned performance models: rankings of a compiler's choices, without running them.

In: an HLO module (`hlo_graph`) with configurations, or files of TpuGraphs (`read_folder`).
Out: a `TrainedModel`, whose `scores` rank tilings of a kernel or layouts in a program, the
fastest lowest. Begin reading at `measured_graph.py`, the record of a data set, then
`network.py` and `training.py`. docs/learned.md has formats, figures and references.
"""

from meshwright.features.tune.learned.data_files import read_folder, read_npz, write_npz
from meshwright.features.tune.learned.features import layout_features, tile_features
from meshwright.features.tune.learned.graph_arrays import Lesson
from meshwright.features.tune.learned.hlo_graph import HloGraph, hlo_graph
from meshwright.features.tune.learned.measured_graph import (
    Collection,
    MeasuredGraph,
    Provenance,
)
from meshwright.features.tune.learned.network import NetworkConfig
from meshwright.features.tune.learned.trained_model import (
    Architecture,
    TrainedModel,
    TrainingConfig,
)
from meshwright.features.tune.learned.training import evaluate, train
from meshwright.learn.losses import Loss
from meshwright.learn.ranking import Ranking
from meshwright.learn.segments import SegmentOptions
from meshwright.learn.training import ModelCheckpoints

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
