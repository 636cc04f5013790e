"""Find the kernels of a program in the output of IREE's compiler.

The program is compiled up to the phase in which IREE has formed dispatches (pieces of
the program that become one kernel each) but has not chosen tile sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.errors import CompilerError
from meshwright.features.tune.iree.kernel import NAMED_MAPS, CpuKernel, parse_kernel
from meshwright.features.tune.iree.tiling import Tiling
from meshwright.features.tune.iree.toolchain import CompilePhase, compile_program

_FUNCTION = re.compile(
    r"func\.func @(\w+)\(\)(?P<attributes>[^\n]*) \{\n(?P<body>.*?)\n\s*return\n",
    re.DOTALL,
)
_LOAD = re.compile(
    r"(%\w+) = iree_tensor_ext\.dispatch\.tensor\.load .* -> (tensor<[^>]*>)"
)
_STORE = re.compile(
    r"iree_tensor_ext\.dispatch\.tensor\.store (%\w+), .* : (tensor<[^>]*>) -> .*"
)
_NAME = re.compile(r"%\w+")
_CONFIG = re.compile(r"lowering_config<([^>]*distribution = [^>]*)>")
_PIPELINE = re.compile(r"translation_info<(pipeline = .*)>\}")


@dataclass(frozen=True, slots=True)
class FoundKernels:
    """The dispatches of a program: pieces that IREE compiles to one kernel each.

    kernels: kernels whose tile sizes can be chosen, with the names of their dispatches.
    others: names of all other dispatches, each with the reason.
    """

    kernels: dict[CpuKernel, tuple[str, ...]]
    others: dict[str, str]


def find_kernels(program: str) -> FoundKernels:
    """The kernels that IREE makes of a StableHLO program; equal kernels are listed once."""
    sources = _functions(program, CompilePhase.SOURCES)
    configured = _functions(program, CompilePhase.CONFIGURATIONS)
    kernels: dict[CpuKernel, tuple[str, ...]] = {}
    by_fingerprint: dict[str, CpuKernel] = {}
    others: dict[str, str] = {}
    for name, source in sources.items():
        try:
            kernel = _kernel(source["body"], configured.get(name))
        except CompilerError as reason:
            others[name] = str(reason)
            continue
        kernel = by_fingerprint.setdefault(kernel.fingerprint, kernel)
        kernels[kernel] = (*kernels.get(kernel, ()), name)
    return FoundKernels(kernels, others)


def _functions(program: str, phase: CompilePhase) -> dict[str, re.Match[str]]:
    text = compile_program(program, phase).decode()
    return {match[1]: match for match in _FUNCTION.finditer(text)}


def _kernel(body: str, configured: re.Match[str] | None) -> CpuKernel:
    root = find_root(body)
    pipeline = _PIPELINE.search(configured["attributes"]) if configured else None
    config = _CONFIG.search(configured["body"]) if configured else None
    if not pipeline or not config:
        raise CompilerError("IREE chooses no tiles for it")
    kernel = parse_kernel(standalone(body), root, Tiling.parse(config[1]), pipeline[1])
    if len(kernel.default.distribution) != len(kernel.loops):
        raise CompilerError(
            f"IREE rewrites its {len(kernel.loops)} loops before it chooses tiles"
        )
    return kernel


def find_root(body: str) -> str:
    """The text of a dispatch's root: its only op that sums products of two operands.

    Raises `CompilerError` if there is none, or more than one.
    """
    ops = [op for op in _linalg_ops(body) if _adds_products(op)]
    if len(ops) != 1:
        what = "no matmul or convolution" if not ops else "more than one of them"
        raise CompilerError(f"it has {what}")
    return ops[0]


def _linalg_ops(body: str) -> Iterator[str]:
    """The text of each op of MLIR's `linalg` dialect in a dispatch, with its region."""
    lines = iter(body.splitlines())
    for line in lines:
        if re.match(r"\s*%\w+ = linalg\.", line):
            text = [line.strip()]
            while text[-1].endswith("{"):
                text.extend(_region(lines))
            yield "\n".join(text)


def _region(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line.strip()
        if line.strip().startswith("}"):
            return


def _adds_products(op: str) -> bool:
    name = op.partition("= ")[2].split()[0]
    if name != "linalg.generic":
        return name in NAMED_MAPS or "conv" in name
    return '"reduction"' in op and bool(re.search(r"arith\.mul[fi]", op))


def standalone(body: str) -> str:
    """A dispatch as an MLIR function: loads become arguments, stores become results.

    Addresses may depend on numbers that are known only when the program runs, such as a
    loop's counter. The ops that compute these numbers are left out.
    """
    arguments: list[str] = []
    results: list[tuple[str, str]] = []
    kept: list[str] = []
    unknown: set[str] = set()
    for line in map(str.strip, body.splitlines()):
        names = _NAME.findall(line)
        if load := _LOAD.fullmatch(line):
            arguments.append(f"{load[1]}: {load[2]}")
        elif store := _STORE.fullmatch(line):
            results.append((store[1], store[2]))
        elif "hal.interface." in line or unknown.intersection(names[1:]):
            if "linalg." in line:
                raise CompilerError("its shapes or numbers are known only when it runs")
            unknown.update(names[:1])
        else:
            kept.append(line)
    types = ", ".join(type_ for _, type_ in results)
    names = ", ".join(name for name, _ in results)
    lines = "\n".join(kept)
    return (
        f"func.func @kernel({', '.join(arguments)}) -> ({types}) {{\n{lines}\n"
        f"return {names} : {types}\n}}\n"
    )
