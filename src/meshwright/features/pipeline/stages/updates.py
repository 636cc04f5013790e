"""Assigns each op that runs after the last microbatch to a pipeline stage.

A parameter's update runs where its gradient was summed. Scalars, such as a global norm,
are computed where most bytes of their operands are.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshwright.features.pipeline.stages.microbatches import Microbatches
from meshwright.program.ir import Atom, Op, Value, num_bytes
from meshwright.program.ops import Trait, has_trait


def split_sums(step: Microbatches, place: Mapping[Op, int]) -> Microbatches:
    """The step in which gradients of different passes are accumulated separately.

    A weight of two stages (a tied embedding) would otherwise have its gradients sent
    and added for every microbatch.

        before: each microbatch computes %g = add %a, %b;  after all: sum(%g)
        after:  after all microbatches, add sum(%a), sum(%b)

    The same is done for gradients of layers that are joined to the gradient of a stack.
    """
    producer = {value: op for op in step.body for value in op.results}
    readers = Counter(a for op in (*step.body, *step.sums) for a in op.operands)
    readers.update(step.outputs)
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
    """Whether a sum over microbatches can be taken before the op of its addend.

    That op adds or concatenates values of different passes.

    total: the sum. made: the op. producer: the op that computes each value. place: the
        pass of each op.
    """
    is_linear = has_trait(made.kind, Trait.ADDS) or has_trait(made.kind, Trait.JOINS)
    if total.params["monoid"] != "sum" or not is_linear:
        return False
    makers = [producer.get(a) if isinstance(a, Value) else None for a in made.operands]
    if None in makers:
        return False
    return len({place[op] for op in makers if op is not None}) > 1


def find_stages_after(after: Sequence[Op], homes: Mapping[Value, int]) -> dict[Op, int]:
    """The stage of each op that runs once, after all microbatches.

    homes: for each sum over microbatches, the stage that computes it. An op runs on the
        stage that has most bytes of its operands, the lowest if several have equally
        many.
    """
    at: dict[Atom, int] = {**homes}
    stages: dict[Op, int] = {}
    for op in after:
        sizes: dict[int, int] = {}
        for atom in {*op.operands} & at.keys():
            sizes[at[atom]] = sizes.get(at[atom], 0) + num_bytes(atom)
        stage = max(sorted(sizes), key=sizes.__getitem__, default=0)
        stages[op] = stage
        at.update(dict.fromkeys(op.results, stage))
    return stages
