"""Running of the folder's `model.tflite` by LiteRT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import (  # pyright: ignore[reportMissingImports]
    Interpreter,
)


def open_model(
    home: Path, about: dict[str, Any]
) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    """A function from arrays by name to the outputs in order."""
    model: Any = Interpreter(model_path=str(home / "model.tflite"), num_threads=1)
    run = model.get_signature_runner()

    def call(inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        results = run(**inputs)
        return [results[port["name"]] for port in about["outputs"]]

    return call
