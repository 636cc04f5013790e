"""Trainings on a cluster whose processes are killed and stopped: losses and goodput.

A supervisor starts `meshwright train` on 4 worker processes of 2 devices and kills, by the
seed, a random worker, the client or the controller, with SIGKILL, or stops it for some
time; a client that has ended is started again with --resume. In the end every loss must be
that of a run which nobody disturbed, bit for bit. Time is lost from a kill until the step
that was reached before is done again, and from a pause until the next step is done.

    python -m benchmarks cluster training_kills [--kills 30] [--pauses 10] [--steps 300]
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
from dataclasses import dataclass
from pathlib import Path

from benchmarks import places
from benchmarks.cluster.processes import controllers_below, stop_for
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
options = {{ pause_s = {pause_s} }}
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
    longest_s: longest time in which a running client has printed nothing.
    """

    def __init__(self, folder: Path, steps: int, pause_s: float = 0.0) -> None:
        """A run that is not started yet; it waits `pause_s` seconds for each example."""
        self.folder, self.steps = folder, steps
        self.recipe = folder.with_suffix(".toml")
        text = RECIPE.format(models=MODELS, steps=steps, folder=folder, pause_s=pause_s)
        self.recipe.write_text(text, encoding="utf-8")
        self.log = folder.with_suffix(".log")
        self.client: subprocess.Popen[bytes] | None = None
        self.longest_s, self._printed = 0.0, (0, time.monotonic())

    def start(self) -> None:
        """Start a client."""
        with self.log.open("a", encoding="utf-8") as output:
            self.client = subprocess.Popen(
                [sys.executable, "-m", "meshwright", "train", self.recipe, "--resume"],
                stdout=output,
                stderr=output,
                env=os.environ | {"JAX_PLATFORMS": "cpu"},
            )
        self.begin_listening()

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

    def begin_listening(self) -> None:
        """Count from now on for how long the client prints nothing."""
        self._printed = self.log.stat().st_size, time.monotonic()

    def listen(self) -> None:
        """Record for how long the client has printed nothing."""
        size, (known, since_s) = self.log.stat().st_size, self._printed
        now_s = time.monotonic()
        self.longest_s = max(self.longest_s, now_s - since_s)
        if size != known:
            self._printed = size, now_s

    def losses(self) -> dict[int, str]:
        """The loss of each step, exactly."""
        rows = read_csv(self.folder / "metrics.csv")
        return {int(row["step"]): row["loss"] for row in rows if row["loss"]}

    def end(self) -> None:
        """Kill the client, whatever happened."""
        self.client.kill()
        self.client.wait()

    def wait(self) -> None:
        """Wait for the end; raises `RuntimeError` if the run fails."""
        assert self.client is not None
        if self.client.wait() != 0:
            raise RuntimeError(self.log.read_text(encoding="utf-8")[-3000:])


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A kill (SIGKILL) of a process of a run, or a pause of some seconds (SIGSTOP).

    victim: "worker", "client" or "controller".
    seconds: 0 for a kill.
    """

    step: int
    victim: str
    seconds: float = 0.0

    @property
    def kind(self) -> str:
        return f"stopped for {self.seconds:.0f} s" if self.seconds else "killed"


def disturb(run: Training, disturbances: list[Disturbance], seed: int) -> list[dict]:
    """Kill or stop a process each time that a step is reached.

    Raises `RuntimeError` if the run ends before, or does not go on afterwards.
    """
    rng, found = random.Random(seed), []
    for each in disturbances:
        wait_until(lambda step=each.step: run.step() >= step, run)
        victim, pid = find_victim(run, each.victim, rng)
        reached, attempt, start = run.step(), run.attempt(), time.monotonic()
        if each.seconds:
            timer = stop_for(pid, each.seconds)
            if victim == "client":  # it prints nothing meanwhile
                timer.join()
                run.begin_listening()
            wait_until(lambda reached=reached: run.step() > reached, run)
            # A run may go on without a worker that stands still.
        else:
            os.kill(pid, signal.SIGKILL)
            if victim != "worker":  # a controller takes its cluster along
                run.client.wait(PATIENCE_S)
                run.start()
            # The last checkpoint may be of the very step that was reached.
            wait_until(lambda attempt=attempt: run.attempt() != attempt, run)
            wait_until(lambda reached=reached: run.step() >= reached, run)
        lost_s = time.monotonic() - start
        found.append(
            {"victim": victim, "kind": each.kind, "step": reached}
            | {"lost_s": round(lost_s, 2)}
        )
        print(f"step {reached}: {victim} {each.kind}, {lost_s:.1f} s lost", flush=True)
    return found


def find_victim(run: Training, victim: str, rng: random.Random) -> tuple[str, int]:
    """A living process of a run: of the wanted kind, or its client."""
    pids = run.workers() if victim == "worker" else []
    pids = controllers_below(run.client.pid) if victim == "controller" else pids
    alive = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    return (victim, rng.choice(alive)) if alive else ("client", run.client.pid)


def wait_until(is_so: Callable[[], bool], run: Training) -> None:
    """Wait for something that must come before the run ends, and within ten minutes.

    Meanwhile, the client must print a line at least once a minute.
    """
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        if run.client.poll() is not None and not is_so():
            run.wait()
            raise RuntimeError(f"the run has ended with {run.step()} steps")
        if time.monotonic() > end:
            raise RuntimeError(f"nothing for {PATIENCE_S} s after step {run.step()}")
        run.listen()
        time.sleep(0.05)


def measure(
    steps: int, disturbances: list[Disturbance], seed: int, folder: Path
) -> dict:
    """Losses compared, and the goodput, of an undisturbed run and a disturbed one."""
    calm = Training(folder / "calm", steps)
    start = time.monotonic()
    calm.start()
    calm.wait()
    calm_s = time.monotonic() - start
    disturbed = Training(folder / "disturbed", steps)
    start = time.monotonic()
    disturbed.start()
    try:
        found = disturb(disturbed, disturbances, seed)
        disturbed.wait()
    finally:
        disturbed.end()
    total_s = time.monotonic() - start
    lost_s = sum(each["lost_s"] for each in found)
    return {
        "steps": steps,
        "disturbances": found,
        "equal": calm.losses() == disturbed.losses(),
        "calm_s": round(calm_s, 1),
        "total_s": round(total_s, 1),
        "mean_lost_s": round(lost_s / max(len(found), 1), 2),
        "longest_without_a_line_s": round(disturbed.longest_s, 1),
        "goodput": round(1 - lost_s / total_s, 3),
        "load": os.getloadavg()[0],
    }


def at_random(kills: int, pauses: int, steps: int, seed: int) -> list[Disturbance]:
    """Kills of random processes, and pauses of 5 to 80 s of each kind, at random steps."""
    rng = random.Random(seed)
    kinds = ["worker", "client", "controller"]
    found = [(rng.choices(kinds, [3, 1, 1])[0], 0.0) for _ in range(kills)]
    found += [(kinds[i % 3], rng.uniform(5, 80)) for i in range(pauses)]
    rng.shuffle(found)
    at = sorted(rng.choices(range(1, steps - 5), k=len(found)))
    return [Disturbance(step, *each) for step, each in zip(at, found, strict=True)]


@benchmark(
    option("--kills", type=int, default=30),
    option("--pauses", type=int, default=10),
    option("--steps", type=int, default=300),
    out=STORED,
    seed=0,
)
def main(chosen: Options) -> None:
    seed, steps = chosen.seed, chosen.steps
    disturbances = at_random(chosen.kills, chosen.pauses, steps, seed)
    folder = Path(tempfile.mkdtemp())
    try:
        found = measure(steps, disturbances, seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    chosen.save(found)
    print({name: value for name, value in found.items() if name != "disturbances"})


if __name__ == "__main__":
    main()
