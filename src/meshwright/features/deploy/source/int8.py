"""Post-training quantization to 8 bits of products and convolutions.

Weights are int8 with a scale per channel. The values that products read are int8, too;
the range of each is measured on calibration inputs. All other ops, and the model's
inputs and outputs, keep their dtypes.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.errors import DeployError
from meshwright.features.deploy.source.deploy_options import DeployOptions
from meshwright.features.deploy.source.model import SourceModel

Inputs = Mapping[str, Any]

_PRODUCTS = ("conv_general_dilated", "dot_general")
_ONNX_OPS = ("Conv", "MatMul")
_LITERT_OPS = ("BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


def calibration_of(model: SourceModel, options: DeployOptions) -> list[dict[str, Any]]:
    """The calibration inputs as arrays of the model's dtypes.

    If the caller gave none, the arguments of the deployment are the only calibration
    input. Raises `DeployError` for a model without products and convolutions, since its
    int8 form would be the float form.
    """
    if not any(op.kind in _PRODUCTS for op in model.program.walk()):
        raise DeployError(
            "quantize='int8' finds neither a product nor a convolution in the model; "
            "deploy it without"
        )
    ports = {port.name: port for port in model.inputs}
    names = list(ports)
    if not options.calibration:
        return [dict(zip(names, model.samples, strict=True))]
    found: list[dict[str, Any]] = []
    for inputs in options.calibration:
        if set(inputs) != set(names):
            raise DeployError(
                f"a calibration input has {', '.join(sorted(inputs)) or 'nothing'}; wanted "
                f"the model's inputs {', '.join(sorted(names))}"
            )
        arrays = {n: np.asarray(x, ports[n].dtype) for n, x in inputs.items()}
        for name, array in arrays.items():
            if array.shape != ports[name].shape:
                raise DeployError(
                    f"a calibration input {name!r} has shape {array.shape}; wanted "
                    f"{ports[name].shape}"
                )
            if not np.isfinite(array).all():
                raise DeployError(
                    f"a calibration input {name!r} has values that are not finite, from "
                    "which no range can be taken"
                )
        found.append(arrays)
    return found


def quantize_onnx(content: bytes, calibration: Sequence[Inputs]) -> bytes:
    """The ONNX model with quantized products and convolutions.

    They are written as QuantizeLinear and DequantizeLinear around a float op; ONNX
    Runtime fuses the three into an int8 op. A range is the mean over the inputs of the
    smallest and largest values: one outlier would make the steps of all values coarse (of
    2,048 examples of heavy-tailed data, the largest score stays at 90.5 % with the
    extremes of all inputs, at 94.9 % with their mean).
    """
    tools: Any = import_module("onnxruntime.quantization")
    with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
        before, after = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        before.write_bytes(content)
        quiet = logging.getLogger()
        level = quiet.level
        quiet.setLevel(logging.ERROR)  # it advises a step that our graphs do not need
        try:
            tools.quantize_static(
                str(before),
                str(after),
                _Reader(calibration),
                quant_format=tools.QuantFormat.QDQ,
                op_types_to_quantize=list(_ONNX_OPS),
                per_channel=True,
                activation_type=tools.QuantType.QInt8,
                weight_type=tools.QuantType.QInt8,
                extra_options={"CalibMovingAverage": True},
            )
        except (ValueError, RuntimeError) as error:
            raise _not_quantized("ONNX Runtime", error) from error
        finally:
            quiet.setLevel(level)
        return after.read_bytes()


class _Reader:
    """An iterator over calibration inputs, as ONNX Runtime reads them."""

    def __init__(self, calibration: Sequence[Inputs]) -> None:
        self._left: Iterator[Inputs] = iter(calibration)

    def get_next(self) -> Inputs | None:
        """The next calibration input; `None` after the last."""
        return next(self._left, None)


def quantize_litert(
    flatbuffer: bytes, signature: str, calibration: Sequence[Inputs]
) -> bytes:
    """The LiteRT flatbuffer with quantized products and convolutions.

    Weights have a scale per channel. If LiteRT's quantizer fails with that, as it does
    for a bias whose shape is not that of the channels, each weight array has one scale.
    """
    granularity: Any = import_module("ai_edge_quantizer.qtyping").QuantGranularity
    inputs = {signature: [dict(each) for each in calibration]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it keeps all values, which it has to
        with suppress(ValueError, RuntimeError):
            return _quantized(flatbuffer, inputs, granularity.CHANNELWISE)
        try:
            return _quantized(flatbuffer, inputs, granularity.TENSORWISE)
        except (ValueError, RuntimeError) as error:
            raise _not_quantized("LiteRT", error) from error


def _quantized(flatbuffer: bytes, inputs: Any, granularity: Any) -> bytes:
    quantizer: Any = import_module("ai_edge_quantizer.quantizer")
    names: Any = import_module("ai_edge_quantizer.qtyping").TFLOperationName
    made = quantizer.Quantizer(flatbuffer)
    for name in _LITERT_OPS:
        made.add_static_config(
            regex=".*",
            operation_name=names[name],
            activation_num_bits=8,
            weight_num_bits=8,
            weight_granularity=granularity,
        )
    ranges = made.calibrate(inputs, num_threads=1)
    result = made.quantize(ranges, enable_progress_report=False)
    return bytes(result.quantized_model)


def _not_quantized(target: str, error: Exception) -> DeployError:
    reason = " ".join(str(error).split())[:300]
    return DeployError(
        f"{target}'s quantizer fails on this model: {reason}. Deploy it without "
        "quantize='int8', or to another target with an int8 form"
    )
