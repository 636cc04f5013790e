"""Trainings on a cluster whose workers and whose client are killed: losses and goodput.

A supervisor starts `meshwright train` on 4 worker processes of 2 devices and kills, by the
seed, a random worker or the client itself, with SIGKILL; a killed client is started again
with --resume. In the end every loss must be that of a run which nobody disturbed, bit for
bit. Time is lost from a kill until the step that was reached before is done again.

    python -m benchmarks cluster training_kills [--kills 30] [--steps 300] [--seed 0]
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import places
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.features.train.metrics import read_csv

PATIENCE_S = 600
"""Seconds within which a run must go on after a kill, and reach the next step."""

MODELS = places.ROOT / "tests" / "features" / "train" / "models.py"

RECIPE = """
[model]
program = "{models}:linear"

[data]
source = "{models}:numbered"
batch = 8

[partition]
mesh = {{ data = -1 }}
tactics = "cut"

[optimizer]
name = "adam"

[schedule]
options = {{ value = 0.05 }}

[run]
steps = {steps}
log_every = 5

[checkpoint]
save_every = 10

[cluster]
address = "local:4x2"
retries = 10

[output]
folder = "{folder}"
"""


class Training:
    """A run of `meshwright train` in a folder, which is started again when it is killed.

    log: what its clients print.
    """

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.recipe = folder.with_suffix(".toml")
        self.recipe.write_text(
            RECIPE.format(models=MODELS, steps=steps, folder=folder), encoding="utf-8"
        )
        self.log = folder.with_suffix(".log")
        self.client: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start a client."""
        with self.log.open("a", encoding="utf-8") as output:
            self.client = subprocess.Popen(
                [sys.executable, "-m", "meshwright", "train", self.recipe, "--resume"],
                stdout=output,
                stderr=output,
                env=os.environ | {"JAX_PLATFORMS": "cpu"},
            )

    def step(self) -> int:
        """The last step whose metrics are written."""
        rows = read_csv(self.folder / "metrics.csv")
        return max((int(row["step"]) for row in rows), default=0)

    def attempt(self) -> int:
        """A number that changes when the run goes on: its metrics become a new file."""
        path = self.folder / "metrics.csv"
        return path.stat().st_ino if path.is_file() else 0

    def workers(self) -> list[int]:
        """The processes of the workers that were started last."""
        log = self.folder / "cluster.log"
        lines = log.read_text(encoding="utf-8") if log.is_file() else ""
        ready = re.findall(r" ready .*?: (.*)", lines)
        return [int(pid) for pid in re.findall(r":(\d+)", ready[-1])] if ready else []

    def losses(self) -> dict[int, str]:
        """The loss of each step, exactly."""
        rows = read_csv(self.folder / "metrics.csv")
        return {int(row["step"]): row["loss"] for row in rows if row["loss"]}

    def wait(self) -> None:
        """Wait for the end; raises `RuntimeError` if the run fails."""
        assert self.client is not None
        if self.client.wait() != 0:
            raise RuntimeError(self.log.read_text(encoding="utf-8")[-3000:])


def kill_at(run: Training, steps: list[int], victims: list[str], seed: int) -> list:
    """Kill a random worker, or the client, each time one of the steps is reached.

    Raises `RuntimeError` if the run ends before, or does not go on after a kill.
    """
    rng, kills = random.Random(seed), []
    for step, victim in zip(steps, victims, strict=True):
        wait_until(lambda step=step: run.step() >= step, run)
        workers = [pid for pid in run.workers() if Path(f"/proc/{pid}").exists()]
        is_client = not workers or victim == "client"
        pid = run.client.pid if is_client else rng.choice(workers)
        reached, attempt, start = run.step(), run.attempt(), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        if is_client:
            run.client.wait()
            run.start()
        # The last checkpoint may be of the very step that was reached.
        wait_until(lambda attempt=attempt: run.attempt() != attempt, run)
        resumed = run.step()
        wait_until(lambda reached=reached: run.step() >= reached, run)
        lost_s = time.monotonic() - start
        what = "client" if is_client else "worker"
        kills.append({"killed": what, "step": reached, "lost_s": round(lost_s, 2)})
        print(
            f"step {reached}: killed a {what}, {lost_s:.1f} s lost, went on after step "
            f"{resumed}",
            flush=True,
        )
    return kills


def wait_until(is_so: Callable[[], bool], run: Training) -> None:
    """Wait for something that must come before the run ends, and within ten minutes."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        if run.client.poll() is not None and not is_so():
            run.wait()
            raise RuntimeError(f"the run has ended with {run.step()} steps")
        if time.monotonic() > end:
            raise RuntimeError(f"nothing for {PATIENCE_S} s after step {run.step()}")
        time.sleep(0.05)


def measure(steps: int, victims: list[str], seed: int, folder: Path) -> dict:
    """Losses compared, and the goodput, of an undisturbed run and one with kills.

    victims: "worker" or "client" for each kill.
    """
    calm = Training(folder / "calm", steps)
    start = time.monotonic()
    calm.start()
    calm.wait()
    calm_s = time.monotonic() - start
    rng = random.Random(seed)
    at = sorted(rng.choices(range(1, steps - 5), k=len(victims)))
    disturbed = Training(folder / "disturbed", steps)
    start = time.monotonic()
    disturbed.start()
    try:
        kills = kill_at(disturbed, at, victims, seed)
        disturbed.wait()
    finally:
        disturbed.client.kill()
    total_s = time.monotonic() - start
    lost_s = sum(kill["lost_s"] for kill in kills)
    return {
        "steps": steps,
        "kills": kills,
        "equal": calm.losses() == disturbed.losses(),
        "calm_s": round(calm_s, 1),
        "total_s": round(total_s, 1),
        "mean_lost_s": round(lost_s / max(len(kills), 1), 2),
        "goodput": round(1 - lost_s / total_s, 3),
        "load": os.getloadavg()[0],
    }


@benchmark(
    option("--kills", type=int, default=30),
    option("--steps", type=int, default=300),
    out=STORED,
    seed=0,
)
def main(chosen: Options) -> None:
    rng = random.Random(chosen.seed)
    victims = rng.choices(["worker", "client"], [3, 1], k=chosen.kills)
    folder = Path(tempfile.mkdtemp())
    try:
        found = measure(chosen.steps, victims, chosen.seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    chosen.save(found)
    print({name: value for name, value in found.items() if name != "kills"})


if __name__ == "__main__":
    main()
