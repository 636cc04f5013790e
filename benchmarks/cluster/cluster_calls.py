"""Cost of calls on a cluster, compared with the same calls by multi-controller JAX.

A step computes for some milliseconds on each process and sums a scalar over all of them.
It runs op by op (each result is awaited), chained (each call takes the last one's result,
and only the last is awaited), and fused (all steps in one program). Multi-controller
JAX runs the same partitioned function in a loop in processes of its own; both run in
turn, and the ratio is the median over the pairs. That of CPU seconds counts the workers,
the controller, the client and all of Ray's processes; it depends least on other work. All
processes have the same priority: Ray's default, which gives way to other processes, would
make other work on the machine slow down the workers alone.

    python -m benchmarks cluster cluster_calls [--processes 1,2,4] [--ms 0,2,20]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.cluster.processes import descendants
from benchmarks.harness import STORED, Options, benchmark, option

WIDTH = 64
MODES = ("op by op", "chained", "fused")


def make_step(loops, fused):
    """A step, or `fused` steps in one program."""
    import jax
    import jax.numpy as jnp

    def once(x):
        w = jnp.eye(WIDTH, dtype=x.dtype)
        y = jax.lax.fori_loop(0, loops, lambda _, x: jnp.tanh(x @ w), x)
        return y + 1e-6 * y.mean()

    def step(x):
        y = (
            once(x)
            if fused == 1
            else jax.lax.fori_loop(0, fused, lambda _, x: once(x), x)
        )
        return y, y[0, 0]

    return step


def steps_on(mesh, loops, calls):
    """The step and the fused step on a mesh or a slice."""
    import meshwright as mw

    tactics = [mw.data_parallel("data", "x")]
    return {n: mw.partition(make_step(loops, n), mesh, tactics) for n in (1, calls)}


def seconds(steps, mode, x, calls):
    """Wall seconds of `calls` steps."""
    import numpy as np

    start = time.perf_counter()
    if mode == "fused":
        x, last = steps[calls](x)
    else:
        for _ in range(calls):
            x, last = steps[1](x)
            if mode == "op by op":
                np.asarray(last)
    np.asarray(last)
    return time.perf_counter() - start


def child(rank, count, port):
    """One process of multi-controller JAX; answers lines of standard input."""
    import jax
    import numpy as np

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
    known = {}
    for line in sys.stdin:
        mode, loops, calls = json.loads(line)
        if (loops, calls) not in known:
            known[loops, calls] = steps_on({"data": count}, loops, calls)
        steps = known[loops, calls]
        x, _ = steps[1](np.ones((count * WIDTH, WIDTH), np.float32))
        jax.block_until_ready(x)
        print("seconds", seconds(steps, mode, x, calls), flush=True)


class Group:
    """Processes of multi-controller JAX."""

    def __init__(self, count):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        env = {**os.environ, "JAX_PLATFORMS": "cpu"}
        env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1"
        module = [sys.executable, "-m", "benchmarks.cluster.cluster_calls", "--child"]
        self.processes = [
            subprocess.Popen(
                [*module, f"{rank},{count},{port}"],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(count)
        ]

    def seconds(self, *question):
        for each in self.processes:
            each.stdin.write(json.dumps(question) + "\n")
            each.stdin.flush()
        return max(map(self._answer, self.processes))

    def _answer(self, process):
        """Seconds of one process; gloo prints lines of its own."""
        for line in process.stdout:
            if line.startswith("seconds "):
                return float(line.split()[1])
        raise RuntimeError("a process of multi-controller JAX has ended")

    def close(self):
        for each in self.processes:
            each.stdin.close()
        for each in self.processes:
            each.wait(30)


def cpu_s(pids):
    """CPU seconds that processes have taken so far."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # ended meanwhile
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(stat[11]) + int(stat[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def loops_of(ms):
    """The loops of a step that takes so many milliseconds of one core."""
    import jax
    import numpy as np

    step = jax.jit(make_step(200, 1))
    x = np.ones((WIDTH, WIDTH), np.float32)
    jax.block_until_ready(step(x))
    start = time.process_time()
    for _ in range(10):
        jax.block_until_ready(step(x))
    took_ms = 1e3 * (time.process_time() - start) / 10
    return max(1, round(200 * ms / took_ms))


def measured(count, milliseconds, options):
    """Rows of one number of processes."""
    import numpy as np

    import meshwright as mw

    group = Group(count)
    with mw.cluster(f"local:{count}x1") as cluster:
        part = cluster.slice({"data": count})
        for ms in milliseconds:
            loops = loops_of(ms)
            steps = steps_on(part, loops, options.calls)
            theirs_too = {each.pid for each in group.processes}
            ours = {os.getpid(), *descendants(os.getpid())} - theirs_too
            for mode in options.modes.split(","):
                pairs = []
                for _ in range(options.rounds + 1):
                    before = cpu_s(theirs_too)
                    theirs = group.seconds(mode, loops, options.calls)
                    theirs_cpu = cpu_s(theirs_too) - before
                    before = cpu_s(ours)
                    x, last = steps[1](np.ones((count * WIDTH, WIDTH), np.float32))
                    np.asarray(last)
                    own = seconds(steps, mode, x, options.calls)
                    pairs.append((theirs, own, (cpu_s(ours) - before) / theirs_cpu))
                pairs = pairs[1:]  # the first round compiles
                yield {
                    "processes": count,
                    "step_ms": ms,
                    "mode": mode,
                    "multi_controller_ms": statistics.median(1e3 * a for a, *_ in pairs)
                    / options.calls,
                    "cluster_ms": statistics.median(1e3 * b for _, b, _ in pairs)
                    / options.calls,
                    "ratio": statistics.median(b / a for a, b, _ in pairs),
                    "cpu_ratio": statistics.median(cpu for *_, cpu in pairs),
                    "load": os.getloadavg()[0],
                }
    group.close()


@benchmark(
    option("--processes", default="1,2,4"),
    option("--ms", default="0,2,20"),
    option("--modes", default=",".join(MODES)),
    option("--rounds", type=int, default=5),
    option("--calls", type=int, default=128),
    option("--child", help=argparse.SUPPRESS),
    out=STORED,
)
def main(options: Options):
    if options.child:
        child(*map(int, options.child.split(",")))
        return
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  so Ray spells it
    milliseconds = list(map(float, options.ms.split(",")))
    rows = []
    for count in map(int, options.processes.split(",")):
        for row in measured(count, milliseconds, options):
            rows.append(row)
            print(json.dumps(row), flush=True)
            options.save(rows)


if __name__ == "__main__":
    main()
