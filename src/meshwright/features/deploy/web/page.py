"""Writing of the target `web`: an ONNX model, ONNX Runtime for browsers, and a page."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from meshwright.errors import DeployError
from meshwright.features.deploy.onnx.convert import write_onnx
from meshwright.features.deploy.source.deploy_options import DeployOptions
from meshwright.features.deploy.source.model import Port, SourceModel

ORT_WEB = "onnxruntime-web@1.30.0"
"""The npm package, with a version since its files' names change with releases."""

_ORT_FILES = (
    "ort.wasm.min.mjs",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
)
_PAGE_FILES = ("index.html", "page.js", "image.js", "text.js")


def write_page(model: SourceModel, folder: Path, options: DeployOptions) -> None:
    """Write the model, the page and the runtime; the page loads nothing else."""
    page_kind(model.inputs, model.outputs)
    require_labels(model, options.labels)
    runtime = ort_folder()
    write_onnx(model, folder, options)
    (folder / "ort").mkdir()
    for name in _ORT_FILES:
        shutil.copyfile(runtime / name, folder / "ort" / name)
    shutil.copyfile(Path(__file__).parent / "runner.js", folder / "runner.js")
    copy_page(folder)


def require_labels(model: SourceModel, labels: Sequence[str]) -> None:
    """Raise `DeployError` if names of classes are given, and their number is another."""
    if not labels:
        return
    count = model.outputs[0].shape[-1] if model.outputs[0].shape else 1
    if page_kind(model.inputs, model.outputs) != "image":
        raise DeployError("labels are for models of images, and this one is of text")
    if len(labels) != count:
        raise DeployError(
            f"the labels name {len(labels)} classes, and the model has {count} scores"
        )


def copy_page(folder: Path) -> None:
    """Copy the files of the page, which runs the model by the folder's `runner.js`."""
    for name in _PAGE_FILES:
        shutil.copyfile(Path(__file__).parent / name, folder / name)


def page_kind(inputs: tuple[Port, ...], outputs: tuple[Port, ...]) -> str:
    """The kind of page that fits a model's inputs and outputs: "image" or "text".

    An image model takes float32 [1, height, width, 3]. A text model takes int32 [1, S],
    which are bytes of text, and returns float32 [1, S, V]: scores of the byte after
    each. `DeployError` says so for any other model.
    """
    if len(inputs) == 1 and len(outputs) == 1:
        (given,), (made,) = inputs, outputs
        shape = given.shape
        if (
            given.dtype == "float32"
            and len(shape) == 4
            and (shape[0], shape[3]) == (1, 3)
        ):
            return "image"
        is_text = given.dtype == "int32" and len(shape) == 2 and shape[0] == 1
        if is_text and len(made.shape) == 3 and made.shape[:2] == shape:
            return "text"
    shown = ", ".join(map(str, inputs)), ", ".join(map(str, outputs))
    raise DeployError(
        "the page has inputs for images, float32[1, height, width, 3], and for text, "
        f"int32[1, S] with scores float32[1, S, V]; this model takes {shown[0]} and "
        f"returns {shown[1]}: deploy a function with one such input and one output, or use "
        "the target onnx with a page of your own"
    )


def ort_folder() -> Path:
    """A folder with the files of ONNX Runtime for browsers.

    npm fetches them the first time; afterwards they are in the user's cache folder.
    """
    kept = Path.home() / ".cache" / "meshwright" / ORT_WEB.replace("@", "-")
    if all((kept / name).is_file() for name in _ORT_FILES):
        return kept
    npm = shutil.which("npm")
    if npm is None:
        raise DeployError(
            f"the target web needs {ORT_WEB}, which npm fetches, and npm is not installed: "
            f"install Node.js, or put {', '.join(_ORT_FILES)} of that package into {kept}"
        )
    with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
        command = [npm, "pack", ORT_WEB, "--silent", "--pack-destination", folder]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        archives = list(Path(folder).glob("*.tgz"))
        if ended.returncode or not archives:
            raise DeployError(
                f"npm could not fetch {ORT_WEB}: {ended.stderr.strip()[-300:]}"
            )
        _unpack(archives[0], Path(folder), kept)
    return kept


def _unpack(archive: Path, folder: Path, kept: Path) -> None:
    with tarfile.open(archive) as packed:
        members = [packed.getmember(f"package/dist/{name}") for name in _ORT_FILES]
        packed.extractall(folder, members, filter="data")
    kept.mkdir(parents=True, exist_ok=True)
    for name in _ORT_FILES:
        part = kept / f"{name}.part"
        shutil.copyfile(folder / "package" / "dist" / name, part)
        part.replace(kept / name)
