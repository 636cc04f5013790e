"""Objects of a clang that is asked, beside those of the same clang that is not.

    python -m benchmarks policies compiler_fidelity --corpus FOLDER --projects a,b,c

At -Oz and -O2, each unit is compiled plainly, and with the default decision of inlining as
the answer to each call: the objects must be identical. For register allocation the compiler
tells no default: answers of a first compilation are recorded, and given again in a second
one. Exit status 1 if any two objects differ.

A clang that asks about inlining never inlines a function into itself (LLVM:
MLInlineAdvisor.cpp), which the default heuristic may do at -O2: such units differ.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.harness import Options, benchmark, option
from meshwright.features.policies.compiler.allocation.policies import first_policy
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit, read_corpus

LEVELS = ("-Oz", "-O2")


def inlining_is_faithful(compiler: ClangCompiler, unit: Unit, level: str) -> bool:
    """Whether the default decisions of inlining, given as answers, give its object."""
    flags = (*unit.compile_flags, level)
    plain = compiler.compile(unit.source, flags)
    advised = compiler.compile(unit.source, flags, inline=lambda call: call.default)
    return not advised.fault and advised.object == plain.object


def log_is_faithful(compiler: ClangCompiler, unit: Unit, level: str, kind: str) -> bool:
    """Whether recorded answers of register allocation give their object again."""
    flags = (*unit.compile_flags, level)
    first = compiler.compile(
        unit.source, flags, measure_spills=False, **{kind: first_policy(kind)}
    )
    answers = iter(first.decisions.get(kind, ()))
    again = compiler.compile(
        unit.source, flags, measure_spills=False, **{kind: lambda call: next(answers)}
    )
    return not first.fault and not again.fault and first.object == again.object


def compared(
    compiler: ClangCompiler, unit: Unit
) -> list[tuple[tuple[str, str, str], bool]]:
    """Results of a unit, by project, level and what was asked."""
    results: list[tuple[tuple[str, str, str], bool]] = []
    for level in LEVELS:
        same = inlining_is_faithful(compiler, unit, level)
        results.append(((unit.project, level, "inline"), same))
        for kind in ("evict", "priority"):
            same = log_is_faithful(compiler, unit, level, kind)
            results.append(((unit.project, level, kind), same))
    return results


@benchmark(
    option("--corpus", type=Path, required=True, help="folder of `policies corpus`"),
    option("--projects", required=True, help="projects of the corpus, a,b"),
)
def main(chosen: Options) -> int:
    """Print how many units have identical objects."""
    projects = chosen.projects.split(",")
    units = [each for each in read_corpus(chosen.corpus) if each.project in projects]
    units_of, same_of = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    with ClangCompiler() as compiler, ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda unit: compared(compiler, unit), units)
        for unit, results in zip(units, found, strict=True):
            for key, same in results:
                units_of[key] += 1
                same_of[key] += same
                if not same:
                    print(f"{' '.join(key)}: {unit.name} differs")
    for key, number in sorted(units_of.items()):
        print(f"{' '.join(key)}: {same_of[key]} of {number} units identical")
        chosen.note(" ".join(key), same_of[key] / number)
    return int(same_of != units_of or not units)


if __name__ == "__main__":
    main()
