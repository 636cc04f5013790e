"""Run time of a project's program, built by plain clang and with a policy of registers.

    python -m benchmarks policies run_time --project FOLDER --program src/lua
        [--policy FOLDER --make "CFLAGS=-O2" --arguments "work.lua" --input FILE]

Three copies of the project are built by `make`: two plainly, of which the second is a
control, and one with the policy. The programs run in turns, with the same arguments and
standard input; their outputs must be the same. Printed are the medians of the ratios of
their user CPU times to the first one's, and intervals that contain the ratio's true median
in 95 of 100 such measurements. `programs/work.lua` is work for an interpreter of Lua.
Printed is also the CPU time of the build with the policy. With `--count`, valgrind counts
the instructions and the accesses of memory that run.
"""

import os
import re
import resource
import shlex
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import permutations
from math import comb
from pathlib import Path

from benchmarks.harness import Options, benchmark, option
from meshwright.features.policies.compiler.clang import find_clang
from meshwright.features.policies.compiler.projects.build import (
    ObjectSizes,
    build_with_policy,
)

NAMES = ("plain", "control", "policy")
COSTS = ("cycles_before", "cycles_after", "operations_before", "operations_after")


def built(options: Options, folder: Path) -> tuple[list[Path], list[ObjectSizes]]:
    """The program built plainly, again, and with the policy; figures of its objects."""
    clang = find_clang()
    copies = [folder / name for name in NAMES]
    for copy in copies:
        shutil.copytree(options.project, copy)
    words = shlex.split(options.make)
    make = [["make", "-s", "-B", "-C", str(copy), *words] for copy in copies]
    plain = f"CC={shlex.join(clang.command)}"
    subprocess.run([*make[0], plain], check=True)
    begin = spent_s()
    subprocess.run([*make[1], plain], check=True)
    middle = spent_s()
    status, sizes = build_with_policy(clang, [*make[2], "CC=cc"], options.policy)
    ratio = (spent_s() - middle) / (middle - begin)
    options.note("build", ratio)
    print(f"the build with the policy: {ratio:.2f} times the CPU time of plain clang's")
    if status or not sizes:
        options.error(f"the build with a policy ended with {status}")
    return [copy / options.program for copy in copies], sizes


def spent_s() -> float:
    """CPU seconds of this process and of its child processes that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(who) for who in whose]
    return sum(each.ru_utime + each.ru_stime for each in used)


def user_s(program: Path, options: Options, out: Path) -> float:
    """User CPU seconds of a run, whose output goes to a file."""
    command = [str(program), *shlex.split(options.arguments)]
    source = options.input or Path(os.devnull)
    with source.open("rb") as given, out.open("wb") as made:
        process = subprocess.Popen(command, stdin=given, stdout=made)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        options.error(f"{program} ended with {process.returncode}")
    return used.ru_utime


def counts(program: Path, options: Options) -> tuple[int, int]:
    """Instructions and accesses of memory of a run, as valgrind counts them."""
    tool = ("--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null")
    command = ["valgrind", *tool, str(program), *shlex.split(options.arguments)]
    source = options.input or Path(os.devnull)
    with source.open("rb") as given:
        done = subprocess.run(
            command, stdin=given, capture_output=True, check=True, errors="replace"
        )
    found = dict(re.findall(r"== (I|D) +refs: +([\d,]+)", done.stderr))
    instructions, accesses = (int(found[kind].replace(",", "")) for kind in "ID")
    return instructions, accesses


def print_counts(options: Options, programs: Sequence[Path]) -> None:
    """Print the changes of what runs."""
    (before, accesses), (after, fewer) = (
        counts(program, options) for program in (programs[0], programs[2])
    )
    options.note("instructions", after / before - 1)
    print(
        f"{options.program}: {before:,} instructions, with the policy"
        f" {after / before - 1:+.2%}; accesses of memory {fewer / accesses - 1:+.2%}"
    )


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Order statistics between which the true median is with 95 % probability."""
    count, outside, rank = len(values), 0.0, 0
    while rank < count // 2:
        outside += comb(count, rank) / 2 ** (count - 1)
        if outside > 0.05:
            break
        rank += 1
    ordered = sorted(values)
    first = max(0, rank - 1)
    return ordered[first], ordered[count - 1 - first]


@benchmark(
    option("--project", type=Path, required=True, help="a project with `make`"),
    option("--program", required=True, help="path in the project"),
    option("--policy", type=Path, default=Path("shipped"), help="of eviction"),
    option("--make", default="CFLAGS=-O2", help="words after make"),
    option("--arguments", default="", help="of the program"),
    option("--input", type=Path, help="standard input of the program"),
    option("--pairs", type=int, default=21, help="runs of each program"),
    option("--count", action="store_true", help="count instructions by valgrind"),
)
def main(chosen: Options) -> None:
    """Build three times, run in turns, and print the ratios."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        programs, sizes = built(chosen, folder)
        outputs = [folder / f"{name}.out" for name in NAMES]
        runs = list(zip(programs, outputs, strict=True))
        spent: list[dict[int, float]] = []
        orders = list(permutations(range(len(runs))))
        for number in range(chosen.pairs):
            order = orders[number % len(orders)]
            spent.append(
                {one: user_s(runs[one][0], chosen, runs[one][1]) for one in order}
            )
        if len({out.read_bytes() for _, out in runs}) > 1:
            chosen.error("the programs write different outputs")
        if chosen.count:
            print_counts(chosen, programs)
    least = min(each[0] for each in spent)
    for one in (1, 2):
        ratios = [each[one] / each[0] for each in spent]
        low, high = median_interval(ratios)
        median = statistics.median(ratios)
        chosen.note(f"ratio, {NAMES[one]}", median)
        print(
            f"{chosen.program}, {NAMES[one]}: {median:.3f} ({low:.3f} to {high:.3f}) times"
            f" plain clang's {least:.2f} s, {chosen.pairs} rounds"
        )
    cycles = [sum(getattr(each, name) for each in sizes) for name in COSTS]
    print(
        f"{sum(each.improved for each in sizes)} functions by the policy; modelled cycles"
        f" {cycles[1] / max(1.0, cycles[0]) - 1:+.1%}, operations"
        f" {cycles[3] / max(1.0, cycles[2]) - 1:+.2%}"
    )


if __name__ == "__main__":
    main()
