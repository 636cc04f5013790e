"""Running of the folder's `model.onnx` by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingImports]


def open_model(
    home: Path, about: dict[str, Any]
) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    """A function from arrays by name to the outputs in order."""
    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    # Sums of 8-bit products saturate at 16 bits on x86 without VNNI, unless this is set.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session: Any = onnxruntime.InferenceSession(
        str(home / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    names = [port["name"] for port in about["outputs"]]
    return lambda inputs: session.run(names, inputs)
