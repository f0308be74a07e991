"""Convert messages of report.proto to JSON and back.

The JSON is compact, has the proto's snake_case names, and contains fields with default values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from tb_gpudiag.version import __version__

M = TypeVar("M", bound=Message)

GENERATOR: Final = f"tb-gpudiag {__version__}"

SCHEMA_VERSION: Final = 1
"""Of a Report. Rises when a field changes its meaning. A new field does not raise it."""


def to_dict(message: Message) -> dict[str, Any]:
    """Return the message as plain data. Only message fields that were never set are left out.

    This is what `json_format.MessageToDict` returns, without a function call for every number of a column.
    report.proto has no 64-bit integers and bytes, which JSON writes in other ways; its maps are of numbers.
    """
    data: dict[str, Any] = {}
    for name, convert, optional in _fields(message.DESCRIPTOR):
        if not optional or message.HasField(name):
            value = getattr(message, name)
            data[name] = value if convert is None else convert(value)
    return data


def to_json(message: Message) -> str:
    """Return the message as one line of JSON. Raises ValueError: a number is not finite, which JSON cannot
    express."""
    try:
        return dump(to_dict(message))
    except ValueError:
        refuse_not_finite(message)
        raise


class _Field(NamedTuple):
    name: str
    convert: Callable[[Any], Any] | None  # None: the value is plain data already
    optional: bool  # left out if it was never set


@cache
def _fields(descriptor: Any) -> tuple[_Field, ...]:
    return tuple(
        _Field(field.name, _converter(field), field.message_type is not None and not is_repeated(field))
        for field in descriptor.fields
    )


def _converter(field: Any) -> Callable[[Any], Any] | None:
    """Return the function that turns a value of the field into plain data."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _in_order
    if field.message_type is not None:
        return (lambda messages: list(map(to_dict, messages))) if is_repeated(field) else to_dict
    if field.enum_type:
        return {value.number: value.name for value in field.enum_type.values}.__getitem__
    return list if is_repeated(field) else None


def _in_order(entries: Mapping[str, float]) -> dict[str, float]:
    """Return a map's entries in the order of their keys: that of protobuf differs from process to process."""
    return dict(sorted(entries.items()))


def is_repeated(field: Any) -> bool:
    # Before version 6, protobuf has the label only.
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def dump(data: Any) -> str:
    """Return plain data as compact JSON."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def from_json(text: str, kind: type[M]) -> M:
    """Read what `to_json` wrote. Fields of a newer version are ignored. Raises ParseError: the text is not
    such a message."""
    return json_format.Parse(text, kind(), ignore_unknown_fields=True)


def refuse_not_finite(message: Message) -> None:
    """Raise ValueError if a number in the message is not finite, which JSON cannot express."""
    for field, value in message.ListFields():
        for item in value if hasattr(value, "extend") else [value]:
            if isinstance(item, Message):
                refuse_not_finite(item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"{field.full_name} is {item}")
