"""The stage on which each op after the last microbatch runs.

An update runs where its gradient was summed, and scalars, such as a global norm, on the
lowest stage that has one of their operands.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from meshwright.partitioner.stages.microbatches import Microbatches
from meshwright.program.ir import Atom, Op, Value, num_bytes
from meshwright.program.ops import Trait, has_trait


def split_sums(step: Microbatches, place: Mapping[Op, int]) -> Microbatches:
    """The step in which gradients of different passes are summed apart, and added once.

    A weight of two stages (a tied embedding) would otherwise have its gradients sent and
    added for every microbatch.

        before, of each microbatch: %g = add %a, %b;   after all: sum(%g)
        now, after all: add sum(%a), sum(%b)

    So are the gradients of layers that are joined to that of a stack.
    """
    producer = {value: op for op in step.body for value in op.results}
    readers: dict[Atom, int] = {}
    for op in (*step.body, *step.sums):
        for atom in op.operands:
            readers[atom] = readers.get(atom, 0) + 1
    for atom in step.outputs:
        readers[atom] = readers.get(atom, 0) + 1
    gone: set[Op] = set()
    sums: list[Op] = []
    adds: list[Op] = []
    todo = list(reversed(step.sums))
    while todo:
        op = todo.pop()
        (value,) = op.operands
        made = producer.get(value) if isinstance(value, Value) else None
        if made is None or readers[value] > 1 or not _joins(op, made, producer, place):
            sums.append(op)
            continue
        gone.add(made)
        parts = tuple(Value(a.shape, a.dtype) for a in made.operands)
        adds.append(replace(made, operands=parts, results=op.results))
        todo += [
            replace(op, operands=(a,), results=(part,))
            for a, part in zip(reversed(made.operands), reversed(parts), strict=True)
        ]
    body = tuple(op for op in step.body if op not in gone)
    after = (*reversed(adds), *step.after)
    return replace(step, body=body, sums=tuple(sums), after=after)


def _joins(
    total: Op, made: Op, producer: Mapping[Value, Op], place: Mapping[Op, int]
) -> bool:
    """Whether an op adds or joins values of different passes, and its total is read."""
    is_linear = has_trait(made.kind, Trait.ADDS) or has_trait(made.kind, Trait.JOINS)
    if total.params["monoid"] != "sum" or not is_linear:
        return False
    makers = [producer.get(a) if isinstance(a, Value) else None for a in made.operands]
    if None in makers:
        return False
    return len({place[op] for op in makers if op is not None}) > 1


def find_stages_after(after: Sequence[Op], homes: Mapping[Value, int]) -> dict[Op, int]:
    """The stage of each op that runs once, after all microbatches.

    homes: the stages of sums over microbatches. An op runs where most bytes of its
    operands are, of stages with equally many the lowest.
    """
    at: dict[Atom, int] = {**homes}
    stages: dict[Op, int] = {}
    for op in after:
        sizes: dict[int, int] = {}
        for atom in _located(op.operands, at):
            sizes[at[atom]] = sizes.get(at[atom], 0) + num_bytes(atom)
        stage = max(sorted(sizes), key=sizes.__getitem__, default=0)
        stages[op] = stage
        at.update(dict.fromkeys(op.results, stage))
    return stages


def _located(atoms: Iterable[Atom], at: Mapping[Atom, int]) -> Iterable[Atom]:
    return (atom for atom in dict.fromkeys(atoms) if atom in at)
