"""The model of this folder on WebAssembly in Python: `pip install wasmtime numpy`.

Use: `from model import load; outputs = load()(x=array)`. Browsers use `runner.js` instead.
"""

from __future__ import annotations

import base64
import ctypes
import json
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import wasmtime  # pyright: ignore[reportMissingImports]

_LOCAL_BYTES = 1 << 18  # scratch memory of a workgroup
_PAGE, _ALIGNMENT = 65536, 64

_COMPARE = (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
    operator.lt, operator.le, operator.gt, operator.ge,
)  # fmt: skip

_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "div": lambda a, b: int(a / b), "rem": lambda a, b: a - b * int(a / b),
    "ceil_div": lambda a, b: -(-a // b), "min": min, "max": max, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "select": lambda c, a, b: a if c else b,
    "align": lambda a, b: -(-a // b) * b, "same": lambda a: a,
}  # fmt: skip

_TYPES = {
    "i1": "i1", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8", "index": "<i8",
    "f32": "<f4",
}  # fmt: skip


class MemoryPart:
    """A part of the WebAssembly module's memory, `size` bytes from address `at`.

    owner: the allocation in which the part lies.
    """

    def __init__(self, at: int, size: int, owner: MemoryPart | None = None) -> None:
        self.at, self.size, self.owner = at, size, owner or self


class WasmMemory:
    """An allocator for the WebAssembly module's memory behind the module's own data.

    Freed memory is used again for allocations of the same size.
    """

    def __init__(self, store: Any, memory: Any, base: int) -> None:
        self._store, self._memory = store, memory
        self.top = -(-base // _ALIGNMENT) * _ALIGNMENT
        self._free: dict[int, list[int]] = {}
        self._used: dict[MemoryPart, int] = {}

    def allocate(self, size: int) -> MemoryPart:
        """An allocation of at least `size` bytes."""
        room = max(_ALIGNMENT, -(-size // _ALIGNMENT) * _ALIGNMENT)
        free = self._free.get(room)
        if free:
            span = MemoryPart(free.pop(), size)
        else:
            span = MemoryPart(self.top, size)
            self.top += room
            missing = self.top - self._memory.data_len(self._store)
            if missing > 0:
                self._memory.grow(self._store, -(-missing // _PAGE))
        self._used[span] = room
        return span

    def keep_only(self, live: set[MemoryPart]) -> None:
        """Free all allocations that are not in `live`."""
        for span in [s for s in self._used if s not in live]:
            self._free.setdefault(self._used.pop(span), []).append(span.at)

    def bytes(self) -> np.ndarray:
        """The module's whole memory as uint8; invalid after the next allocation."""
        size = self._memory.data_len(self._store)
        pointer = self._memory.data_ptr(self._store)
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


class WasmModel:
    """A WebAssembly module: a function from arrays by name to a dict of arrays."""

    def __init__(self, folder: str | Path = "") -> None:
        home = Path(folder) if folder else Path(__file__).parent
        self.about: dict[str, Any] = json.loads(
            (home / "model.json").read_text("utf-8")
        )
        self._host: dict[str, Any] = json.loads((home / "host.json").read_text("utf-8"))
        self._store: Any = wasmtime.Store()
        module = wasmtime.Module.from_file(self._store.engine, str(home / "model.wasm"))
        exports: Any = wasmtime.Instance(self._store, module, []).exports(self._store)
        known = dict(exports.items())
        base = known["__heap_base"].value(self._store) if "__heap_base" in known else 0
        self._table: Any = known.get("__indirect_function_table")
        self.heap = WasmMemory(self._store, exports["memory"], base)
        self._globals: dict[str, Any] = {}
        self._kept: set[MemoryPart] = set()
        self._environment, self._state, self._group = (
            self._keep(128) for _ in range(3)
        )
        self._local, self._lists = self._keep(_LOCAL_BYTES), self._keep(4096)
        self._fixed = self._place_weights((home / "weights.bin").read_bytes())
        for blocks in self._host["initializers"]:
            self._interpret(blocks, [])
            values = self._globals.values()
            self._kept |= {v.owner for v in values if isinstance(v, MemoryPart)}

    def __call__(self, **inputs: Any) -> dict[str, np.ndarray]:
        """A dict of the outputs by name."""
        ports = {port["name"]: port for port in self.about["inputs"]}
        if set(inputs) != set(ports):
            given = ", ".join(sorted(inputs)) or "nothing"
            raise ValueError(f"the inputs are {given}; wanted {', '.join(ports)}")
        buffers: list[Any] = []
        for place, fixed in zip(self._host["inputs"], self._fixed, strict=True):
            if fixed is not None:
                buffers.append(fixed)
                continue
            array = _checked(inputs[place["name"]], ports[place["name"]])
            span = self.heap.allocate(array.nbytes)
            self._write(span.at, array.tobytes())
            buffers.append(span)
        results = self._interpret(self._host["main"], buffers)
        outputs: dict[str, np.ndarray] = {}
        for port, span in zip(self.about["outputs"], results, strict=True):
            part = self.heap.bytes()[span.at : span.at + span.size].copy()
            outputs[port["name"]] = part.view(port["dtype"]).reshape(port["shape"])
        self.heap.keep_only(self._kept)
        return outputs

    def next_inputs(
        self, inputs: dict[str, Any], outputs: dict[str, np.ndarray]
    ) -> dict[str, Any]:
        """Inputs of the next training step: `inputs` with the new state of `outputs`."""
        ties = self.about["ties"]
        return inputs | {ties[name]: outputs[name] for name in ties}

    def _keep(self, size: int) -> MemoryPart:
        span = self.heap.allocate(size)
        self.heap.bytes()[span.at : span.at + size] = 0
        self._kept.add(span)
        return span

    def _place_weights(self, weights: bytes) -> list[MemoryPart | None]:
        spans: list[MemoryPart | None] = []
        for place in self._host["inputs"]:
            if "name" in place:
                spans.append(None)
                continue
            span = self._keep(place["bytes"])
            start = place["offset"]
            self._write(span.at, weights[start : start + place["bytes"]])
            spans.append(span)
        return spans

    def _write(self, at: int, content: bytes) -> None:
        self.heap.bytes()[at : at + len(content)] = np.frombuffer(content, np.uint8)

    def _interpret(self, blocks: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """Run the blocks of a function in host.json; return the results."""
        values: dict[int, Any] = {}
        at, given = 0, list(args)
        while True:
            block = blocks[at]
            values = {i: values[i] for i in block["live"]}
            values.update(zip(block["args"], given, strict=True))
            if at:
                owners = {v.owner for v in values.values() if isinstance(v, MemoryPart)}
                self.heap.keep_only(self._kept | owners)
            for step in block["steps"]:
                read = [values[i] for i in step[1]]
                if step[0] == "return":
                    return read
                if step[0] == "branch":
                    at, given = step[3], read
                elif step[0] == "branch_if":
                    count = 1 + step[5]
                    at = step[3] if read[0] else step[4]
                    given = read[1:count] if read[0] else read[count:]
                else:
                    made = self._step(step[0], read, step[3:])
                    values.update(dict.fromkeys(step[2], made))

    def _step(self, kind: str, read: list[Any], rest: Sequence[Any]) -> Any:
        if kind in _NUMBERS:
            return _NUMBERS[kind](*read)
        return getattr(self, f"on_{kind}")(read, *rest)

    # -- steps: operands, then attributes ----------------------------------------------

    def on_constant(self, read: list[Any], value: int) -> int:
        return value

    def on_compare(self, read: list[Any], predicate: int) -> int:
        return int(_COMPARE[predicate](*read))

    def on_alloc(self, read: list[Any]) -> MemoryPart:
        return self.heap.allocate(read[-1])

    def on_length(self, read: list[Any]) -> int:
        return read[0].size

    def on_subspan(self, read: list[Any]) -> MemoryPart:
        whole, offset, size = read if len(read) == 3 else (read[0], *read[2:4])
        return MemoryPart(whole.at + offset, size, whole.owner)

    def on_view(self, read: list[Any]) -> MemoryPart:
        return MemoryPart(read[0].at + read[1], read[2], read[0].owner)

    def on_data(self, read: list[Any], text: str) -> MemoryPart:
        content = base64.b64decode(text)
        span = self.heap.allocate(len(content))
        self._write(span.at, content)
        return span

    def on_copy(self, read: list[Any]) -> None:
        source, _, start, target, _, place, size = read
        image = self.heap.bytes()
        part = image[source.at + start : source.at + start + size].copy()
        image[target.at + place : target.at + place + size] = part

    def on_fill(self, read: list[Any], kind: str) -> None:
        value, target, _, place, size = read
        start = target.at + place
        part = self.heap.bytes()[start : start + size].view(_TYPES[kind])
        part[:] = np.array(value).astype(part.dtype)

    def on_load(self, read: list[Any], kind: str) -> Any:
        dtype = np.dtype(_TYPES[kind])
        start = read[0].at + read[2]
        return self.heap.bytes()[start : start + dtype.itemsize].view(dtype)[0].item()

    def on_store(self, read: list[Any], kind: str) -> None:
        self._write(read[1].at + read[3], np.array(read[0], _TYPES[kind]).tobytes())

    def on_global_load(self, read: list[Any], name: str) -> Any:
        return self._globals[name]

    def on_global_store(self, read: list[Any], name: str) -> None:
        self._globals[name] = read[0]

    def on_check_ok(self, read: list[Any]) -> None:
        if read[0]:
            raise RuntimeError(f"the module's status is {read[0]}")

    def on_dispatch(
        self, read: list[Any], kernel: int, constants: int, count: int
    ) -> None:
        """Call a kernel for each workgroup, as IREE's `executable_library.h` says."""
        x, y, z = read[:3]
        rest = read[3 + constants :]
        spans, offsets, sizes = (rest[i * count : (i + 1) * count] for i in range(3))
        at = self._lists.at
        words = np.zeros(768, "<u4")
        words[:constants] = np.array(read[3 : 3 + constants], np.int64).astype("<u4")
        words[256 : 256 + count] = [
            s.at + o for s, o in zip(spans, offsets, strict=True)
        ]
        words[512 : 512 + count] = sizes
        self._write(at, words.tobytes())
        state = np.array([1, 1, 1, x, y, z, at, at + 1024, at + 2048], "<u4")
        state[2] |= constants << 16
        state[5] |= (1 << 16) | (count << 24)
        self._write(self._state.at, state.tobytes())
        call = self._table.get(self._store, self._host["kernels"][kernel])
        group = np.array([0, 0, 0, 0, self._local.at, _LOCAL_BYTES], "<u4")
        addresses = self._environment.at, self._state.at, self._group.at
        for k in range(z):
            for j in range(y):
                for i in range(x):
                    group[:3] = i, j, k
                    self._write(self._group.at, group.tobytes())
                    status = call(self._store, *addresses)
                    if status:
                        raise RuntimeError(f"kernel {kernel} failed: status {status}")


def _checked(array: Any, port: dict[str, Any]) -> np.ndarray:
    plain = np.asarray(array, dtype=np.dtype(port["dtype"]), order="C")
    if list(plain.shape) != port["shape"]:
        raise ValueError(
            f"{port['name']} has shape {list(plain.shape)}; wanted {port['shape']}"
        )
    return plain


def load(folder: str | Path = "") -> WasmModel:
    """The model in a folder, by default in the folder of this file."""
    return WasmModel(folder)
