"""Decoding of HLO modules and of TpuGraphs' tuning records.

No package ships Python classes for XLA's `hlo.proto`. Its fields that features need are
declared here, and `protobuf` builds the classes at run time. It skips all other fields,
so that modules of any XLA release decode. Field numbers are those of XLA's `hlo.proto` and
`xla_data.proto`, and of `tuning.proto` in google-research-datasets/tpu_graphs.
"""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from meshwright.errors import LearnedError

_MESSAGES: Mapping[str, str] = MappingProxyType(
    {
        "Layout": "minor_to_major:1*",
        "Shape": "element_type:2 dimensions:3* tuple_shapes:4*Shape layout:5Layout",
        "WindowDimension": "size:1 stride:2 padding_low:3 padding_high:4"
        " window_dilation:5 base_dilation:6 window_reversal:7",
        "Window": "dimensions:1*WindowDimension",
        "Convolution": "kernel_input_feature_dimension:3"
        " kernel_output_feature_dimension:4 kernel_spatial_dimensions:6*"
        " input_batch_dimension:7 input_feature_dimension:8 output_batch_dimension:9"
        " output_feature_dimension:10 input_spatial_dimensions:11*",
        "Slice": "start:1 limit:2 stride:3",
        "Padding": "edge_padding_low:1 edge_padding_high:2",
        "PaddingConfig": "dimensions:1*Padding",
        "Instruction": "name:1s opcode:2s shape:3Shape parameter_number:9"
        " dimensions:14* window:15Window convolution_dimension_numbers:16Convolution"
        " slice_dimensions:17*Slice dynamic_slice_sizes:20*"
        " padding_config:21PaddingConfig id:35 operand_ids:36*"
        " called_computation_ids:38* feature_group_count:50 batch_group_count:58"
        " is_stable:60",
        "Computation": "name:1s instructions:2*Instruction id:5 root_id:6",
        "HloModule": "name:1s computations:3*Computation entry_computation_id:6",
        "TileSizeConfig": "kernel_bounds:1* output_bounds:2* input_bounds:3*",
        "OpConfig": "tile_size_config:1TileSizeConfig",
        "TensorLayout": "dims:1*",
        "NodeLayout": "tensors:1*TensorLayout",
        "LayoutConfig": "nodes:1*NodeLayout",
        "ModuleConfig": "layout_config:1LayoutConfig",
        "Profile": "compute_time_ns:4",
        "Run": "op_config:1OpConfig module_config:2ModuleConfig error:3"
        " profile:4Profile is_default:5",
        "ModuleTuningData": "module:1HloModule fingerprint:2u runs:3*Run"
        " config_index_to_node:4*",
        "TuningData": "modules:1*ModuleTuningData",
        "TuningFile": "runs:3*b",
    }
)
"""Fields of each message as `name:number`, then `*` if repeated, then the type.

The type is a message's name, `s` for a string, `b` for bytes, `u` for an unsigned integer.
Integers of all widths, enums and booleans are otherwise read as int64, which has the same
encoding.
"""

_SCALARS = {"": 3, "u": 4, "s": 9, "b": 12}
"""`FieldDescriptorProto.Type` of int64, uint64, string and bytes."""

_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3
_FIELD = re.compile(r"(\w+):(\d+)(\*?)([A-Za-z]*)")


def decode(message: str, encoded: bytes, source: str) -> Any:
    """Decode a protobuf message of the named type; `source` names the file in errors.

    Raises `LearnedError` if the bytes are empty, or are no such message.
    """
    if not encoded:
        raise LearnedError(f"{source} is empty: expected an encoded {message}")
    classes, error = _message_classes()
    try:
        return classes[message].FromString(encoded)
    except error as fault:
        raise LearnedError(
            f"{source} is no valid {message} ({len(encoded)} bytes, {fault}): the file is"
            " corrupt or of another kind; fetch or write it again"
        ) from fault


@cache
def _message_classes() -> tuple[dict[str, Any], type[Exception]]:
    """The generated classes by message name, and the exception that decoding raises."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError
    except ImportError as missing:
        raise LearnedError(
            "reading HLO modules needs the package protobuf: install the extra"
            " `meshwright[learned]`"
        ) from missing
    file: Any = descriptor_pb2.FileDescriptorProto(
        name="meshwright_hlo.proto", package="meshwright", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields.split():
            _add_field(message, field)
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes: Any = message_factory.GetMessages([file], pool)
    return {name: classes[f"meshwright.{name}"] for name in _MESSAGES}, DecodeError


def _add_field(message: Any, text: str) -> None:
    """Declare one field, written as in `_MESSAGES`, in a message's descriptor."""
    match = _FIELD.fullmatch(text)
    assert match, f"malformed field {text!r}"
    name, number, repeated, kind = match.groups()
    field = message.field.add(
        name=name,
        number=int(number),
        label=_REPEATED if repeated else _OPTIONAL,
        type=_SCALARS.get(kind, _MESSAGE),
    )
    if kind not in _SCALARS:
        field.type_name = f".meshwright.{kind}"
