"""Run time of a project's program, built by plain clang and with a policy of registers.

    python -m benchmarks policies run_time --project FOLDER --program src/lua
        [--policy FOLDER --make "CFLAGS=-O2" --arguments "work.lua" --input FILE]

Two copies of the project are built by `make`. The programs run in turns, with the same
arguments and standard input; their outputs must be the same. Printed are the median of the
ratios of their user CPU times, and an interval that contains the ratio's true median in 95
of 100 such measurements. `programs/work.lua` is work for an interpreter of Lua.
"""

import os
import shlex
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from math import comb
from pathlib import Path

from benchmarks.harness import Options, benchmark, option
from meshwright.features.policies.compiler.clang import find_clang
from meshwright.features.policies.compiler.projects.build import (
    ObjectSizes,
    build_with_policy,
)


def built(options: Options, folder: Path) -> tuple[list[Path], list[ObjectSizes]]:
    """The program built plainly and with the policy, and figures of its objects."""
    clang = find_clang()
    copies = [folder / name for name in ("plain", "policy")]
    for copy in copies:
        shutil.copytree(options.project, copy)
    words = shlex.split(options.make)
    make = [["make", "-s", "-B", "-C", str(copy), *words] for copy in copies]
    plain = f"CC={shlex.join(clang.command)}"
    subprocess.run([*make[0], plain], check=True)
    status, sizes = build_with_policy(clang, [*make[1], "CC=cc"], options.policy)
    if status or not sizes:
        options.error(f"the build with a policy ended with {status}")
    return [copy / options.program for copy in copies], sizes


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
)
def main(chosen: Options) -> None:
    """Build twice, run in turns, and print the ratio."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        programs, sizes = built(chosen, folder)
        outputs = [folder / name for name in ("before", "after")]
        runs = list(zip(programs, outputs, strict=True))
        pairs: list[list[float]] = []
        for number in range(chosen.pairs):
            order = runs if number % 2 else runs[::-1]
            spent = [user_s(program, chosen, out) for program, out in order]
            pairs.append(spent if number % 2 else spent[::-1])
        if outputs[0].read_bytes() != outputs[1].read_bytes():
            chosen.error("the two programs write different outputs")
    ratios = [after / before for before, after in pairs]
    low, high = median_interval(ratios)
    median = statistics.median(ratios)
    chosen.note("ratio", median)
    cycles = [sum(each.cycles_before for each in sizes)]
    cycles.append(sum(each.cycles_after for each in sizes))
    print(
        f"{chosen.program}: {median:.3f} ({low:.3f} to {high:.3f}) times plain clang's"
        f" {min(before for before, _ in pairs):.2f} s, {chosen.pairs} pairs;"
        f" {sum(each.decisions > 0 for each in sizes)} objects asked, modelled cycles"
        f" {cycles[1] / max(1.0, cycles[0]) - 1:+.1%}"
    )


if __name__ == "__main__":
    main()
