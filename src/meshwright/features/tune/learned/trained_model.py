"""A trained model: its configuration, parameters and training curve, and its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.baseline_networks import (
    early_join_sage,
    init_early_join_sage,
    init_residual_gcn,
    residual_gcn,
)
from meshwright.features.tune.learned.graph_arrays import Scaler, graph_inputs
from meshwright.features.tune.learned.measured_graph import Collection, MeasuredGraph
from meshwright.features.tune.learned.network import (
    NetworkConfig,
    graph_scores,
    init_params,
)
from meshwright.learn.arrays import (
    leaves_of,
    numbered_leaves,
    read_arrays,
    restored_tree,
    save_arrays,
)
from meshwright.learn.layers import Params
from meshwright.learn.losses import Loss
from meshwright.learn.segments import InputFn, SegmentOptions
from meshwright.learn.training import CurvePoint, TrainingSchedule
from meshwright.plain import Frame


class Architecture(Enum):
    """The networks that can be trained: ours, and the two baselines of TpuGraphs."""

    OURS = "sage"
    TILE_BASELINE = "early-join-sage"
    LAYOUT_BASELINE = "residual-gcn"


InitFn = Callable[[Any, NetworkConfig, int], Params]
ScoreFn = Callable[[Params, Any, Any, Any], Any]

ARCHITECTURES: Mapping[Architecture, tuple[InitFn, ScoreFn]] = {
    Architecture.OURS: (init_params, graph_scores),
    Architecture.TILE_BASELINE: (init_early_join_sage, early_join_sage),
    Architecture.LAYOUT_BASELINE: (init_residual_gcn, residual_gcn),
}


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Everything that decides a training, so that the same record gives the same model.

    configs_per_step: configurations of one graph that a step ranks. segments: `None`
        trains whole graphs. warmup: share of the steps before the full learning rate.
    """

    network: NetworkConfig
    seed: int
    epochs: int = 100
    architecture: Architecture = Architecture.OURS
    loss: Loss = Loss.HINGE
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    warmup: float = 0.05
    configs_per_step: int = 32
    segments: SegmentOptions | None = None

    def __post_init__(self) -> None:
        if self.configs_per_step < 2:
            raise LearnedError(f"{self}: configs_per_step must be at least 2")
        _ = self.schedule  # which is checked as it is made
        if self.segments and self.architecture is not Architecture.OURS:
            raise LearnedError(
                f"graph segment training needs a sum over nodes: {self.architecture.value}"
                f" has none; use {Architecture.OURS.value}, or whole graphs"
            )

    @property
    def schedule(self) -> TrainingSchedule:
        return TrainingSchedule(self.seed, self.epochs, self.learning_rate, self.warmup)


_CONFIG = Frame(LearnedError, "this is no configuration of a training")


@dataclass(frozen=True, slots=True, eq=False)
class TrainedModel:
    """A network with its parameters after some epochs of training.

    optimizer_state: leaves of optax's state, with which training can continue. table:
        stored scores of segments, by graph, for graph segment training.
    """

    config: TrainingConfig
    scaler: Scaler
    params: Params
    curve: tuple[CurvePoint, ...] = ()
    optimizer_state: tuple[NDArray[Any], ...] = ()
    table: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    @classmethod
    def new(
        cls, config: TrainingConfig, graphs: Sequence[MeasuredGraph]
    ) -> TrainedModel:
        """An untrained model whose features are standardised by the training set."""
        scaler = Scaler.fit(graphs, config.network.lessons)
        init_fn, _ = ARCHITECTURES[config.architecture]
        jitted: Any = jax.jit(init_fn, static_argnums=(1, 2))
        key = jax.random.key(config.seed)
        params = jitted(key, config.network, len(scaler.node_mean))
        return cls(config, scaler, params)

    def scores(self, measured: MeasuredGraph, batch: int = 128) -> NDArray[np.float64]:
        """The scores [c] of a graph's configurations; the lowest is predicted fastest.

        Attention compares the configurations of a batch with each other. So they are
        divided into random batches of size `batch`.
        """
        input_fns = self.input_fns(measured)
        _, score_fn = ARCHITECTURES[self.config.architecture]
        jitted: Any = jax.jit(score_fn)
        total = np.zeros(measured.num_configs)
        drawn = batches(measured.num_configs, batch, np.random.default_rng(0))
        for configs, mask in drawn:
            for input_fn in input_fns:
                scores = np.asarray(jitted(self.params, *input_fn(configs), mask))
                total[configs[mask > 0]] += scores[mask > 0]
        return total

    def input_fns(self, measured: MeasuredGraph) -> list[InputFn]:
        """One function per part of a graph: its arrays, and features of configurations."""
        network, segments = self.config.network, self.config.segments
        check_collection(network.collection, measured)
        num_nodes = segments.num_nodes if segments else None
        return graph_inputs(measured, self.scaler, network.lessons, num_nodes)

    def save(self, path: Path) -> None:
        """Write the model to a file; an interruption leaves no partial file."""
        curve = [(p.epoch, p.loss, p.valid_score) for p in self.curve]
        arrays = {
            **numbered_leaves("param_", self.params),
            **numbered_leaves("state_", self.optimizer_state),
            **{f"table_{name}": rows for name, rows in self.table.items()},
            **asdict(self.scaler),
            "config": np.array(_CONFIG.write(self.config)),
            "curve": np.array(curve, np.float64).reshape(-1, 3),
        }
        save_arrays(path, arrays)

    @classmethod
    def load(cls, path: Path) -> TrainedModel:
        """Read a model from a file that `save` wrote."""
        arrays = read_arrays(path)
        try:
            config = _CONFIG.read(TrainingConfig, str(arrays["config"]))
            scaler = Scaler(*(arrays[name] for name in Scaler.__dataclass_fields__))
        except (ValueError, KeyError, TypeError, LearnedError) as fault:
            raise LearnedError(
                f"{path} is no model of `meshwright learned train` ({fault}): train again"
            ) from fault
        init_fn, _ = ARCHITECTURES[config.architecture]
        form = jax.eval_shape(
            lambda key: init_fn(key, config.network, len(scaler.node_mean)),
            jax.random.key(0),
        )
        params = restored_tree(form, arrays, "param_", path)
        curve = (CurvePoint(int(e), loss, opa) for e, loss, opa in arrays["curve"])
        table = {k[6:]: rows for k, rows in arrays.items() if k.startswith("table_")}
        state = leaves_of(arrays, "state_")
        return cls(config, scaler, params, tuple(curve), state, table)


def check_collection(collection: Collection, measured: MeasuredGraph) -> None:
    """Raise if a graph has tilings and the model ranks layouts, or the other way round."""
    if measured.collection is not collection:
        raise LearnedError(
            f"{measured.name} has configurations of the {measured.collection.value} "
            f"collection, the model is for {collection.value}: train one for each"
        )


def batches(
    count: int, batch: int, random: np.random.Generator
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The numbers below `count` in random batches of one size, with masks 0 for padding."""
    size = min(batch, max(8, count))
    order = random.permutation(count)
    padded = np.pad(order, (0, -count % size))
    masks = (np.arange(len(padded)) < count).astype(np.float32)
    return list(zip(padded.reshape(-1, size), masks.reshape(-1, size), strict=True))
