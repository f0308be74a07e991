"""`gpudiag schema`: print the JSON Schema of what a command prints as JSON, made from report.proto."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import is_repeated


def run(arguments: Sequence[str]) -> int:
    """Return 0."""
    parsed = parser().parse_args(arguments)
    json.dump(schema(parsed.of), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag schema",
        description="Print the JSON Schema (2020-12) of what a command prints with `--format json`.",
    )
    made.add_argument(
        "of", metavar="COMMAND", nargs="?", default="diagnose", choices=_PRINTED, help=", ".join(_PRINTED)
    )
    return made


_PRINTED: dict[str, dict[str, Any]] = {
    "diagnose": {"reports": [pb.Report], "jobs": [pb.JobReport], "errors": [pb.Problem]},
    "compare": {"comparison": pb.Comparison},
    "hang": {"hang": pb.HangReport, "errors": [pb.Problem]},
    "history": {"histories": [pb.History]},
}
"""The messages of each command, by key; in a list, if there are several."""

_NOT_ALWAYS = ("errors",)

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_MOST_UINT32 = 2**32 - 1
_SCALARS: dict[int, dict[str, Any]] = {
    FieldDescriptor.TYPE_DOUBLE: {"type": "number"},
    FieldDescriptor.TYPE_FLOAT: {"type": "number"},
    FieldDescriptor.TYPE_INT32: {"type": "integer"},
    FieldDescriptor.TYPE_UINT32: {"type": "integer", "minimum": 0, "maximum": _MOST_UINT32},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
}


def schema(command: str) -> dict[str, Any]:
    """Return the schema of the whole document that a command prints.

    Fields with default values are there, too: only messages that were never set are missing. Newer versions
    may add fields.
    """
    definitions: dict[str, Any] = {}
    properties = {}
    for key, message in _PRINTED[command].items():
        several = isinstance(message, list)
        reference = _reference((message[0] if several else message).DESCRIPTOR, definitions)
        properties[key] = {"type": "array", "items": reference} if several else reference
    return {
        "$schema": DIALECT,
        "title": f"gpudiag {command} --format json",
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key not in _NOT_ALWAYS],
        "$defs": dict(sorted(definitions.items())),
    }


def _reference(message: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Define the message and those in it, once."""
    name = message.full_name.partition(".")[2]
    if name not in definitions:
        definitions[name] = {}  # messages may contain themselves
        definitions[name] = {
            "type": "object",
            "properties": {field.name: _field(field, definitions) for field in message.fields},
            "required": [
                field.name for field in message.fields if field.message_type is None or is_repeated(field)
            ],
        }
    return {"$ref": f"#/$defs/{name}"}


def _field(field: FieldDescriptor, definitions: dict[str, Any]) -> dict[str, Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = _one(field.message_type.fields_by_name["value"], definitions)
        return {"type": "object", "additionalProperties": value}
    one = _one(field, definitions)
    return {"type": "array", "items": one} if is_repeated(field) else one


def _one(field: FieldDescriptor, definitions: dict[str, Any]) -> dict[str, Any]:
    if field.message_type is not None:
        return _reference(field.message_type, definitions)
    if field.enum_type is not None:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    return _SCALARS[field.type]
