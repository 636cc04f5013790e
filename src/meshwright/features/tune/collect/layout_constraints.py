"""Layout constraints, inserted into the text of an HLO module."""

import re
from collections.abc import Mapping, Sequence

from meshwright.errors import LearnedError

Layout = tuple[int, ...]
"""Dims of a tensor from minor to major; () leaves the choice to the compiler."""

_DEFINITION = re.compile(
    r"(?P<indent>\s*)(?P<root>ROOT )?%(?P<name>[\w.-]+) = (?P<shape>\w+\[[\d,]*\])"
    r"(?P<layout>\{[^}]*\})? (?P<opcode>[\w-]+)\((?P<operands>[^()]*)\)(?P<rest>.*)"
)
_OPERAND = re.compile(r"%([\w.-]+)")


def constrain_layouts(text: str, layouts: Mapping[str, Sequence[Layout]]) -> str:
    """Insert custom calls into HLO text that give tensors certain layouts.

    layouts: layouts of an instruction's result, first and second operand, by its name.
    XLA's layout assignment copies values where a `LayoutConstraint` demands it.
    """
    lines, definitions = text.splitlines(), dict[int, re.Match[str]]()
    for number, line in enumerate(lines):
        match = _DEFINITION.fullmatch(line)
        if match:
            definitions[number] = match
    shapes = {match["name"]: match["shape"] for match in definitions.values()}
    missing = sorted(set(layouts) - set(shapes))
    if missing:
        raise LearnedError(f"the module has no array {missing[0]!r} to lay out")
    for number, match in definitions.items():
        if match["name"] in layouts:
            lines[number] = "\n".join(_constrained(match, layouts, shapes))
    return "\n".join(lines) + "\n"


def _constrained(
    match: re.Match[str],
    layouts: Mapping[str, Sequence[Layout]],
    shapes: Mapping[str, str],
) -> list[str]:
    """HLO lines of one instruction, with constraints on its operands and its result."""
    name, indent = match["name"], match["indent"]
    result, *inputs = layouts[name]
    operands, lines = _OPERAND.findall(match["operands"]), list[str]()
    for place, layout in enumerate(inputs[: len(operands)]):
        if layout:
            wanted = f"{name}.operand{place}"
            lines.append(indent + _constraint(wanted, operands[place], shapes, layout))
            operands[place] = wanted
    producer = f"{name}.unconstrained" if result else name
    root = match["root"] or ""
    listed = ", ".join(f"%{operand}" for operand in operands)
    lines.append(
        f"{indent}{'' if result else root}%{producer} = {match['shape']}"
        f"{match['layout'] or ''} {match['opcode']}({listed}){match['rest']}"
    )
    if result:
        shape = {producer: match["shape"]}
        lines.append(f"{indent}{root}{_constraint(name, producer, shape, result)}")
    return lines


def _constraint(name: str, of: str, shapes: Mapping[str, str], layout: Layout) -> str:
    shape = f"{shapes[of]}{{{','.join(map(str, layout))}}}"
    return (
        f'%{name} = {shape} custom-call(%{of}), custom_call_target="LayoutConstraint", '
        f"operand_layout_constraints={{{shape}}}"
    )
