"""IREE's host code as data, which a small interpreter in JavaScript runs.

With IREE's inline execution model, the host code of a function consists of allocations,
copies, fills, branches and kernel calls (dispatches), and needs neither IREE's virtual
machine nor a driver. Here it becomes blocks of steps. A step is a list `[kind,
operands, results, *attributes]`, in which values are numbers.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from meshwright.errors import CompilerError
from meshwright.features.deploy.wasm.constants import bytes_of

Step = list[Any]


@dataclass
class HostProgram:
    """The host code of a module, in the form of host.json.

    initializers: functions that run once, in order. main: the function that runs the
        model; it takes one buffer per input. Each function is a list of blocks.
    kernels: by name of a kernel, the number that steps call it by.
    """

    initializers: list[list[dict[str, Any]]] = field(default_factory=list)
    main: list[dict[str, Any]] = field(default_factory=list)
    kernels: dict[str, int] = field(default_factory=dict)


def read_host_program(text: str) -> HostProgram:
    """The host program in MLIR text that IREE compiled to its phase "hal"."""
    ir: Any = import_module("iree.compiler.ir")
    host = HostProgram()
    with ir.Context():
        module = ir.Module.parse(text)
        for op in module.body.operations:
            name = op.operation.name
            if name == "util.initializer":
                host.initializers.append(_Reader(host).function(op.operation))
            elif (
                name == "util.func"
                and op.operation.attributes["sym_name"].value == "main"
            ):
                host.main = _Reader(host).function(op.operation)
    return host


def unwritten_globals(host: HostProgram) -> list[str]:
    """Names of the globals that the program reads and no initializer writes."""
    steps = [
        step
        for blocks in (*host.initializers, host.main)
        for block in blocks
        for step in block["steps"]
    ]
    written = {step[3] for step in steps if step[0] == "global_store"}
    return sorted({s[3] for s in steps if s[0] == "global_load"} - written)


def write_global(host: HostProgram, name: str, content: bytes) -> None:
    """Add an initializer that writes a constant into a global."""
    text = base64.b64encode(content).decode()
    steps = [
        ["data", [], [0], text],
        ["global_store", [0], [], name],
        ["return", [], []],
    ]
    host.initializers.insert(0, [{"args": [], "steps": steps, "live": []}])


class _Reader:
    """Reads one function; it numbers the function's values and blocks."""

    def __init__(self, host: HostProgram) -> None:
        self.host = host
        self.numbers: dict[str, int] = {}
        self.blocks: list[Any] = []

    def function(self, op: Any) -> list[dict[str, Any]]:
        self.blocks = list(op.regions[0].blocks)
        found: list[dict[str, Any]] = []
        for block in self.blocks:
            args = [self.value(a) for a in block.arguments]
            steps = [s for o in block.operations if (s := self.step(o.operation))]
            found.append({"args": args, "steps": steps})
        _mark_live(found)
        return found

    def value(self, value: Any) -> int:
        return self.numbers.setdefault(value.get_name(), len(self.numbers))

    def place(self, block: Any) -> int:
        """The position of a block in its function."""
        return next(i for i, other in enumerate(self.blocks) if other == block)

    def step(self, op: Any) -> Step | None:
        operands = [self.value(v) for v in op.operands]
        results = [self.value(v) for v in op.results]
        if op.name in _DROPPED:
            return None
        if op.name in _PLAIN:
            return [_PLAIN[op.name], operands, results]
        if op.name in _WITH_VALUE:
            kind, value_of = _WITH_VALUE[op.name]
            return [kind, operands, results, value_of(op)]
        if op.name not in _SPECIAL:
            raise CompilerError(
                f"IREE's host code has {op.name}, which the runtime for browsers lacks; "
                "use the target web or iree-cpu"
            )
        return _SPECIAL[op.name](self, op, operands, results)


_DROPPED = frozenset(
    {
        "hal_inline.buffer_view.assert", "hal_inline.device.query",
        "hal_loader.executable.lookup.function", "hal_loader.executable.load",
    }
)  # fmt: skip

_PLAIN = {
    "arith.addi": "add", "arith.subi": "sub", "arith.muli": "mul",
    "arith.divui": "div", "arith.divsi": "div", "arith.remui": "rem",
    "arith.remsi": "rem", "arith.ceildivui": "ceil_div", "arith.ceildivsi": "ceil_div",
    "arith.minui": "min", "arith.minsi": "min", "arith.maxui": "max",
    "arith.maxsi": "max", "arith.andi": "and", "arith.ori": "or", "arith.xori": "xor",
    "arith.select": "select", "arith.index_cast": "same", "arith.index_castui": "same",
    "arith.extui": "same", "arith.extsi": "same", "arith.trunci": "same",
    "hal_inline.buffer.allocate": "alloc", "hal_inline.buffer.storage": "same",
    "hal_inline.buffer.length": "length", "hal_inline.buffer.subspan": "subspan",
    "hal_inline.buffer_view.buffer": "same", "hal_inline.buffer_view.create": "view",
    "util.align": "align", "util.buffer.alloc": "alloc", "util.buffer.copy": "copy",
    "util.buffer.size": "length", "util.buffer.subspan": "subspan",
    "util.return": "return",
    "util.status.check_ok": "check_ok",
}  # fmt: skip
"""For IREE's ops without attributes, the kind of step that each becomes."""


def _constant(op: Any) -> int:
    attribute = op.attributes["value"]
    text = str(attribute).split(":")[0].strip()
    number = {"true": 1, "false": 0}.get(text)
    return int(attribute.value) if number is None else number


def _data(op: Any) -> str:
    return base64.b64encode(bytes_of(op.attributes["value"])).decode()


_WITH_VALUE: Mapping[str, tuple[str, Callable[[Any], int | str]]] = {
    "arith.constant": ("constant", _constant),
    "arith.cmpi": ("compare", lambda op: int(op.attributes["predicate"].value)),
    "util.buffer.constant": ("data", _data),
    "util.buffer.fill": ("fill", lambda op: str(op.operands[0].type)),
    "util.buffer.load": ("load", lambda op: str(op.results[0].type)),
    "util.buffer.store": ("store", lambda op: str(op.operands[0].type)),
}
"""For IREE's ops with one value, such as a dtype: the kind of step, and the value."""


def _branch(reader: _Reader, op: Any, operands: Any, results: Any) -> Step:
    del results
    (target,) = op.successors
    return ["branch", operands, [], reader.place(target)]


def _cond_branch(reader: _Reader, op: Any, operands: Any, results: Any) -> Step:
    del results
    first, second = (reader.place(b) for b in op.successors)
    count = list(op.attributes["operandSegmentSizes"])[1]
    return ["branch_if", operands, [], first, second, int(count)]


def _dispatch(reader: _Reader, op: Any, operands: Any, results: Any) -> Step:
    del results
    sizes = [int(n) for n in op.attributes["operandSegmentSizes"]]
    # The second operand comes from a lookup of the kernel by its name.
    lookup = op.operands[1].owner
    name = str(lookup.attributes["entry_point"]).split("::@")[-1].strip('"')
    kernels = reader.host.kernels
    number = kernels.setdefault(name, len(kernels))
    rest = operands[2:]
    return ["dispatch", rest, [], number, sizes[-4], sizes[-3]]


def _global(reader: _Reader, op: Any, operands: Any, results: Any) -> Step | None:
    del reader
    kind = "global_load" if results else "global_store"
    value = op.results[0] if results else op.operands[0]
    if "executable" in str(value.type):
        return None
    return [kind, operands, results, str(op.attributes["global"])]


def _true(reader: _Reader, op: Any, operands: Any, results: Any) -> Step:
    del reader, op, operands
    return ["constant", [], results, 1]


def _barrier(reader: _Reader, op: Any, operands: Any, results: Any) -> Step | None:
    del results
    names = (value.get_name() for value in op.results)
    reader.numbers.update(zip(names, operands, strict=True))  # the same values


_SPECIAL: Mapping[str, Callable[[_Reader, Any, Any, Any], Step | None]] = {
    "cf.br": _branch,
    "cf.cond_br": _cond_branch,
    "hal_loader.executable.dispatch": _dispatch,
    "hal_loader.executable.query_support": _true,
    "util.global.load": _global,
    "util.global.store": _global,
    "util.optimization_barrier": _barrier,
}


def _mark_live(blocks: Sequence[dict[str, Any]]) -> None:
    """Add the entry "live" to each block: values from before it that are still read.

    At a branch, the interpreter frees memory to which no live value refers, so that
    loops need little memory.
    """
    reads: list[set[int]] = []
    for block in blocks:
        made, read = set(block["args"]), set[int]()
        for step in block["steps"]:
            read |= set(step[1]) - made
            made |= set(step[2])
        block["live"] = read
        reads.append(made)
    changed = True
    while changed:
        changed = False
        for block, made in zip(blocks, reads, strict=True):
            wanted = set(block["live"])
            for i in _targets(block):
                wanted |= blocks[i]["live"] - made
            changed |= wanted != block["live"]
            block["live"] = wanted
    for block in blocks:
        block["live"] = sorted(block["live"])


def _targets(block: dict[str, Any]) -> list[int]:
    last = block["steps"][-1]
    if last[0] == "branch":
        return [last[3]]
    return [last[3], last[4]] if last[0] == "branch_if" else []
