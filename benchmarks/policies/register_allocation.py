"""Spill code and run time with a learned policy of register allocation.

    python -m benchmarks policies register_allocation --policy FOLDER
        [--corpus FOLDER --held-out a,b]

With a corpus, the modelled cycles of spill code and the micro-operations of each function
of the projects that were held out, beside clang's own decisions; "built" is what a build
keeps, which takes from the policy only functions that it makes better. Then the CPU time of
two programs whose inner loops need more registers than there are, compiled with and without
the policy, in turns.
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
    FunctionCosts,
    cost_changes,
)
from meshwright.features.policies.compiler.allocation.measured import measured_unit
from meshwright.features.policies.compiler.allocation.policies import AllocationPolicy
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import (
    Unit,
    one_of_each_file,
    read_corpus,
)
from meshwright.features.policies.compiler.learned.inline_policy import InlinePolicy
from meshwright.features.policies.compiler.learned.policy_file import read_policy

PROGRAMS = Path(__file__).parent / "programs"
ROUNDS = 15


def costs_of(
    compiler: ClangCompiler, policy: AllocationPolicy, unit: Unit, folder: Path
) -> list[FunctionCosts]:
    """Costs of each function of a unit that asks for decisions."""
    measured = measured_unit(compiler, unit, policy.kind, policy, folder)
    return [
        FunctionCosts(unit.project, measured.default[name], cost)
        for name, cost in measured.costs(compiler, policy.kind, policy).items()
    ]


def print_costs(
    options: Options, compiler: ClangCompiler, policy: AllocationPolicy
) -> None:
    """Print the changes of costs by project, and of all."""
    projects = options.held_out.split(",")
    units = [u for u in read_corpus(options.corpus) if u.project in projects]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        lists = pool.map(
            lambda unit: costs_of(compiler, policy, unit, Path(folder)),
            one_of_each_file(units),
        )
        found = [each for members in lists for each in members]
    for name in (*projects, "all"):
        changes = cost_changes(each for each in found if name in (each.project, "all"))
        for what, change in (
            ("cycles", changes.cycles),
            ("operations", changes.operations),
            ("cycles, built", changes.kept_cycles),
            ("operations, built", changes.kept_operations),
        ):
            options.note(f"{name} {what}", change.mean)
            print(
                f"{name}, {what}: {change.functions} functions, {change.better} less,"
                f" {change.worse} more; mean {change.mean:+.2%} ({change.low:+.2%} to"
                f" {change.high:+.2%}), sum {change.total:+.2%}"
                f" ({change.total_low:+.2%} to {change.total_high:+.2%})"
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
            plain = compiler.compile(source, ["-O2"])
            made = compiler.compile(source, ["-O2"], **{policy.kind: policy})
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
            costs = [
                compiler.register_costs(source, **given)["main"]
                for given in ({}, {policy.kind: policy})
            ]
            print(
                f"{source.stem}: modelled cycles {costs[0].cycles:.0f} ->"
                f" {costs[1].cycles:.0f}, operations {costs[0].operations:.0f} ->"
                f" {costs[1].operations:.0f}; least time {before:.3f} s -> {after:.3f} s,"
                f" median ratio {ratio:.3f}"
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
            print_costs(chosen, compiler, policy)
        print_times(chosen, compiler, policy)


if __name__ == "__main__":
    main()
