"""Messages of report.proto as JSON and back: the proto's own snake_case names, defaults printed, compact."""

from __future__ import annotations

import inspect
import json
import math
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

# The argument that prints defaults was renamed in protobuf 5.26, and the old name removed.
_PRINT_DEFAULTS = (
    "always_print_fields_with_no_presence"
    if "always_print_fields_with_no_presence" in inspect.signature(json_format.MessageToDict).parameters
    else "including_default_value_fields"
)
_NOT_FINITE = ('"NaN"', '"Infinity"', '"-Infinity"')


def to_dict(message: Message) -> dict[str, Any]:
    """The message as plain data. A message field that was never set is left out; everything else is there."""
    options: dict[str, Any] = {_PRINT_DEFAULTS: True}
    return json_format.MessageToDict(message, preserving_proto_field_name=True, **options)


def to_json(message: Message) -> str:
    """The message as one line of JSON. ValueError where a figure is not finite: JSON has no word for it."""
    text = dump(to_dict(message))
    if any(word in text for word in _NOT_FINITE):  # a name may be "NaN"; a figure may not
        _refuse_not_finite(message)
    return text


def dump(data: Any) -> str:
    """Plain data as compact JSON."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def from_json(text: str, kind: type[M]) -> M:
    """Reads what `to_json` wrote, passing over a newer version's fields; ParseError for anything else."""
    return json_format.Parse(text, kind(), ignore_unknown_fields=True)


def _refuse_not_finite(message: Message) -> None:
    for field, value in message.ListFields():
        for item in value if hasattr(value, "extend") else [value]:
            if isinstance(item, Message):
                _refuse_not_finite(item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"{field.full_name} is {item}")
