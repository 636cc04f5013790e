"""`meshwright learned`: data sets and models that rank a compiler's choices."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from meshwright.app.check.sample import sample_arguments
from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import AsJson, TargetText
from meshwright.cli.arguments.target import find_target
from meshwright.errors import LearnedError
from meshwright.features.tune.learned.baselines import (
    Scorer,
    boosted_trees,
    plain_scorers,
)
from meshwright.features.tune.learned.data_files import read_folder, write_npz
from meshwright.features.tune.learned.graph_arrays import Lesson
from meshwright.features.tune.learned.measured_graph import Collection
from meshwright.features.tune.learned.network import NetworkConfig
from meshwright.features.tune.learned.trained_model import (
    Architecture,
    TrainedModel,
    TrainingConfig,
)
from meshwright.features.tune.learned.training import evaluate, train
from meshwright.learn.losses import Loss
from meshwright.learn.ranking import Ranking, noise_ceiling
from meshwright.learn.segments import SegmentOptions
from meshwright.learn.training import CurvePoint, ModelCheckpoints

learned_command = typer.Typer(
    help="Collect data, train and evaluate models that rank tilings and layouts.",
    no_args_is_help=True,
    add_completion=False,
)

DataPath = Annotated[
    Path, Argument(help="file or folder of .npz or .pb files, as of TpuGraphs")
]
Seed = Annotated[int, Option("--seed", min=0, help="random seed")]


@learned_command.command("collect")
def collect(
    target: TargetText,
    out: Annotated[Path, Option(help="folder of the data set")],
    configs: Annotated[int, Option(min=2, help="configurations to try")] = 50,
    passes: Annotated[int, Option(min=1, help="times that each one is timed")] = 3,
    seed: Seed = 0,
    collection: Annotated[
        Collection, Option(help="layouts of XLA, or tilings of one kernel of IREE")
    ] = Collection.LAYOUT,
) -> None:
    """Compile a program with random layouts or tilings on this CPU, and time each one.

    Tilings are of a function with a single matmul or convolution, compiled by IREE.
    Writes NAME.npz, which TpuGraphs' own loaders read, and NAME.json with the compiler and
    the noise. An interrupted collection goes on where it was.
    """
    if hasattr(os, "sched_setaffinity"):  # before JAX starts its threads
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from meshwright.features.tune.collect.layouts import CollectionPlan, collect_layouts
    from meshwright.features.tune.collect.tiles import collect_tiles

    built = find_target(target)
    name = built.name.rpartition("/")[2].replace(".py", "").replace(":", "-")
    plan = CollectionPlan(configs, passes, seed)
    args = sample_arguments(built.fn, built.args, seed)
    is_tile = collection is Collection.TILE
    collect_fn = collect_tiles if is_tile else collect_layouts
    with show_progress("collecting") as show:
        measured = collect_fn(name, built.fn, args, plan, out, show)
    path = write_npz(out, measured)
    provenance = measured.provenance
    print(f"{measured}, {len(provenance.errors)} failed")
    print(f"default / best  {measured.speedup():.3f}")
    print(f"noise ceiling   tau {noise_ceiling(provenance.pass_ns):.3f}")
    print(f"wrote {path}")


SegmentNodes = Annotated[
    int | None, Option("--segment-nodes", help="train on segments of so many nodes")
]


@learned_command.command("train")
def train_model(  # noqa: PLR0913  the options of a command
    data: DataPath,
    out: Annotated[Path, Option(help="file of the model")],
    valid: Annotated[
        Path | None, Option(help="data to evaluate while training")
    ] = None,
    epochs: Annotated[int, Option(help="passes over all graphs")] = 100,
    loss: Annotated[Loss, Option(help="ranking loss")] = Loss.HINGE,
    architecture: Annotated[
        Architecture, Option(help="ours, or one of TpuGraphs")
    ] = Architecture.OURS,
    without: Annotated[list[Lesson] | None, Option(help="leave a lesson out")] = None,
    width: Annotated[int, Option(help="width of the network")] = 64,
    layers: Annotated[int, Option(help="graph convolutions")] = 3,
    configs_per_step: Annotated[
        int, Option(help="configurations ranked in a step")
    ] = 32,
    segment_nodes: SegmentNodes = None,
    seed: Seed = 0,
) -> None:
    """Train a model on a data set. If the file of the model exists, go on from there.

    Progress goes to stderr. The model file also holds the curve, and everything that a
    later run needs to go on.
    """
    graphs = read_folder(data)
    lessons = frozenset(Lesson) - frozenset(without or ())
    network = NetworkConfig(graphs[0].collection, lessons, width, layers)
    config = TrainingConfig(
        network,
        seed,
        epochs,
        architecture,
        loss,
        configs_per_step=configs_per_step,
        segments=SegmentOptions(segment_nodes) if segment_nodes else None,
    )
    model = train(
        graphs,
        config,
        valid=read_folder(valid) if valid else (),
        checkpoints=ModelCheckpoints(out),
        on_epoch=print_epochs(epochs),
    )
    print(f"{len(graphs)} graphs, {epochs} epochs, loss {model.curve[-1].loss:.4f}")
    print(f"wrote {out}")


def print_epochs(epochs: int) -> Callable[[CurvePoint], None]:
    """A callback of training that prints epochs on stderr, at most one line per second."""
    printed_s = [0.0]

    def show(point: CurvePoint) -> None:
        is_last = point.epoch + 1 == epochs
        if time.monotonic() - printed_s[0] < 1 and not is_last:
            return
        printed_s[0] = time.monotonic()
        is_scored = point.valid_score == point.valid_score
        opa = f"  OPA {point.valid_score:.4f}" if is_scored else ""
        line = f"epoch {point.epoch + 1}/{epochs}  loss {point.loss:.4f}{opa}"
        print(line, file=sys.stderr, flush=True)

    return show


@learned_command.command("evaluate")
def evaluate_models(
    data: DataPath,
    model: Annotated[list[Path] | None, Option(help="files of trained models")] = None,
    trees: Annotated[
        Path | None, Option(help="data to train LightGBM on, as a baseline")
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Print how well models and baselines rank the configurations of a data set.

    E_K: of the K configurations that are predicted fastest, the best one's time over the
    best time of all, minus 1. tau: Kendall's tau-b. OPA: share of the pairs of
    configurations that are in the right order. All are means over graphs.
    """
    graphs = [g for g in read_folder(data) if g.num_configs > 1]
    if not graphs:
        raise LearnedError(f"{data} has no graph with two configurations to compare")
    scorers: dict[str, Scorer] = plain_scorers(graphs[0].collection, seed)
    if trees:
        scorers["lightgbm"] = boosted_trees(read_folder(trees), seed)
    scorers |= {path.stem: TrainedModel.load(path).scores for path in model or ()}
    means = {n: Ranking.mean(evaluate(scorer, graphs)) for n, scorer in scorers.items()}
    ceilings = [noise_ceiling(g.provenance.pass_ns) for g in graphs]
    ceiling = sum(ceilings) / len(ceilings)
    if as_json:
        form: dict[str, Any] = {name: mean.to_json() for name, mean in means.items()}
        finite = ceiling if ceiling == ceiling else None
        print(json.dumps({"rankings": form, "noise_ceiling_tau": finite}, indent=1))
        return
    print(f"{len(graphs)} graphs of the {graphs[0].collection.value} collection")
    for name, mean in means.items():
        print(f"{name:18} {mean}")
    if ceiling == ceiling:
        print(f"noise ceiling: tau {ceiling:.4f} between two passes of measurements")
