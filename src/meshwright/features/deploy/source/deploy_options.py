"""Options of a deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.errors import DeployError


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """Options of a deployment; each is read by some targets only.

    labels: names of an image model's classes, for its page.
    pixels: the values of black and of white in an image model's input.
    quantize: "" or "int8".
    calibration: inputs by name, on which the ranges of values are measured for int8.
    """

    labels: Sequence[str] = ()
    pixels: Sequence[float] = (-1.0, 1.0)
    quantize: str = ""
    calibration: Sequence[Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        labels: Any = self.labels
        if isinstance(labels, str) or not all(isinstance(each, str) for each in labels):
            raise DeployError(f"labels are {labels!r:.60}; wanted a list of texts")
        if self.quantize not in ("", "int8"):
            raise DeployError(f"quantize is {self.quantize!r}; wanted 'int8' or ''")
        if len(self.pixels) != 2 or not self.pixels[0] < self.pixels[1]:
            raise DeployError(
                f"pixels are {self.pixels!r:.60}; wanted the values of black and white, "
                "as in (0, 1)"
            )
        examples: Any = () if self.calibration is None else self.calibration
        if self.calibration is not None and self.quantize and not len(examples):
            raise DeployError(
                "calibration is empty; wanted about ten dicts with an array for every "
                "input, or no calibration="
            )
        is_list = isinstance(examples, Sequence)
        if not is_list or not all(isinstance(each, Mapping) for each in examples):
            raise DeployError(
                f"calibration is {type(examples).__name__}; wanted a list of dicts, "
                "each with an array for every input by name, as in [{'x': array}]"
            )
        if examples and not self.quantize:
            raise DeployError(
                "calibration is for quantize='int8', which is not asked for"
            )
        for name in (
            "labels",
            "pixels",
            "calibration",
        ):  # the caller's lists may change
            object.__setattr__(self, name, tuple(getattr(self, name) or ()))

    def require_fit(self, target: str) -> None:
        """Raise `DeployError` for an option that the target does not read."""
        if self.labels and target not in WITH_PAGES:
            raise DeployError(
                f"labels are for the pages of {' and '.join(WITH_PAGES)}; {target} "
                "writes none"
            )
        if self.quantize and target not in QUANTIZED:
            raise DeployError(
                f"{target} has no int8 form here; {', '.join(QUANTIZED)} have one"
            )


WITH_PAGES = ("web", "wasm")
"""Targets that write a page for image and text models."""

QUANTIZED = ("litert", "onnx", "web")
"""Names of the targets that have an int8 form."""
