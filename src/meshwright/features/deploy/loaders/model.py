"""The model of this folder: `from model import load; outputs = load()(x=array)`.

The README names the packages that it needs.
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np


class DeployedModel:
    """A deployed model: a function from arrays by name to a dict of arrays."""

    def __init__(self, folder: str | Path = "") -> None:
        home = Path(folder) if folder else Path(__file__).parent
        text = (home / "model.json").read_text("utf-8")
        self.about: dict[str, Any] = json.loads(text)
        self._run: Any = _load_runtime(home).open_model(home, self.about)

    def __call__(self, **inputs: Any) -> dict[str, np.ndarray]:
        """A dict of the outputs by name."""
        ports = self.about["inputs"]
        names = [port["name"] for port in ports]
        if set(inputs) != set(names):
            given = ", ".join(sorted(inputs)) or "nothing"
            raise ValueError(f"the inputs are {given}; wanted {', '.join(names)}")
        arrays = {
            port["name"]: checked_input(inputs[port["name"]], port) for port in ports
        }
        return {
            port["name"]: np.asarray(result, _dtype(port["dtype"]))
            for port, result in zip(
                self.about["outputs"], self._run(arrays), strict=True
            )
        }

    def next_inputs(
        self, inputs: dict[str, Any], outputs: dict[str, np.ndarray]
    ) -> dict[str, Any]:
        """Inputs of the next training step: `inputs` with the new state of `outputs`."""
        ties = self.about["ties"]
        return inputs | {ties[name]: outputs[name] for name in ties}


def _load_runtime(home: Path) -> Any:
    """The module `runtime.py` of a folder; other folders have others of this name."""
    spec: Any = importlib.util.spec_from_file_location("runtime", home / "runtime.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked_input(array: Any, port: dict[str, Any]) -> np.ndarray:
    """An array in the dtype and the shape of an input.

    Raises `ValueError` for what is no array of numbers, and for values that the dtype does
    not hold: fractions among integers, complex numbers, and numbers that are too large.
    """
    given, dtype = np.asarray(array), _dtype(port["dtype"])
    if given.dtype.kind in "OSUMm":
        raise ValueError(
            f"{port['name']} is {array!r:.60}, which is no array of numbers; wanted "
            f"{port['dtype']} {port['shape']}"
        )
    if list(given.shape) != port["shape"]:
        raise ValueError(
            f"{port['name']} has shape {list(given.shape)}; wanted {port['shape']}"
        )
    with np.errstate(invalid="ignore", over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of imaginary parts, which are compared below
        plain = np.asarray(given, dtype, order="C")
    lost = _lost_values(given, plain)
    if np.any(lost):
        raise ValueError(
            f"{port['name']} has values that {port['dtype']} does not hold, such as "
            f"{given[lost].flat[0]}"
        )
    return plain


def _lost_values(given: np.ndarray, plain: np.ndarray) -> Any:
    """Where the dtype of `plain` does not hold the values of `given`, but for rounding."""
    if given.dtype == plain.dtype:
        return np.zeros(given.shape, bool)
    if plain.dtype.kind in "biu":
        return plain != given
    if plain.dtype.kind == "c":
        return np.isinf(plain) & ~np.isinf(given)
    is_too_large = np.isinf(plain.astype(np.float64)) & np.isfinite(given)
    return is_too_large | (np.imag(given) != 0)


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def load(folder: str | Path = "") -> DeployedModel:
    """The model in a folder, by default in the folder of this file."""
    return DeployedModel(folder)
