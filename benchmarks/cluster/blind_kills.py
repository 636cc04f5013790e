"""Trainings whose processes are killed and stopped at random times: losses and silences.

As `training_kills`, but the supervisor does not wait until the run has gone on: it kills
and stops workers, the client and the controller while others are stopped, while workers
are started, and while a state is restored or saved. Examples are read slowly, so that the
run lasts. Each client that has ended is started again with --resume.

    python -m benchmarks cluster blind_kills [--kills 30] [--pauses 10] [--steps 400]
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

from benchmarks.cluster.processes import controllers_below, stop_for, workers_below
from benchmarks.cluster.training_kills import PATIENCE_S, Training
from benchmarks.harness import STORED, Options, benchmark, option

PROCESSES = {
    "worker": workers_below,
    "client": lambda client: [client],
    "controller": controllers_below,
}
"""By kind, the function from the client to the living processes of that kind."""

EXAMPLE_S = 0.1
"""Seconds for which the disturbed run waits for an example."""


class BlindSupervisor:
    """Kills and stops processes of a run, without regard to what it is doing.

    asleep_s: time until which the client is stopped. ends: how the clients have ended.
    """

    def __init__(self, run: Training, seed: int) -> None:
        self.run = run
        self.asleep_s = 0.0
        self.ends: list[int] = []
        self._rng = random.Random(seed)
        self._progress = (0, 0.0)

    def disturb(self, kills: int, pauses: int, gap_s: float) -> list[dict]:
        """Kill and stop processes at random times, some `gap_s` seconds apart.

        The first one comes after the first step.
        """
        rng, found = self._rng, []
        while not self.run.step():
            self.watch(1.0)
        todo = [0.0] * kills + [rng.uniform(5, 80) for _ in range(pauses)]
        rng.shuffle(todo)
        for seconds in todo:
            self.watch(rng.uniform(0, 2 * gap_s))
            victim, pid = self._find(rng.choices([*PROCESSES], [3, 1, 1])[0])
            if seconds:
                stop_for(pid, seconds)
                if victim == "client":
                    self.asleep_s = max(self.asleep_s, time.monotonic() + seconds)
            else:
                os.kill(pid, signal.SIGKILL)
            found.append(
                {"victim": victim, "step": self.run.step(), "stopped_s": seconds}
            )
            what = f"stopped for {seconds:.0f} s" if seconds else "killed"
            print(f"step {found[-1]['step']}: {victim} {what}", flush=True)
        return found

    def _find(self, wanted: str) -> tuple[str, int]:
        """A living process of a kind, once there is one.

        Raises `RuntimeError` if the run is done.
        """
        while True:
            if self.is_complete():
                raise RuntimeError(
                    "the run is done before all disturbances: more --steps"
                )
            client = self.run.client.pid
            pids = PROCESSES[wanted](client) if self.run.client.poll() is None else []
            if pids:
                return wanted, self._rng.choice(pids)
            self.watch(0.2)

    def watch(self, seconds: float) -> None:
        """Listen to the run for so long, and start each client that has ended again."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            status = self.run.client.poll()
            if status is not None and self.is_complete():
                return
            if status is not None:
                self.ends.append(status)
                self.asleep_s = 0.0
                self.run.start()
            if time.monotonic() < self.asleep_s + 1.0:  # it prints nothing meanwhile
                self.run.begin_listening()
            self.run.listen()
            time.sleep(0.1)

    def is_complete(self) -> bool:
        """Whether the last client has ended well."""
        return self.run.client.poll() == 0

    def finish(self) -> None:
        """Watch the run until it is complete.

        Raises `RuntimeError` if no step is done for ten minutes.
        """
        self._progress = self.run.step(), time.monotonic()
        while not self.is_complete():
            self.watch(1.0)
            self._require_progress()

    def _require_progress(self) -> None:
        step, (known, since_s) = self.run.step(), self._progress
        if step != known:
            self._progress = step, time.monotonic()
        elif time.monotonic() - since_s > PATIENCE_S:
            tail = self.run.log.read_text(encoding="utf-8")[-3000:]
            raise RuntimeError(f"step {step} for {PATIENCE_S} s\n{tail}")


def measure(
    steps: int, kills: int, pauses: int, gap_s: float, seed: int, folder: Path
) -> dict:
    """Losses compared of an undisturbed run and of one with blind disturbances."""
    calm = Training(folder / "calm", steps)
    calm.start()
    calm.wait()
    disturbed = Training(folder / "disturbed", steps, EXAMPLE_S)
    start = time.monotonic()
    disturbed.start()
    supervisor = BlindSupervisor(disturbed, seed)
    try:
        found = supervisor.disturb(kills, pauses, gap_s)
        supervisor.finish()
    finally:
        disturbed.end()
    return {
        "steps": steps,
        "disturbances": found,
        "equal": calm.losses() == disturbed.losses(),
        "clients": 1 + len(supervisor.ends),
        "statuses": sorted(set(supervisor.ends)),
        "total_s": round(time.monotonic() - start, 1),
        "longest_without_a_line_s": round(disturbed.longest_s, 1),
        "load": os.getloadavg()[0],
    }


@benchmark(
    option("--kills", type=int, default=30),
    option("--pauses", type=int, default=10),
    option("--steps", type=int, default=400),
    option("--gap", type=float, default=25.0, help="mean seconds between disturbances"),
    option(
        "--keep", type=Path, default=None, help="folder for the runs and their logs"
    ),
    out=STORED,
    seed=0,
)
def main(chosen: Options) -> None:
    folder = chosen.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = measure(
            chosen.steps, chosen.kills, chosen.pauses, chosen.gap, chosen.seed, folder
        )
    finally:
        if chosen.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    chosen.save(found)
    print({name: value for name, value in found.items() if name != "disturbances"})


if __name__ == "__main__":
    main()
