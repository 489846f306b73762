"""Holds the wire contract: messages, the names of enum values, and the paths of methods.

The messages are made from a descriptor set, not from generated code, which would have to fit the
installed version of protobuf. They have a pool of their own, so that they cannot clash with other
messages of the process.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

_pool = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(
    pathlib.Path(__file__).with_name("contract.binpb").read_bytes()
).file:
    _pool.AddSerializedFile(_file.SerializeToString())
_factory = message_factory.MessageFactory(_pool)


def _message(name: str) -> Any:
    descriptor = _pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 or later
        return message_factory.GetMessageClass(descriptor)
    return _factory.GetPrototype(descriptor)


DecomposeRequest = _message("ckd.v1.DecomposeRequest")
DecomposeResponse = _message("ckd.v1.DecomposeResponse")
InputContext = _message("ckd.v1.InputContext")
StreamRequest = _message("ckd.v1.DecomposeStreamRequest")
StreamResponse = _message("ckd.v1.DecomposeStreamResponse")
ListModelsRequest = _message("ckd.v1.ListModelsRequest")
ListModelsResponse = _message("ckd.v1.ListModelsResponse")
GetModelRequest = _message("ckd.v1.GetModelRequest")
GetModelResponse = _message("ckd.v1.GetModelResponse")
ReportOutcomesRequest = _message("ckd.v1.ReportOutcomesRequest")
ReportOutcomesResponse = _message("ckd.v1.ReportOutcomesResponse")
Status = _message("google.rpc.Status")
ErrorInfo = _message("google.rpc.ErrorInfo")
RetryInfo = _message("google.rpc.RetryInfo")

DECOMPOSE = "/ckd.v1.UncertaintyService/Decompose"
DECOMPOSE_STREAM = "/ckd.v1.UncertaintyService/DecomposeStream"
LIST_MODELS = "/ckd.v1.UncertaintyService/ListModels"
GET_MODEL = "/ckd.v1.UncertaintyService/GetModel"
REPORT_OUTCOMES = "/ckd.v1.OutcomeService/ReportOutcomes"


_BLOCK = StreamRequest.DESCRIPTOR.fields_by_name["block"]
_VALUES = _BLOCK.message_type.fields_by_name["values_le"]


def before_values(block: Any, size: int) -> bytes:
    """Returns a StreamRequest with a block, up to the bytes of its values_le, with which it ends.

    The values of most blocks are all that tells them apart: the rest need not be encoded for each.
    """
    encoded: bytes = block.SerializeToString()
    if size:
        encoded += _opening(_VALUES.number, size)
    return _opening(_BLOCK.number, len(encoded) + size) + encoded


def _opening(number: int, size: int) -> bytes:
    """Returns the tag and the length of a field of bytes, or of a message."""
    opening = bytearray([number << 3 | 2])
    while size > 0x7F:
        opening.append(size & 0x7F | 0x80)
        size >>= 7
    opening.append(size)
    return bytes(opening)


def stated(message: Any) -> dict[str, Any]:
    """Returns a message that is not ckd's own as the dict of its JSON."""
    text = json_format.MessageToJson(message, preserving_proto_field_name=True, descriptor_pool=_pool)
    made: dict[str, Any] = json.loads(text)
    return made


class Pickled:
    """Pickles and copies objects that hold messages of this module, whose classes no other process has."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: _Encoded(value) if hasattr(value, "DESCRIPTOR") else value for name, value in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update((name, value.message() if isinstance(value, _Encoded) else value) for name, value in state.items())


class _Encoded:
    """A message as its name and its bytes."""

    def __init__(self, message: Any) -> None:
        self.name, self.encoded = message.DESCRIPTOR.full_name, message.SerializeToString()

    def message(self) -> Any:
        return _message(self.name).FromString(self.encoded)


def names(enum: str) -> dict[int, str]:
    """Returns the values of an enum by number, as in retain for ACTION_RETAIN."""
    values = _pool.FindEnumTypeByName("ckd.v1." + enum).values_by_number
    prefix = values[0].name[: -len("UNSPECIFIED")]
    return {number: value.name[len(prefix) :].lower() for number, value in values.items()}


def numbers(enum: str) -> dict[str, int]:
    """Returns the numbers of an enum's values by name."""
    return {name: number for number, name in names(enum).items()}
