"""Assigns each op that runs after the last microbatch to a pipeline stage.

A parameter's update runs where its gradient was summed. Scalars, such as a global norm,
are computed where most bytes of their operands are.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshwright.features.pipeline.stages.microbatches import Microbatches
from meshwright.program.ir import Atom, Op, Value, num_bytes
from meshwright.program.ops import Trait, has_trait, rule_of


def split_sums(step: Microbatches, place: Mapping[Op, int]) -> Microbatches:
    """The step in which gradients of different passes are accumulated separately.

    A weight of two stages (a tied embedding) would otherwise have its gradients sent
    and added for every microbatch.

        before: each microbatch computes %g = add %a, %b;  after all: sum(%g)
        after:  after all microbatches, add sum(%a), sum(%b)

    The same is done for gradients of layers that are joined to the gradient of a stack,
    also if they are scaled then.
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
        summed = () if made is None else _summed(op, made, producer, readers, place)
        if made is None or not summed:
            sums.append(op)
            continue
        gone.add(made)
        parts = {i: Value(a.shape, a.dtype) for i, a in summed}
        operands = (parts.get(i, a) for i, a in enumerate(made.operands))
        adds.append(replace(made, operands=tuple(operands), results=op.results))
        todo += [
            replace(op, operands=(a,), results=(parts[i],)) for i, a in reversed(summed)
        ]
    body = tuple(op for op in step.body if op not in gone)
    after = (*reversed(adds), *step.after)
    return replace(step, body=body, sums=tuple(sums), after=after)


def _summed(
    total: Op,
    made: Op,
    producer: Mapping[Value, Op],
    readers: Mapping[Atom, int],
    place: Mapping[Op, int],
) -> Sequence[tuple[int, Atom]]:
    """Operands of an op that are summed over microbatches in place of its result.

    They are numbered. The op adds or concatenates values of different passes, or it is
    linear in one value that leads to such an op, as the learning rate times a gradient.
    None if the sum of the result has to be taken.

    total: the sum. made: the op of its addend. producer: the op that computes each value.
    readers: number of readers of each value. place: the pass of each op.
    """
    if total.params["monoid"] != "sum" or readers[made.results[0]] > 1:
        return ()
    makers = [producer.get(a) if isinstance(a, Value) else None for a in made.operands]
    is_joint = has_trait(made.kind, Trait.ADDS) or has_trait(made.kind, Trait.JOINS)
    if is_joint and None not in makers and len({place[op] for op in makers if op}) > 1:
        return list(enumerate(made.operands))
    varying = [i for i, op in enumerate(makers) if op is not None]
    rule = rule_of(made) if len(varying) == 1 else None
    if rule is None or frozenset(varying) not in rule.linear:
        return ()
    (position,) = varying
    maker = makers[position]
    assert maker is not None, "the operand is computed for each microbatch"
    if not _summed(total, maker, producer, readers, place):
        return ()
    return [(position, made.operands[position])]


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
