"""A family scaled for latency on made images, beside plain ways to scale.

    python -m benchmarks codesign small_family

A grid over depth, width and image size of a small net is trained and priced, and one law
is fitted to the best model of each target. Its models, and those of compound scaling by
EfficientNet's constants, of width only, depth only and size only, are trained from other
seeds; each way's model of a target is the largest that keeps it. Latency at equal accuracy
is interpolated between the models of a way. Trained models are stored; a run that was ended
goes on from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

import jax
import numpy as np

from benchmarks.codesign.small_models import Keys, conv, dense, new_conv, new_dense
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.codesign import nas
from meshwright.features.codesign.nas.families.published import BASES
from meshwright.features.codesign.nas.families.scaling import edges_of
from zoo.images import made_batches

CHANNELS, CLASSES, BASE = (8, 16), 16, 8
GRID = (1.0, 2.0, 3.0), (1.0, 2.0, 4.0, 8.0), (8, 12, 16)
"""Depths, widths and sizes. Channels cost nothing there until they fill the lanes, so that
the widths have to go as far as width alone goes within the first target."""

WAYS: dict[str, Callable[[float], tuple[float, float, float]]] = {
    "compound": lambda phi: tuple(base**phi for base in BASES),
    "width": lambda phi: (1.0, 2 ** (phi / 2), 1.0),
    "depth": lambda phi: (2**phi, 1.0, 1.0),
    "size": lambda phi: (1.0, 1.0, 2 ** (phi / 2)),
}
"""Depth, width and relative size of plain ways to scale."""


_MOST_PHI = 8
"""Doublings of operations beyond which no way is followed: 16 times the width."""


@cache
def images(size: int) -> tuple[Any, ...]:
    """Images and labels to train on, 1,000, and 400 others."""
    made = [
        next(made_batches(count, size, CLASSES, seed))
        for seed, count in enumerate((1000, 400))
    ]
    return tuple(batch[name] for batch in made for name in ("image", "label"))


def _init(widths: tuple[int, ...], blocks: int, key: Any, x: Any) -> dict[str, Any]:
    keys, inputs = Keys(key), x.shape[-1]
    params: dict[str, Any] = {"stages": []}
    for width in widths:
        first = new_conv(keys, 3, inputs, width)
        rest = [new_conv(keys, 3, width, width) for _ in range(blocks)]
        params["stages"].append({"first": first, "rest": rest})
        inputs = width
    return params | {"classes": new_dense(keys, inputs, CLASSES)}


def _apply(params: dict[str, Any], x: Any) -> Any:
    for stage in params["stages"]:
        x = jax.nn.relu(conv(stage["first"], x, 2))
        for block in stage["rest"]:
            x = x + jax.nn.relu(conv(block, x))
    return dense(params["classes"], x.mean((1, 2)))


def build(scales: dict[str, float]) -> tuple[Any, Any]:
    """A net of two stages, which halve the pixels before their residual blocks."""
    widths = tuple(8 * max(1, round(scales["width"] * c / 8)) for c in CHANNELS)
    return partial(_init, widths, max(1, round(scales["depth"]))), _apply


def accuracy(scales: tuple[float, float, float], seed: int, steps: int) -> float:
    """Mean accuracy of three trainings."""
    depth, width, size = scales
    evaluate = nas.Trained(build, images(round(size)), steps, seed=seed, trainings=3)
    return evaluate({"depth": depth, "width": width})["accuracy"]


@cache
def latency_ms(machine: str, depth: float, width: float, size: int) -> float:
    """Predicted milliseconds of a call on 128 images."""
    evaluate = nas.Trained(build, images(size), serve_batch=128)
    target = evaluate.target({"depth": depth, "width": width})
    return 1e3 * nas.latency(*target, machine).seconds


def rounded(scales: tuple[float, ...]) -> tuple[float, float, int]:
    """Scales at which a net can be built, with sizes of whole pixels."""
    depth, width, size = scales
    widths = [8 * max(1, round(width * c / 8)) / c for c in CHANNELS]
    return float(max(1, round(depth))), float(np.mean(widths)), max(4, round(size))


def largest(
    way: Callable[[float], tuple[float, ...]], target_ms: float, machine: str
) -> tuple[float, float, int]:
    """The largest net of a way to scale that keeps a target."""
    found = rounded(way(0.0))
    for phi in np.arange(0.25, _MOST_PHI, 0.25):
        scales = rounded(way(float(phi)))
        if latency_ms(machine, *scales) > target_ms:
            break
        found = scales
    return found


def _plain_at(name: str, phi: float) -> tuple[float, float, float]:
    depth, width, size = WAYS[name](phi)
    return depth, width, BASE * size


@benchmark(
    option("--machine", default="tpu-v5e"),
    option("--steps", type=int, default=100),
    option("--targets", type=int, default=4),
    out=STORED,
)
def main(options: Options) -> None:
    """Train the grid, fit the law, and compare its models with those of plain ways."""
    machine, known = options.machine, _Known(options)
    points = [
        nas.Point(*scales, known.accuracy(scales, 0), latency_ms(machine, *scales))
        for scales in product(*GRID)
    ]
    times = [point.latency_ms for point in points]
    low, high = 1.3 * min(times), 0.8 * max(times)
    targets = np.geomspace(low, high, options.targets).tolist()
    family = nas.scale_family(points, targets, base=BASE)
    law, edges = family.law, edges_of(points, family.winners)
    figures = {"law": str(law), "spread": law.spread, "edges": edges}
    options.save_case(machine, "law", figures)
    ways: dict[str, Any] = {name: partial(_plain_at, name) for name in WAYS}
    curves = {
        name: _curve(way, targets, machine, known)
        for name, way in {"ours": law.at, **ways}.items()
    }
    for name, curve in curves.items():
        rows = {
            f"{target * 1e3:.1f}us": {"scales": s, "latency_us": 1e3 * t, "accuracy": a}
            for target, (s, t, a) in zip(targets, curve, strict=True)
        }
        slower = [_slower(curve, t, a) for _, t, a in curves["ours"]]
        options.save_case(machine, name, {**rows, "times_ours": slower})
        print(name, [(s, round(1e3 * t, 1), round(a, 3)) for s, t, a in curve], slower)


@dataclass(frozen=True, slots=True)
class _Known:
    """Accuracies by scales and seed, each trained once and stored."""

    options: Options

    def accuracy(self, scales: tuple[float, float, float], seed: int) -> float:
        case = f"{','.join(f'{each:g}' for each in scales)} seed {seed}"
        stored = self.options.stored({}).get("trained", {}).get(case)
        if stored is not None:
            return float(stored["accuracy"])
        found = accuracy(scales, seed, self.options.steps)
        self.options.save_case("trained", case, {"accuracy": found})
        return found


def _curve(way: Any, targets: list[float], machine: str, known: _Known) -> list[Any]:
    """Scales, latency and accuracy of the model of each target."""
    nets = [largest(way, target, machine) for target in targets]
    scores = {net: known.accuracy(net, 10) for net in dict.fromkeys(nets)}
    return [(net, latency_ms(machine, *net), scores[net]) for net in nets]


def _slower(curve: list[Any], time: float, score: float) -> float | None:
    """Latency of a way where it is as accurate, over `time`; `None` if it never is."""
    times, scores = [t for _, t, _ in curve], [a for *_, a in curve]
    best = np.maximum.accumulate(scores)
    if score > best[-1]:
        return None
    at = int(np.argmax(best >= score))
    if at == 0 or best[at] == best[at - 1]:
        return float(times[at] / time)
    share = (score - best[at - 1]) / (best[at] - best[at - 1])
    return float((times[at - 1] + share * (times[at] - times[at - 1])) / time)


if __name__ == "__main__":
    main()
