"""The optional packages of targets, imported when a target is used."""

from importlib.util import find_spec

from meshwright.errors import DeployError

_PACKAGES = {
    "ai_edge_litert": "ai-edge-litert",
    "ai_edge_quantizer": "ai-edge-quantizer",
    "iree.compiler": "iree-base-compiler",
    "iree.runtime": "iree-base-runtime",
    "litert_converter": "litert-converter",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "wasmtime": "wasmtime",
}
"""Names on the package index, by module."""


def require(*modules: str) -> None:
    """Raise `DeployError`, which names the extra, if one of the modules is missing."""
    missing = [_PACKAGES[name] for name in modules if not _is_there(name)]
    if missing:
        raise DeployError(
            f"this target needs {', '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed: "
            "pip install 'meshwright[deploy]'"
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the parent package
        return False
