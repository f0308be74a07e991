"""The table of slices: parameters are checked, and everything else follows from the table."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module

import pytest

from tb_gpudiag.errors import UsageError
from tb_gpudiag.report.slices.slice_table import CALL_KINDS, SEARCHED, SLICES, SliceKind, Together
from tests.conftest import REPOSITORY
from tests.with_each import with_each


def names_of(kind: SliceKind) -> list[str]:
    """The names of a kind's parameters in a request."""
    parts = [each.parts if isinstance(each, Together) else (each,) for each in kind.parameters]
    return [part.name for some in parts for part in some]


@with_each("name", SLICES)
def test_a_builder_takes_the_parameters(name: str) -> None:
    kind = SLICES[name]
    builder = inspect.signature(getattr(import_module(kind.module), kind.builder))
    assert len(builder.parameters) == 1 + len(kind.parameters)
    assert builder.return_annotation == f"pb.{kind.message.DESCRIPTOR.name}"
    assert {"state", "progress", "error"} <= set(kind.message.DESCRIPTOR.fields_by_name)


@with_each("name", SLICES)
def test_routes_and_their_parameters_are_documented(name: str) -> None:
    rows = (REPOSITORY / "docs" / "http.md").read_text(encoding="utf-8").splitlines()
    (row,) = (row for row in rows if row.startswith(f"| `/{name}` |"))
    assert [each for each in ("id", *names_of(SLICES[name])) if f"`{each}`" not in row] == []


@with_each(
    ("name", "values"),
    [
        ("timeline", {"start_us": "5", "end_us": "5"}),
        ("timeline", {"start_us": "nan"}),
        ("timeline", {"width": "0"}),
        ("timeline", {"width": "8193"}),
        ("timeline", {"width": "1e3"}),
        ("memory", {"device": "-2"}),
        ("gap", {"device": "0"}),
        ("gap", {"device": "-1", "gap": "0"}),
        ("find", {"kind": "gremlin"}),
        ("find", {"limit": "201"}),
        ("operators", {"kind": "x"}),
        ("operators", {"group": "x"}),
        ("operators", {"sort": "x"}),
        ("kernels", {"group": "module"}),
        ("callTree", {"weight": "feather"}),
        ("calls", {"kind": "operator"}),
    ],
)
def test_values_that_are_not_allowed_are_refused(name: str, values: Mapping[str, str]) -> None:
    with pytest.raises(UsageError):
        SLICES[name].arguments(values)


def test_what_is_not_given_has_a_default() -> None:
    assert SLICES["timeline"].arguments({}) == (None, None, 1024)
    rows = ("gpu_self", "", 7)
    assert SLICES["operators"].arguments({"limit": "7"}) == ("operator", "operator", rows, None, None)
    assert SLICES["find"].arguments({"text": "x" * 300})[0] == ("x" * 201, 0, "any")


def test_words_are_those_that_builders_know() -> None:
    from tb_gpudiag.report.slices.operators.call_groups import KINDS
    from tb_gpudiag.report.slices.timeline_range import KINDS as SEARCHED_KINDS

    assert tuple(KINDS) == CALL_KINDS
    assert tuple(SEARCHED_KINDS) == SEARCHED
