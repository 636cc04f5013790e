"""The model of this folder on ONNX Runtime: `pip install onnxruntime numpy`.

from model import load
outputs = load()(x=array)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingImports]


class OnnxModel:
    """An ONNX model: a function from arrays by name to a dict of arrays."""

    def __init__(self, folder: str | Path = "", threads: int = 1) -> None:
        home = Path(folder) if folder else Path(__file__).parent
        self.about: dict[str, Any] = json.loads(
            (home / "model.json").read_text("utf-8")
        )
        options: Any = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(
            str(home / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, **inputs: Any) -> dict[str, np.ndarray]:
        """A dict of the outputs by name."""
        _require_names(inputs, self.about["inputs"])
        given = {
            port["name"]: _checked(inputs[port["name"]], port)
            for port in self.about["inputs"]
        }
        names = [port["name"] for port in self.about["outputs"]]
        return dict(zip(names, self._session.run(names, given), strict=True))

    def next_inputs(
        self, inputs: dict[str, Any], outputs: dict[str, np.ndarray]
    ) -> dict[str, Any]:
        """Inputs of the next training step: `inputs` with the new state of `outputs`."""
        ties = self.about["ties"]
        return inputs | {ties[name]: outputs[name] for name in ties}


def _require_names(inputs: dict[str, Any], ports: list[dict[str, Any]]) -> None:
    names = [port["name"] for port in ports]
    if set(inputs) != set(names):
        given = ", ".join(sorted(inputs)) or "nothing"
        raise ValueError(f"the inputs are {given}; wanted {', '.join(names)}")


def _checked(array: Any, port: dict[str, Any]) -> np.ndarray:
    plain = np.asarray(array, dtype=np.dtype(port["dtype"]), order="C")
    if list(plain.shape) != port["shape"]:
        raise ValueError(
            f"{port['name']} has shape {list(plain.shape)}; wanted {port['shape']}"
        )
    return plain


def load(folder: str | Path = "") -> OnnxModel:
    """The model in a folder, by default in the folder of this file."""
    return OnnxModel(folder)
