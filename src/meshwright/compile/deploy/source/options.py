"""Options of a deployment that some targets read."""

from dataclasses import dataclass
from typing import Any

from meshwright.errors import DeployError


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """Options of a deployment.

    labels: names of an image model's classes, for the page of `web`.
    pixels: the values of black and white for an image model.
    quantize: "" or "int8". calibration: inputs by name, from which ranges of values are
        read for int8.
    """

    labels: tuple[str, ...] = ()
    pixels: tuple[float, float] = (-1.0, 1.0)
    quantize: str = ""
    calibration: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.quantize not in ("", "int8"):
            raise DeployError(f"quantize is {self.quantize!r}; wanted 'int8' or ''")
        if not self.pixels[0] < self.pixels[1]:
            raise DeployError(
                f"pixels are {self.pixels}; wanted the values of black and white, as in "
                "(0, 1)"
            )
        if self.calibration and not self.quantize:
            raise DeployError(
                "calibration is for quantize='int8', which is not asked for"
            )

    def require_fit(self, target: str) -> None:
        """Raise `DeployError` if the target does not read what was given."""
        if self.quantize and target not in QUANTIZED:
            raise DeployError(
                f"{target} has no int8 form here; {', '.join(QUANTIZED)} have one"
            )


QUANTIZED = ("litert", "onnx", "web")
"""Targets with an int8 form."""
