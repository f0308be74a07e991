"""Convert messages of report.proto to JSON and back.

The JSON is compact, has the proto's snake_case names, and contains fields with default values.
"""

from __future__ import annotations

import inspect
import json
import math
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

# protobuf 5.26 renamed the argument that prints defaults.
_PRINT_DEFAULTS = (
    "always_print_fields_with_no_presence"
    if "always_print_fields_with_no_presence" in inspect.signature(json_format.MessageToDict).parameters
    else "including_default_value_fields"
)
_NOT_FINITE = ('"NaN"', '"Infinity"', '"-Infinity"')


def to_dict(message: Message) -> dict[str, Any]:
    """Return the message as plain data. Only message fields that were never set are left out."""
    options: dict[str, Any] = {_PRINT_DEFAULTS: True}
    return json_format.MessageToDict(message, preserving_proto_field_name=True, **options)


def to_json(message: Message) -> str:
    """Return the message as one line of JSON.

    Raises:
        ValueError: a number is not finite, which JSON cannot express.
    """
    text = dump(to_dict(message))
    if any(word in text for word in _NOT_FINITE):  # a name may be "NaN", a number may not
        _refuse_not_finite(message)
    return text


def dump(data: Any) -> str:
    """Return plain data as compact JSON."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def from_json(text: str, kind: type[M]) -> M:
    """Read what `to_json` wrote. Fields of a newer version are ignored.

    Raises:
        ParseError: the text is not such a message.
    """
    return json_format.Parse(text, kind(), ignore_unknown_fields=True)


def _refuse_not_finite(message: Message) -> None:
    for field, value in message.ListFields():
        for item in value if hasattr(value, "extend") else [value]:
            if isinstance(item, Message):
                _refuse_not_finite(item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"{field.full_name} is {item}")
