"""Constants in IREE's modules: their bytes, and values that IREE's host code loses."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Any

import numpy as np

from meshwright.errors import CompilerError

_PACKED = "#util.composite<"
"""The start of the text of a constant that IREE packed from several constants."""


def bytes_of(attribute: Any) -> bytes:
    """The bytes of a constant buffer, as IREE lays them out in memory."""
    text = str(attribute)
    if text.startswith(_PACKED):
        ir: Any = import_module("iree.compiler.ir")
        parts = [line.strip().removesuffix(",") for line in text.splitlines()[1:-1]]
        return b"".join(bytes_of(ir.Attribute.parse(part)) for part in parts)
    try:
        array = np.array(attribute)
    except (TypeError, ValueError, RuntimeError):
        raise CompilerError(f"a constant of IREE cannot be read: {text[:60]}") from None
    if attribute.is_splat:
        array = np.broadcast_to(array, tuple(attribute.type.shape))
    return np.ascontiguousarray(array).tobytes()


def find_constants(text: str, names: Collection[str]) -> dict[str, bytes]:
    """Bytes of globals that are constants, by name.

    IREE's pass `iree-util-fold-globals` removes the initial value of some globals in
    its inline execution model. The values are still there in the earlier phase
    "stream".

    text: the module in the phase "stream". names: of the wanted globals, as in
        `@constant_0`.
    """
    ir: Any = import_module("iree.compiler.ir")
    found: dict[str, bytes] = {}
    with ir.Context():
        for op in ir.Module.parse(text).body.operations:
            if op.operation.name != "util.initializer":
                continue
            for block in op.operation.regions[0].blocks:
                for store in block.operations:
                    name = _stored_global(store.operation)
                    if name not in names:
                        continue
                    for constant in _sources(store.operation.operands[0]):
                        found[name] = bytes_of(constant.attributes["value"])
    return found


def _stored_global(op: Any) -> str:
    return str(op.attributes["global"]) if op.name == "util.global.store" else ""


def _sources(value: Any) -> Iterator[Any]:
    """The constants that an initializer may put into a resource, IREE's buffer."""
    ir: Any = import_module("iree.compiler.ir")
    if isinstance(value.owner, ir.Block):
        position = ir.BlockArgument(value).arg_number
        for given in _passed(value.owner, position):
            yield from _sources(given)
        return
    op = value.owner.operation
    if op.name == "util.buffer.constant":
        yield op
    elif op.name == "stream.resource.try_map":
        yield from _sources(op.operands[0])
    elif op.name == "stream.timepoint.await":
        yield from _sources(op.operands[ir.OpResult(value).result_number])


def _passed(block: Any, position: int) -> Iterator[Any]:
    """The values that branches to a block pass as its argument at `position`."""
    for other in block.region.blocks:
        last = list(other.operations)[-1].operation
        for number, target in enumerate(last.successors):
            if target == block:
                yield last.operands[_first_operand(last, number) + position]


def _first_operand(branch: Any, successor: int) -> int:
    """The position of the first operand that a branch passes to a successor."""
    if branch.name == "cf.br":
        return 0
    sizes = [int(n) for n in branch.attributes["operandSegmentSizes"]]
    return sum(sizes[: 1 + successor])
