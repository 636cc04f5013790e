"""Steps that Primer and Primer-EZ need to reach the loss of a plain GPT of their size.

    python -m benchmarks zoo primer [--steps 300] [--seeds 0 1 2]

All three have the sizes of `zoo.primer.TINY`, rotary positions, layer norms, tied
embeddings and AdamW; the plain GPT has GELU and no convolution. They train on the first
nine tenths of the zoo's text and are evaluated on the rest, every ten steps. Each kind
trains at the learning rate of one common grid that gives its lowest mean loss. The target
of a seed is the lowest loss that the plain GPT reaches with it. All kinds see the same
batches.

Writes `benchmarks/results/primer.json` and `docs/zoo/primer.png`.
"""

import os
import time
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from benchmarks import places
from benchmarks.harness import STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np

from zoo.decoder import Config, Decoder, loss, optimizer, start
from zoo.primer import TINY, model_of
from zoo.text import batches, load_text
from zoo.training import train_step_of
from zoo.workload import num_parameters

ROOT = places.ROOT
PICTURE = ROOT / "docs" / "zoo" / "primer.png"

KINDS: dict[str, Config] = {
    "gpt": replace(TINY, activation="gelu"),
    "primer_ez": TINY,
    "primer": TINY,
}
COLOURS = {"gpt": "tab:grey", "primer_ez": "tab:orange", "primer": "tab:blue"}
RATES = (0.003, 0.006, 0.012)
EVERY = 10
HELD_OUT = 0.1


def held_out(text: np.ndarray, sequence: int) -> dict[str, np.ndarray]:
    """All windows of a text, one after the other."""
    count = (len(text) - 1) // sequence
    starts = sequence * np.arange(count)
    windows = text[starts[:, None] + np.arange(sequence + 1)].astype(np.int32)
    return {"inputs": windows[:, :-1], "targets": windows[:, 1:]}


def chunk_of(model: Decoder, judge: dict[str, np.ndarray]) -> Any:
    """A function (state, batches [EVERY, ...], rate) -> next state and its loss."""

    @jax.jit
    def chunk(state: Any, some: Any, rate: Any) -> Any:
        adam = optimizer(replace(model.config, rate=rate))
        step = train_step_of(partial(loss, model), adam)
        state, _ = jax.lax.scan(step, state, some)
        return state, loss(model, state.params, judge)

    return chunk


def curve_of(chunk: Any, state: Any, some: Any, rate: float) -> list[float]:
    """The loss on held-out text after every `EVERY` steps."""
    curve = []
    for part in range(len(some["inputs"]) // EVERY):
        steps = slice(part * EVERY, (part + 1) * EVERY)
        batch = {name: tokens[steps] for name, tokens in some.items()}
        state, value = chunk(state, batch, rate)
        curve.append(round(float(value), 4))
    return curve


def measure(kind: str, steps: int, seeds: list[int]) -> dict[str, Any]:
    """Curves of a kind by rate and seed, and the rate with the lowest loss."""
    config = KINDS[kind]
    text = load_text()
    cut = int(len(text) * (1 - HELD_OUT))
    model = model_of(kind, config)
    begin = jax.jit(partial(start, model))
    chunk = chunk_of(model, held_out(text[cut:], config.sequence))
    curves: dict[float, list[list[float]]] = {rate: [] for rate in RATES}
    for seed in seeds:
        drawn = islice(batches(text[:cut], config.batch, config.sequence, seed), steps)
        some = jax.tree.map(lambda *x: jnp.stack(x), *drawn)
        for rate in RATES:
            state = begin(jax.random.key(seed))
            curves[rate].append(curve_of(chunk, state, some, rate))
            lowest = min(curves[rate][-1])
            print(f"{kind:10} seed {seed} rate {rate:g}: lowest loss {lowest:.4f}")
    means = {
        rate: float(np.min(found, axis=1).mean()) for rate, found in curves.items()
    }
    best = min(means, key=lambda rate: means[rate])
    return {
        "parameters": num_parameters(state.params),
        "lowest_by_rate": {f"{rate:g}": round(mean, 4) for rate, mean in means.items()},
        "rate": best,
        "curves": curves[best],
    }


def steps_to(curve: list[float], target: float) -> int | None:
    """Steps until the loss is at most `target`; `None` if it never is."""
    reached = [i for i, value in enumerate(curve, start=1) if value <= target]
    return reached[0] * EVERY if reached else None


def draw(models: dict[str, Any]) -> None:
    """Held-out loss by step, a line for each seed; dots where the target is reached."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # after the choice of a backend

    figure, axis = plt.subplots(figsize=(7, 4))
    for kind, found in models.items():
        for i, curve in enumerate(found["curves"]):
            steps = EVERY * np.arange(1, len(curve) + 1)
            label = f"{kind}, rate {found['rate']:g}" if i == 0 else None
            axis.plot(steps, curve, color=COLOURS[kind], linewidth=1, label=label)
            reached = found["steps_to_target"][i]
            if reached is not None:
                at = curve[reached // EVERY - 1]
                axis.plot(reached, at, "o", color=COLOURS[kind], markersize=4)
    low = min(min(curve) for found in models.values() for curve in found["curves"])
    axis.set_ylim(low - 0.05, low + 1)
    axis.set_xlabel("step")
    axis.set_ylabel("loss on held-out text, nats a byte")
    axis.set_title("Dots: at the lowest loss of the plain GPT, three seeds", fontsize=9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)
    plt.close(figure)


@benchmark(
    option("--steps", type=int, default=300),
    option("--seeds", nargs="+", type=int, default=[0, 1, 2]),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure all kinds, save, draw, and print the steps."""
    begin_s = time.perf_counter()
    models = {kind: measure(kind, options.steps, options.seeds) for kind in KINDS}
    targets = [min(curve) for curve in models["gpt"]["curves"]]
    for kind, found in models.items():
        found["steps_to_target"] = [
            steps_to(curve, target)
            for curve, target in zip(found["curves"], targets, strict=True)
        ]
        print(f"{kind:10} rate {found['rate']:g}: {found['steps_to_target']} steps")
    result = {
        "jax": jax.__version__,
        "cores": os.cpu_count(),
        "wall_s": round(time.perf_counter() - begin_s, 1),
        "steps": options.steps,
        "seeds": options.seeds,
        "judged_every": EVERY,
        "target": targets,
        "models": models,
    }
    options.save(result)
    draw(models)


if __name__ == "__main__":
    main()
