"""What the ops of a program take where a device has few images.

Such images are cut in space, with copies, and less is one with other ops
(`simulate.regroup`). Which images are cut follows from their shapes, and hardly from how
many there are: so a program is priced twice, and a choice goes by the number of images
that it leaves a device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from meshwright.planner.prices.op_prices import OpPrices
from meshwright.predict.compilers.hlo.fusion import SPACE_TO_BATCH_COPY
from meshwright.predict.compilers.tpu.image_splits import ImageSplits
from meshwright.program.ir import Op, Program, Value

type Place = tuple[Op, Value]
"""An op, and a value that it reads or writes."""


def images_of(program: Program, most: int) -> dict[Op, tuple[Value, int]]:
    """By op one of its images, were so many of them cut, and the dim that counts them."""
    found: dict[Op, tuple[Value, int]] = {}
    cuts = ImageSplits(program, most)
    for op in program.ops:
        for body in op.bodies:
            found |= images_of(body, most)
        image = cuts.images(op)
        if image is not None:
            found[op] = image
    return found


def credit_original_ops(
    stores: OpPrices, changed: Program, origins: Mapping[Op, Op], priced: Collection[Op]
) -> OpPrices:
    """What the ops of a changed program take, told of those that they stand for.

    A copy's seconds count as the op's that reads it, for the value that is copied; of
    those among `priced`, else as the op's that makes what is copied.
    """
    homes = _homes(changed, origins, priced)
    told = OpPrices(stores.layout, stores.units, stores.num_devices)
    told.covered.update(origins.get(op, op) for op in stores.covered if op not in homes)
    for mine, its in (told.matrix, stores.matrix), (told.vector, stores.vector):
        # Copies have neither products nor operations.
        mine.update(
            (origins.get(op, op), s) for op, s in its.items() if op not in homes
        )
    for op, seconds in stores.launch.items():
        owner = homes[op][0] if op in homes else origins.get(op, op)
        told.launch[owner] = told.launch.get(owner, 0.0) + seconds
    for op, touches in stores.touches.items():
        origin = origins.get(op, op)
        names = dict(_renamed(op, origin))
        for value, touch in touches.items():
            owner, name = homes.get(op) or (origin, names[value])
            known = told.touches.setdefault(owner, {})
            known[name] = touch.plus(known[name]) if name in known else touch
    return told


def _homes(
    changed: Program, origins: Mapping[Op, Op], priced: Collection[Op]
) -> dict[Op, Place]:
    """By copy the op that reads it, and of what, else the op that makes that."""
    homes: dict[Op, Place] = {}
    read: dict[Value, Place] = {}
    made: dict[Value, Place] = {}
    copies: list[Op] = []
    for op in reversed([*changed.walk()]):
        if op.kind == SPACE_TO_BATCH_COPY:
            copies.append(op)
            if op.results[0] in read:
                read[_source(op)] = homes[op] = read[op.results[0]]
            continue
        origin = origins.get(op, op)
        for result, old in zip(op.results, origin.results, strict=True):
            made[result] = origin, old
        if origin in priced:
            for operand, old in _renamed(op, origin):
                if operand not in made:
                    read[operand] = origin, old
    for op in reversed(copies):
        home = homes.get(op) or made.get(_source(op))
        if home is not None:  # else what is copied comes from outside, and nobody pays
            homes[op] = made[op.results[0]] = home
    return homes


def _source(copy: Op) -> Value:
    (value,) = copy.operands
    assert isinstance(value, Value)
    return value


def _renamed(op: Op, origin: Op) -> Iterator[tuple[Value, Value]]:
    """What an op touches, and what the one that it stands for knows that by."""
    new, old = (*op.operands, *op.results), (*origin.operands, *origin.results)
    for one, other in zip(new, old, strict=True):
        if isinstance(one, Value) and isinstance(other, Value):
            yield one, other
