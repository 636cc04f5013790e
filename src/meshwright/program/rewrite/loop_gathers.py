"""All-gathers in loops, and whether one can run an iteration ahead of its readers.

A gather can if its operand is computed, by cheap ops, from slices of stacked operands of
the loop and from values that the loop does not change. ZeRO-3 and FSDP gather the weights
of scanned layers so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import COLLECTIVES, Trait, has_trait

_SHORTEST = 2
"""Least number of iterations of a loop with a next one."""


@dataclass(frozen=True, slots=True, eq=False)
class LoopGather:
    """An all-gather in a loop, and the ops of the body that compute its operand.

    gather: the all-gather.
    chain: the ops of the body on which it depends, in order, with itself as the last.
    why_not: why it cannot run one iteration ahead; "" if it can.
    """

    gather: Op
    chain: tuple[Op, ...] = ()
    why_not: str = ""


def loop_gathers(
    program: Program, is_chosen: Callable[[Op], bool], loop: Op | None = None
) -> Iterator[LoopGather]:
    """Each chosen all-gather within a region of a program, at any depth.

    loop: the op whose body the program is; `None` for a whole program.
    """
    if loop is not None:
        yield from gathers_of_body(loop, program, is_chosen)
    for op in program.ops:
        for body in op.bodies:
            yield from loop_gathers(body, is_chosen, op)


def gathers_of_body(
    loop: Op, body: Program, is_chosen: Callable[[Op], bool]
) -> Iterator[LoopGather]:
    """Each chosen all-gather that is an op of a body itself."""
    for op in body.ops:
        if op.kind == "all_gather" and is_chosen(op):
            yield _loop_gather(loop, body, op)


def _loop_gather(loop: Op, body: Program, gather: Op) -> LoopGather:
    producers = {result: op for op in body.ops for result in op.results}
    chain, leaves = _chain(gather, producers)
    why_not = _why_not(loop, body, chain, leaves)
    return LoopGather(gather, () if why_not else chain, why_not)


def _why_not(
    loop: Op, body: Program, chain: tuple[Op, ...], leaves: frozenset[Atom]
) -> str:
    """Why a gather, the last op of a chain, cannot run one iteration ahead.

    "" if it can. leaves: inputs of the body that the chain reads.
    """
    if loop.kind != "scan":
        return f"its body is that of a {loop.kind}, which does not read stacked slices"
    if loop.params["length"] < _SHORTEST:
        return "the loop has no second iteration"
    for op in chain[:-1]:
        if not _is_cheap(op):
            return f"its operand depends on a {op.kind} of the same body"
    if any(body.inputs[i] in leaves for i in _carried_inputs(loop)):
        return "its operand depends on a value that the loop carries"
    if not any(body.inputs[i] in leaves for i in stacked_inputs(loop)):
        return "its operand is the same in all iterations"
    if not dependent_carries(loop, chain[-1]):
        return (
            "no value that the loop carries depends on it, which would order iterations"
        )
    return ""


def dependent_carries(loop: Op, gather: Op) -> list[Value]:
    """The inputs of a loop's body that the iteration before computes from a gather."""
    (body,) = loop.bodies
    reached: set[Atom] = set(gather.results)
    for op in body.ops:
        if not reached.isdisjoint(op.operands):
            reached.update(op.results)
    return [
        body.inputs[i]
        for wire in loop.wires
        if wire.inputs and wire.outputs and not wire.is_stacked
        for _, i in wire.inputs
        if body.outputs[wire.outputs[0][1]] in reached
    ]


def _chain(
    gather: Op, producers: dict[Value, Op]
) -> tuple[tuple[Op, ...], frozenset[Atom]]:
    """The ops of a body that a gather needs, in order, and the inputs that they read."""
    found: dict[Op, None] = {}
    leaves: set[Atom] = set()

    def visit(op: Op) -> None:
        if op in found:
            return
        for atom in op.operands:
            if isinstance(atom, Value) and atom in producers:
                visit(producers[atom])
            else:
                leaves.add(atom)
        found[op] = None

    visit(gather)
    return tuple(found), frozenset(leaves)


def _is_cheap(op: Op) -> bool:
    """Whether an op is worth moving with a gather: no body, effect, or other product."""
    if op.bodies or op.has_effect or not op.results:
        return False
    if op.kind in COLLECTIVES:
        return op.kind == "all_gather"
    return not any(has_trait(op.kind, t) for t in (Trait.CONTRACTION, Trait.STANDALONE))


def stacked_inputs(loop: Op) -> dict[int, int]:
    """The operand's position, by input of the body, of each stacked operand of a loop."""
    return {
        wire.inputs[0][1]: wire.operand
        for wire in loop.wires
        if wire.is_stacked and wire.inputs and wire.operand is not None
    }


def _carried_inputs(loop: Op) -> list[int]:
    """Positions of the body's inputs that an iteration hands to the next one."""
    return [
        i for w in loop.wires if w.outputs and not w.is_stacked for _, i in w.inputs
    ]
