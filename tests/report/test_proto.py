"""The generated code has the names and numbers of report.proto."""

from __future__ import annotations

import re
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tb_gpudiag.report import report_pb2

REPORT = Path(report_pb2.__file__).parent
AGAIN = "report_pb2 is not what report.proto says: run: make wire"

SCALARS = {"double": 1, "int32": 5, "bool": 8, "string": 9, "uint32": 13}
"""The scalar types that report.proto uses, as google.protobuf.descriptor numbers them."""

SCALAR_NAMES = {number: name for name, number in SCALARS.items()}

MAP = "map<string, double>"
FIELD = re.compile(rf"^(repeated )?([\w.]+|{MAP}) (\w+) = (\d+);$")
VALUE = re.compile(r"^(\w+) = (\d+);$")


def _declared() -> dict[str, set[tuple[str, ...]]]:
    """Members of every message and enum of report.proto, by full name. An unknown kind of line fails."""
    found: dict[str, set[tuple[str, ...]]] = {}
    scope: list[str] = []
    for line in (REPORT / "report.proto").read_text(encoding="utf-8").splitlines():
        line = line.split("//")[0].strip()
        if not line or line in ('syntax = "proto3";', "package tb_gpudiag;"):
            continue
        if opened := re.match(r"^(message|enum) (\w+) \{$", line):
            scope.append(opened[2])
            found[".".join(scope)] = set()
        elif line == "}":
            scope.pop()
        elif field := FIELD.match(line):
            found[".".join(scope)].add((field[3], field[4], field[2], "repeated" if field[1] else "single"))
        elif value := VALUE.match(line):
            found[".".join(scope)].add((value[1], value[2]))
        else:
            raise AssertionError(f"this test does not understand {line!r}")
    assert not scope
    return found


def _generated() -> dict[str, set[tuple[str, ...]]]:
    assert not report_pb2.DESCRIPTOR.enum_types_by_name
    package = report_pb2.DESCRIPTOR.package + "."
    found: dict[str, set[tuple[str, ...]]] = {}
    for message in report_pb2.DESCRIPTOR.message_types_by_name.values():
        assert all(nested.GetOptions().map_entry for nested in message.nested_types)
        found[message.full_name.removeprefix(package)] = _members(message)
        for enum in message.enum_types:
            found[enum.full_name.removeprefix(package)] = {(v.name, str(v.number)) for v in enum.values}
    return found


def _members(message: Descriptor) -> set[tuple[str, ...]]:
    blank = getattr(report_pb2, message.name)()  # newer versions of protobuf have no field.label
    repeated = {name for name in message.fields_by_name if hasattr(getattr(blank, name), "extend")}
    return {
        (field.name, str(field.number), _kind(field), "repeated" if field.name in repeated else "single")
        for field in message.fields
    }


def _kind(field: FieldDescriptor) -> str:
    named = field.message_type or field.enum_type
    if field.message_type and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map<{SCALAR_NAMES[key.type]}, {SCALAR_NAMES[value.type]}>"
    if not named:
        return SCALAR_NAMES[field.type]
    # An enum of the same message goes by its own name.
    own = field.full_name.removesuffix(field.name)
    return named.full_name.removeprefix(own).removeprefix(f"{report_pb2.DESCRIPTOR.package}.")


def test_the_generated_code_is_what_report_proto_says() -> None:
    declared, generated = _declared(), _generated()
    assert set(declared) == set(generated), AGAIN
    for name, members in declared.items():
        assert members == generated[name], f"{name}: {AGAIN}"


def test_the_types_for_mypy_name_every_message_and_field() -> None:
    stub = (REPORT / "report_pb2.pyi").read_text(encoding="utf-8")
    classes = dict(
        re.findall(r"^class (\w+)\(_message\.Message\):\n(.*?)(?=^class |\Z)", stub, re.MULTILINE | re.DOTALL)
    )
    for name, message in report_pb2.DESCRIPTOR.message_types_by_name.items():
        initial = re.search(r"^    def __init__\(self, (.*)\)", classes[name], re.MULTILINE)
        assert initial is not None
        assert re.findall(r"(\w+): ", initial[1]) == [field.name for field in message.fields], AGAIN


def test_the_generated_code_works_with_every_supported_protobuf() -> None:
    code = (REPORT / "report_pb2.py").read_text(encoding="utf-8")
    assert "Protobuf Python Version: 4.25" in code
    assert "ValidateProtobufRuntimeVersion" not in code
