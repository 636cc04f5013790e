"""`meshwright iopddl`: solve a problem of the ASPLOS 2025 contest within a time limit."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument, Option

from meshwright.errors import AssignmentError
from meshwright.features.iopddl.problem_file import read_assignment, write_solution
from meshwright.search.assignment import Assignment, Progress, Solution, solve

_SPARE_S = 0.3
_SPARE = 0.02
"""Seconds, and share of the time, that are kept to stop threads, check and write."""


def iopddl_command(
    file: Annotated[
        Path, Argument(help="problem in the contest's format, JSON or JSON.gz")
    ],
    out: Annotated[
        Path | None, Option(help="file for the solution, a JSON list of indices")
    ] = None,
    seconds: Annotated[
        float, Option(help="seconds to solve, from the start of the process")
    ] = 60.0,
    seed: Annotated[
        int, Option(min=0, max=2**31 - 1, help="random seed of the solver")
    ] = 0,
) -> None:
    """Solve a problem of the ASPLOS 2025 contest on intra-operator parallelism.

    Prints the cost, the best lower bound and the gap between them. Ends early if the
    solution is proven optimal; Ctrl-C ends with the best solution so far.
    """
    spent_s = process_age_s()
    start_s = time.perf_counter() - spent_s
    if not seconds > 0:
        raise AssignmentError(f"--seconds {seconds:g}: give a positive number")
    if out is not None and not out.parent.is_dir():
        raise AssignmentError(f"--out {out}: there is no folder {out.parent}")
    if out is not None and out.is_dir():
        raise AssignmentError(f"--out {out} is a folder: give the name of a file")
    try:
        problem = read_assignment(file)
        left_s = seconds * (1 - _SPARE) - _SPARE_S - (time.perf_counter() - start_s)
        solution = _solve(problem, max(left_s, 0.05), seed)
    except KeyboardInterrupt:
        raise AssignmentError("interrupted before any solution was found") from None
    if out is not None:
        write_solution(out, solution.choices)
    for line in _lines(problem, solution, time.perf_counter() - start_s):
        print(line)


def process_age_s() -> float:
    """Seconds since this process was started; 0 if the operating system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        since_boot_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot_s)
    return 0.0


def _solve(problem: Assignment, budget_s: float, seed: int) -> Solution:
    """Solve a problem, with progress on standard error."""
    console = Console(stderr=True)
    console.print(str(problem), highlight=False)
    with console.status("presolve") as status:
        printed_s = [-1.0]

        def show(progress: Progress) -> None:
            line = (
                f"{progress.seconds:.1f} s  cost {progress.cost:.12g}  "
                f"bound {progress.bound:.12g}"
            )
            if console.is_terminal:
                status.update(line)
            elif progress.seconds > printed_s[0] + 1:  # in a log, one line a second
                printed_s[0] = progress.seconds
                console.print(line, highlight=False, soft_wrap=True)

        return solve(problem, budget_s, seed, on_progress=show)


def _lines(problem: Assignment, solution: Solution, seconds: float) -> list[str]:
    peak, limit = problem.peak(solution.choices), problem.limit
    fits = problem.is_feasible(solution.choices)
    return [
        f"cost      {_number(solution.cost)}",
        f"bound     {_number(solution.bound)}",
        f"gap       {solution.gap:.4%}" + (" (optimal)" if solution.is_optimal else ""),
        f"usage     {_number(peak)}"
        + ("" if limit is None else f" of {_number(limit)}"),
        f"feasible  {'yes' if fits else 'no'}",
        f"seconds   {seconds:.1f}",
    ]


def _number(number: float) -> str:
    return (
        f"{number:.0f}" if abs(number) < 1e15 and number % 1 == 0 else f"{number:.9g}"
    )
