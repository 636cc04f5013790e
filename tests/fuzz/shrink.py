"""From a failing case to a small one that fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.case import Case
from tests.fuzz.check import Outcome, run_case
from tests.fuzz.pool import Input, Var
from tests.fuzz.program import Generated


def shrink(
    case: Case, run_fn: Callable[[Case], Outcome] = run_case, attempts: int = 200
) -> Case:
    """The smallest case found within that many runs."""
    verdict = run_fn(case).verdict
    progress = True
    while progress:
        progress = False
        for smaller in neighbours(case):
            attempts -= 1
            if attempts < 0:
                return case
            if fails(smaller, run_fn, verdict):
                case, progress = smaller, True
                break
    return case


def fails(case: Case, run_fn: Callable[[Case], Outcome], verdict: str) -> bool:
    """True when a case still ends that way; one that cannot run at all does not."""
    try:
        return run_fn(case).verdict == verdict
    except Exception:  # noqa: BLE001 - a cut too many, the original no longer runs
        return False


def neighbours(case: Case) -> Iterator[Case]:
    """Cases with one thing less, the boldest first."""
    program = case.program
    for i in range(len(program.lines)):
        yield replace(case, program=without_line(program, len(program.lines) - 1 - i))
    for i in range(len(program.outputs)):
        if len(program.outputs) > 1:
            outputs = program.outputs[:i] + program.outputs[i + 1 :]
            yield replace(case, program=swept(replace(program, outputs=outputs)))
    for i in range(len(case.tactics)):
        yield replace(case, tactics=case.tactics[:i] + case.tactics[i + 1 :])
    order = ("adam", "momentum", "sgd", "grad", "forward")
    for variant in order[order.index(program.variant) + 1 :]:
        tactics = tuple(as_variant(t, variant) for t in case.tactics)
        yield replace(case, program=replace(program, variant=variant), tactics=tactics)
    for i in range(len(case.mesh)):
        if len(case.mesh) > 1:
            yield replace(case, mesh=case.mesh[:i] + case.mesh[i + 1 :])
    if case.donates:
        yield replace(case, donates=False)


def as_variant(tactic: str, variant: str) -> str:
    """A tactic with the paths that leaves have in another variant."""
    prefix = {"forward": "", "grad": "p."}.get(variant, "state.p.")
    return re.sub(r"'(?:state\.p\.|p\.|\*\*\.)(x\d+)'", rf"'{prefix}\1'", tactic)


def without_line(program: Generated, index: int) -> Generated:
    """What the line makes comes from outside instead."""
    line = program.lines[index]
    made = [v for v in program.values if is_made(v, line)]
    inputs = tuple(
        Input(v.name, v.shape, v.dtype, {"int32": "int", "bool": "bool"}.get(v.dtype, "float"))
        for v in made
    )  # fmt: skip
    lines = program.lines[:index] + program.lines[index + 1 :]
    values = tuple(v for v in program.values if v not in made)
    return swept(
        replace(program, lines=lines, values=values, inputs=program.inputs + inputs)
    )


def is_made(v: Var, line: str) -> bool:
    """True when a line binds this name."""
    last = line.split("\n")[-1]
    return re.search(rf"\b{v.name}\b", last.partition(" = ")[0]) is not None


def swept(program: Generated) -> Generated:
    """Without the lines and inputs that no output needs."""
    needed = {v.name for v in program.outputs}
    lines: list[str] = []
    for line in reversed(program.lines):
        names = set(re.findall(r"[a-z]+\d+", line))
        if any(is_made(v, line) and v.name in needed for v in program.values):
            lines.insert(0, line)
            needed |= names
    inputs = tuple(i for i in program.inputs if i.name in needed)
    return replace(program, lines=tuple(lines), inputs=inputs or program.inputs[:1])
