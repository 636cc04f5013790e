"""Parallel WaveNet's student compared with its teacher's loop, on one CPU.

Both generate the same number of samples for the same features, alternately, so that noise
of the machine affects both. The teacher's loop keeps each layer's past in a queue and is
compiled whole; the student takes one pass. The ratio of a case is the median over the
pairs (teacher's seconds over student's). Cases: the small networks, trained here, and the
published sizes, untrained, since weights do not change their time.

    python -m benchmarks zoo wavenet_speed [--only small] [--audio FOLDER]

--audio writes what the trained networks generated, and recordings, as WAV files.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness import ONLY, STORED, Options, benchmark, option
from zoo import parallel_wavenet as student
from zoo import wavenet as teacher
from zoo.audio import Tones, band_power, write_wav
from zoo.logistics import draw_noise
from zoo.once import once
from zoo.wavenet_sampler import generate

CONSOLE = Console()
SEED = 0


@dataclass(frozen=True, slots=True)
class Case:
    """Networks to time: training `steps` of teacher and student, `samples` of audio."""

    name: str
    config: student.Config
    teacher_steps: int
    student_steps: int
    samples: int
    rounds: int


CASES = (
    Case("small", student.TINY, 1000, 300, samples=16_000, rounds=9),
    Case("published", student.SIZES["student"], 0, 0, samples=1200, rounds=5),
)


def weights(case: Case) -> tuple[dict, dict]:
    """Weights of teacher and student."""
    config, key = case.config, jax.random.key(SEED)
    if not case.teacher_steps:
        told = once(partial(teacher.init, config.teacher))(key)
        return told, once(partial(student.init, config))(key)
    told = teacher.learn(config.teacher, SEED, case.teacher_steps)
    *_, (state, _) = student.learn(config, told, SEED, case.student_steps)
    return told, state.params


def recording(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Tones that are not in the training data [T], and their features [1, F, C]."""
    config = case.config.teacher
    audio = Tones(1, case.samples, config.sampling_rate, SEED + 1)[0]
    return audio, band_power(audio, config.hop, config.features)[None]


def seconds(run: Callable[[], Any]) -> float:
    """Wall seconds of a call with its results awaited."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def measure(case: Case, folder: Path | None) -> dict[str, Any]:
    """One row: both compiled, run alternately."""
    config, key = case.config, jax.random.key(SEED)
    told, params = weights(case)
    audio, features = recording(case)
    noise = draw_noise(key, (1, case.samples), config.teacher.mixtures)
    loop = jax.jit(partial(generate, config.teacher))
    loop = loop.lower(told, features, noise).compile()
    one_pass = jax.jit(partial(student.generate, config))
    one_pass = one_pass.lower(params, jnp.asarray(features), key).compile()
    pairs = []
    for i in range(case.rounds + 1):
        pair = (
            seconds(lambda: loop(told, features, noise)),
            seconds(lambda: one_pass(params, features, key)),
        )
        if i:
            pairs.append(pair)
    if folder is not None and case.teacher_steps:
        made = {
            "recording": audio,
            "teacher": np.asarray(loop(told, features, noise))[0],
            "student": np.asarray(one_pass(params, features, key))[0],
        }
        for name, samples in made.items():
            write_wav(folder / f"{name}.wav", samples, config.teacher.sampling_rate)
    return {
        "case": case.name,
        "teacher_layers": config.teacher.net.stacks * config.teacher.net.layers,
        "student_layers": [net.stacks * net.layers for net in config.flows],
        "samples": case.samples,
        "rounds": case.rounds,
        "teacher_s": statistics.median(a for a, _ in pairs),
        "student_s": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(a / b for a, b in pairs),
        "lowest_ratio": min(a / b for a, b in pairs),
    }


@benchmark(
    ONLY,
    option("--audio", type=Path, help="folder for WAV files"),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure, print a table, write JSON."""
    if options.audio is not None:
        options.audio.mkdir(parents=True, exist_ok=True)
    rows = []
    for case in CASES:
        if options.only in case.name:
            CONSOLE.print(f"measuring {case.name}")
            rows.append(measure(case, options.audio))
    table = Table("case", "samples", "teacher s", "student s", "ratio", "lowest")
    for row in rows:
        table.add_row(
            row["case"],
            str(row["samples"]),
            f"{row['teacher_s']:.3f}",
            f"{row['student_s']:.3f}",
            f"{row['ratio']:.1f}",
            f"{row['lowest_ratio']:.1f}",
        )
    CONSOLE.print(table)
    if not options.only:
        found = {"jax": jax.__version__, "cores": os.cpu_count(), "rows": rows}
        options.save(found)


if __name__ == "__main__":
    main()
