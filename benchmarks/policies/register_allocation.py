"""Spill code and run time with a learned policy of register allocation.

    python -m benchmarks policies register_allocation --policy FOLDER
        [--corpus FOLDER --held-out a,b]

With a corpus, the modelled cycles of spill code of each function of the projects that were
held out, beside clang's own decisions. Then the CPU time of two programs whose inner loops
need more registers than there are, built with and without the policy, in turns; a build
keeps the object with fewer modelled cycles, and so may be plain clang's.
"""

import resource
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.harness import Options, benchmark, option
from meshwright.features.policies.compiler.allocation.cost_change import (
    FunctionChange,
    cost_change,
)
from meshwright.features.policies.compiler.allocation.measured import measured_unit
from meshwright.features.policies.compiler.allocation.policies import AllocationPolicy
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit, read_corpus
from meshwright.features.policies.compiler.learned.inline_policy import InlinePolicy
from meshwright.features.policies.compiler.learned.policy_file import read_policy

PROGRAMS = Path(__file__).parent / "programs"
ROUNDS = 15


def cycles_of(
    compiler: ClangCompiler, policy: AllocationPolicy, unit: Unit, folder: Path
) -> list[FunctionChange]:
    """Spill code of each function of a unit that asks for decisions."""
    measured = measured_unit(compiler, unit, policy.kind, policy, folder)
    return [
        FunctionChange(unit.project, measured.default.get(name, 0.0), cycles)
        for name, cycles in measured.cycles(compiler, policy.kind, policy).items()
    ]


def print_spills(
    options: Options, compiler: ClangCompiler, policy: AllocationPolicy
) -> None:
    """Print the change of spill code by project, and of all."""
    projects = options.held_out.split(",")
    units = [u for u in read_corpus(options.corpus) if u.project in projects]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        lists = pool.map(
            lambda unit: cycles_of(compiler, policy, unit, Path(folder)), units
        )
        found = [each for members in lists for each in members]
    for name in (*projects, "all"):
        change = cost_change([each for each in found if name in (each.project, "all")])
        options.note(f"{name} mean", change.mean)
        options.note(f"{name} total", change.total)
        print(
            f"{name}: {change.functions} functions, {change.better} with fewer cycles,"
            f" {change.worse} with more; mean {change.mean:+.2%} ({change.low:+.2%} to"
            f" {change.high:+.2%}), sum {change.total:+.2%} ({change.total_low:+.2%} to"
            f" {change.total_high:+.2%})"
        )


def run_s(program: Path) -> float:
    """CPU seconds of a run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([program], check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def linked(code: bytes, program: Path) -> Path:
    """A program from its object."""
    object_file = program.with_suffix(".o")
    object_file.write_bytes(code)
    subprocess.run(["cc", object_file, "-o", program], check=True)
    return program


def print_times(
    options: Options, compiler: ClangCompiler, policy: AllocationPolicy
) -> None:
    """Print the ratio of run times of each program."""
    with tempfile.TemporaryDirectory() as place:
        for source in sorted(PROGRAMS.glob("*.c")):
            plain = compiler.compile(source, ["-O2"], measure_spills=True)
            made = compiler.compile(
                source, ["-O2"], measure_spills=True, **{policy.kind: policy}
            )
            programs: Sequence[Path] = (
                linked(plain.object, Path(place, source.stem)),
                linked(made.object, Path(place, f"{source.stem}-policy")),
            )
            answers = {subprocess.check_output([program]) for program in programs}
            assert len(answers) == 1, f"{source.stem} computes something else"
            times = [[run_s(program) for program in programs] for _ in range(ROUNDS)]
            ratio = statistics.median(after / before for before, after in times)
            before, after = (min(column) for column in zip(*times, strict=True))
            options.note(f"{source.stem} time", ratio)
            cycles = [sum(each.spill_cycles.values()) for each in (plain, made)]
            print(
                f"{source.stem}: modelled cycles {cycles[0]:.0f} -> {cycles[1]:.0f}; least"
                f" time {before:.3f} s -> {after:.3f} s, median ratio {ratio:.3f}"
                f"{'; a build keeps the plain object' * (cycles[1] > cycles[0])}"
            )


@benchmark(
    option("--policy", type=Path, required=True, help="folder of `policies train`"),
    option("--corpus", type=Path, help="folder of `policies corpus`"),
    option("--held-out", default="", help="projects that did not teach, a,b"),
)
def main(chosen: Options) -> None:
    """Print spill code on a corpus, and run times of programs."""
    policy = read_policy(chosen.policy)
    if isinstance(policy, InlinePolicy):
        chosen.error(f"{chosen.policy} has a policy of inlining")
    with ClangCompiler() as compiler:
        if chosen.corpus is not None:
            print_spills(chosen, compiler, policy)
        print_times(chosen, compiler, policy)


if __name__ == "__main__":
    main()
