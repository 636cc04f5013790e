"""Time of a decision of a learned inlining policy, and of a build that asks it.

    python -m benchmarks policies inline_policy [--policy FOLDER --project FOLDER]

Without a policy, one of the size that training makes decides random features. With a
project, the CPU time of `make` with the policy is compared with that of plain clang.
"""

import resource
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import Options, benchmark, option
from meshwright.features.policies.compiler.channel import Observation
from meshwright.features.policies.compiler.clang import find_clang
from meshwright.features.policies.compiler.learned.inline_policy import (
    InlinePolicy,
    read_inline_policy,
)
from meshwright.features.policies.compiler.projects.build import (
    ObjectSizes,
    build_with_policy,
)

TREES, LEAVES, DECISIONS = 60, 32, 2000
PAIRS = 9


def drawn_policy(seed: int) -> InlinePolicy:
    """A policy with random trees over the number of features of clang 22."""
    draw = np.random.default_rng(seed)
    shape = (TREES, LEAVES)
    return InlinePolicy(
        tuple(f"feature_{k}" for k in range(39)),
        draw.integers(0, 39, shape),
        draw.normal(size=shape),
        draw.normal(size=shape).astype(np.float32),
        0.0,
        0.0,
    )


def decision_s(policy: InlinePolicy) -> float:
    """CPU seconds of one decision, with the features of an observation."""
    draw = np.random.default_rng(0)
    calls = [
        Observation({name: draw.integers(0, 99, 1) for name in policy.names})
        for _ in range(64)
    ]
    begin = time.process_time()
    for number in range(DECISIONS):
        policy(calls[number % 64])
    return (time.process_time() - begin) / DECISIONS


def spent_s() -> float:
    """CPU seconds of this process and of its child processes that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(who) for who in whose]
    return sum(each.ru_utime + each.ru_stime for each in used)


def built_s(project: Path, policy: Path) -> tuple[float, float, list[ObjectSizes]]:
    """CPU seconds of `make` with plain clang, of one that asks a policy, and its sizes."""
    clang = find_clang()
    make = ["make", "-s", "-B", "-C", str(project)]
    begin = spent_s()
    plain = f"CC={' '.join(clang.command)} -Oz"
    subprocess.run([*make, plain], check=True, stdout=subprocess.DEVNULL)
    middle = spent_s()
    _, sizes = build_with_policy(clang, make, policy.resolve(), ["-Oz"])
    return middle - begin, spent_s() - middle, sizes


@benchmark(
    option("--policy", type=Path, help="folder of `policies train inline`"),
    option("--project", type=Path, help="a copy of a project with `make`"),
)
def main(chosen: Options) -> None:
    """Print the time of a decision, and the ratio of two builds."""
    drawn = drawn_policy(0)
    policy = read_inline_policy(chosen.policy) if chosen.policy else drawn
    cpu_s = decision_s(policy)
    chosen.note("decision", cpu_s, "s")
    print(f"a decision: {cpu_s * 1e6:.0f} us of CPU time")
    if chosen.project is None or chosen.policy is None:
        return
    pairs = [built_s(chosen.project, chosen.policy) for _ in range(PAIRS)]
    ratios = sorted(asking / plain for plain, asking, _ in pairs)
    ratio = statistics.median(ratios)
    chosen.note("build", ratio)
    sizes = pairs[0][2]
    changed = sum(bool(each.changed) for each in sizes)
    print(
        f"a build: {ratio:.2f} times the CPU time of plain clang's {pairs[0][0]:.1f} s"
        f" (median of {PAIRS}, {ratios[0]:.2f} to {ratios[-1]:.2f})"
    )
    print(f"{changed} of {len(sizes)} objects changed, and were compiled twice")


if __name__ == "__main__":
    main()
