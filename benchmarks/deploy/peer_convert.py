"""Conversion of models by jax2onnx, in the environment of jax2onnx.

    PYTHONPATH=. PYTHON_OF_JAX2ONNX benchmarks/deploy/peer_convert.py FOLDER

Writes MODEL.onnx into the folder, and prints a line of JSON for each model: the error
relative to JAX's largest value, or why there is none. Imports nothing of Meshwright.
"""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime  # pyright: ignore[reportMissingImports]
from jax2onnx import to_onnx  # pyright: ignore[reportMissingImports]

from tests.features.deploy.models import MODELS


def convert(name: str, folder: Path) -> dict[str, object]:
    """The error of a model that is converted and run."""
    fn, args = MODELS[name]()
    first = next(iter(inspect.signature(fn).parameters))
    weights = args[:1] if first in ("params", "variables") else ()
    leaves, tree = jax.tree.flatten(args[len(weights) :])

    def flat(*leaves: Any) -> list[Any]:
        return jax.tree.leaves(fn(*weights, *jax.tree.unflatten(tree, leaves)))

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
    content = to_onnx(flat, shapes).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    found = session.run(None, dict(zip(names, map(np.asarray, leaves), strict=True)))
    errors = []
    for one, other in zip(found, jax.jit(flat)(*leaves), strict=True):
        wanted = np.asarray(other, np.float64)
        errors.append(np.abs(one - wanted).max() / (np.abs(wanted).max() or 1))
    (folder / f"{name}.onnx").write_bytes(content)
    return {"error": float(max(errors))}


def main() -> None:
    """Convert all models, and say which."""
    for name in MODELS:
        row: dict[str, object] = {"model": name, "jax": jax.__version__}
        try:
            row |= convert(name, Path(sys.argv[1]))
        except Exception as error:  # noqa: BLE001  whatever the converter raises
            row["refused"] = f"{type(error).__name__}: {error}"[:200]
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
