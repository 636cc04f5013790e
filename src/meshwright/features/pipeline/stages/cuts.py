"""Divides a step into pipeline stages: at the user's marks, or evenly by FLOPs.

A cut is a position in the ops of one microbatch, within the forward pass: the ops from
there on, up to the next cut, are of the next stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from meshwright.errors import StageError
from meshwright.features.pipeline.stages.microbatches import Microbatches, flops_of
from meshwright.program.analysis.live_ranges import (
    BufferInterval,
    live_bytes,
    live_ranges,
)
from meshwright.program.ir import Atom, Op, Program, num_bytes

MARK = "stage:"
"""Prefix of the names of tag ops by which the user marks where stages begin."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """The names of pipeline stages, and the positions of ops where they begin.

    Positions count the ops that run for each microbatch.

    starts: the position of the first op of each stage; the first stage begins at 0.
    backward: where the backward pass begins; the number of ops if there is none.
    """

    names: tuple[str, ...]
    starts: tuple[int, ...]
    backward: int

    def __post_init__(self) -> None:
        ends = (*self.starts[1:], self.backward)
        if len(self.names) != len(self.starts) or not self.starts or self.starts[0]:
            raise StageError(f"stages {self.names} begin at {self.starts}")
        for name, start, end in zip(self.names, self.starts, ends, strict=True):
            if start >= end:
                raise StageError(
                    f"stage {name!r} has no forward pass: it begins at op {start}, and "
                    f"what follows it at {end}; begin it at an earlier op of the forward "
                    "pass, mark its first value inside of the loss, or use fewer stages"
                )

    @property
    def num_stages(self) -> int:
        return len(self.names)

    def stage_at(self, position: int) -> int:
        """The number of the stage of the forward op at a position."""
        return sum(start <= position for start in self.starts) - 1


def marked_cuts(step: Microbatches) -> Cuts:
    """The stages that begin where the user calls `mw.stage`.

    Ops before the first mark become a stage named `0`, unless they have no FLOPs.
    Raises `StageError` if there is no mark in the forward pass of a microbatch.
    """
    _require_outside(step)
    starts = _marked_starts(step)
    if not starts:
        marks = dict.fromkeys(filter(None, map(mark_of, (*step.before, *step.after))))
        raise StageError(
            f"stages {tuple(marks)} are marked only on values that one microbatch does not "
            "compute in its forward pass, such as weights or gradients; write x = "
            "mw.stage(x, 'decoder') on the activations where the stage begins, or give "
            "the number of stages"
        )
    backward = backward_start(step, max(starts.values()) + 1)
    first = step.body[: min(starts.values())]
    if any(map(flops_of, first)):
        if "0" in starts:
            raise StageError(
                "stage '0' is the name of the ops before the first mark; give the marked "
                "stage another"
            )
        starts = {"0": 0, **starts}
    names = tuple(starts)
    return Cuts(names, (0, *tuple(starts.values())[1:]), backward)


def _marked_starts(step: Microbatches) -> dict[str, int]:
    """The position of the first mark of each stage.

    Marks of one name on values that do not depend on each other, such as the leaves of a
    pytree, are one mark. Raises `StageError` for marks of one name behind each other, and
    for a mark on a gradient.
    """
    starts: dict[str, int] = {}
    before: dict[Atom, frozenset[str]] = {}  # marks; "" for the backward pass
    for position, op in enumerate(step.body):
        found = frozenset[str]().union(*(before.get(a, ()) for a in op.operands))
        name = mark_of(op)
        if name and "" in found:
            raise StageError(
                f"{op.source}: stage {name!r} is marked on a gradient; mark the "
                "activations of the forward pass where the stage begins"
            )
        if name in found and name:
            raise StageError(
                f"{op.source}: stage {name!r} is marked a second time, on a value that "
                "depends on the first; give each stage a name of its own"
            )
        if name:
            starts.setdefault(name, position)
            found |= {name}
        found |= {""} if op.is_backward else set()
        before.update(dict.fromkeys(op.results, found))
    return starts


def mark_of(op: Op) -> str:
    """The name of the stage that an op marks the start of; "" for other ops."""
    name = str(op.params.get("name", "")) if op.kind == "tag" else ""
    return name.removeprefix(MARK) if name.startswith(MARK) else ""


def has_marks(ops: Sequence[Op]) -> bool:
    """Whether the user has marked starts of stages, also inside of loops."""
    inner = (each for op in ops for body in op.bodies for each in body.walk())
    return any(map(mark_of, (*ops, *inner)))


def _require_outside(step: Microbatches) -> None:
    """Raise `StageError` for a stage mark in a loop, branch or remat region."""
    for op in step.body:
        inner = (each for body in op.bodies for each in body.walk())
        for name in filter(None, map(mark_of, inner)):
            raise StageError(
                f"{op.source}: stage {name!r} is marked inside of a {op.kind}, which "
                "cannot be cut; mark the value outside of it"
            )


def backward_start(step: Microbatches, least: int = 0) -> int:
    """The position, `least` or later, of the op where the backward pass begins.

    It is the first op that JAX made by transposing (`Op.is_backward`). Without such ops, as
    in gradients written by hand, it is taken to be where most bytes are live, without the
    gradients that wait for the end of the step. It is the number of ops if the step sums
    nothing large enough to be a gradient.
    """
    num_ops = len(step.body)
    if not _has_backward(step):
        return num_ops
    first = next((i for i, op in enumerate(step.body) if op.is_backward), None)
    if first is not None:
        return max(first, least)
    live = sent_bytes(step.body)
    return max(range(least, num_ops + 1), key=live.__getitem__)


def _has_backward(step: Microbatches) -> bool:
    """Whether the step sums, over microbatches, something of the shape of an input.

    A gradient of a parameter is such a sum.
    """
    sliced = {place for place, _ in step.slices.values()}
    shapes = {v.shape for i, v in enumerate(step.inputs) if i not in sliced and v.shape}
    return any(op.results[0].shape in shapes for op in step.sums)


_SLACK = 0.25
"""Largest distance of a cut from even FLOPs, as a share of a stage's FLOPs."""


def even_cuts(step: Microbatches, num_stages: int) -> Cuts:
    """Stages of nearly equal FLOPs, each beginning where few bytes have to be sent.

    Of places where as few bytes are sent, the one closest to equal FLOPs is taken.
    """
    if num_stages < 1:
        raise StageError(f"{num_stages} stages; wanted at least one")
    backward = backward_start(step)
    forward = step.body[:backward]
    done = [0, *accumulate(1 + flops_of(op) for op in forward)]
    sent = sent_bytes(forward)
    starts = [0]
    for stage in range(1, num_stages):
        even = done[-1] * stage / num_stages
        slack = done[-1] * _SLACK / num_stages
        left = range(starts[-1] + 1, backward - (num_stages - stage - 1))
        if not left:
            raise StageError(
                f"the forward pass has {backward} ops, too few for {num_stages} stages; "
                "use fewer stages"
            )
        near = [i for i in left if abs(done[i] - even) <= slack]
        if near:
            starts.append(min(near, key=lambda i: (sent[i], abs(done[i] - even))))
        else:  # one op has more than a stage's share of the work
            starts.append(min(left, key=lambda i: abs(done[i] - even)))
    return cuts_at(step, starts[1:])


def sent_bytes(ops: Sequence[Op]) -> list[int]:
    """Bytes that stages would send if one began at a position, for each position.

    They are the results of ops before the position that ops from there on read.
    """
    ranges = live_ranges((op.operands, op.results) for op in ops)
    return live_bytes(
        (
            BufferInterval(num_bytes(value), index + 1, ranges.end(value))
            for value, index in ranges.definitions.items()
        ),
        len(ops) + 1,
    )


def planned_cuts(step: Microbatches, num_stages: int) -> Cuts:
    """The stages at the marks `1`, `2`, ... that a plan has written into a program."""
    at: dict[str, int] = {}
    for position, op in enumerate(step.body):
        at.setdefault(mark_of(op), position)
    missing = [n for n in range(1, num_stages) if str(n) not in at]
    if missing:
        raise StageError(
            f"stage {missing[0]} begins at an op that does not depend on the batch; begin "
            "it at a later op"
        )
    return cuts_at(step, [at[str(n)] for n in range(1, num_stages)])


def cuts_at(step: Microbatches, starts: Sequence[int]) -> Cuts:
    """The stages that begin at given positions in the ops of one microbatch.

    Raises `StageError` unless the positions increase and are of ops of the forward pass.
    """
    body, forward = step.body, backward_start(step)
    known = [0, *starts]
    for before, start in zip(known, starts, strict=False):
        is_there = before < start < len(body)
        if not is_there or (start >= forward and body[start].is_backward):
            raise StageError(
                f"stages begin at ops {list(starts)}; wanted growing positions from 1 to "
                f"{forward - 1}, as `pipelined.forward(...)` lists the ops of the forward "
                "pass; or give the number of stages"
            )
    backward = backward_start(step, max(starts, default=0) + 1)
    names = tuple(map(str, range(len(starts) + 1)))
    return Cuts(names, (0, *starts), backward)


def forward_program(step: Microbatches) -> Program:
    """The forward pass of one microbatch as a program; `Cuts.starts` count its ops."""
    forward = step.body[: backward_start(step)]
    return Program((), forward, (), step.constants)
