"""Python's json reads exactly what the compiled scanner gives up on, and everything without a compiler."""

from __future__ import annotations

import gc

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.trace.kineto.fields import PlainFields, is_json, read_plain
from tests.with_each import with_each


def fields_of(key: str, *values: str, argument: bool = False) -> PlainFields:
    """Read one event for each value of an entry, and one without that entry."""
    events = [f'{{"args":{{"{key}":{v}}}}}' if argument else f'{{"{key}":{v}}}' for v in values]
    fields = read_plain(f"[{','.join([*events, '{}'])}]".encode())
    assert fields is not None
    return fields


@with_each(
    ("written", "ns"),
    [
        ("1712195495000123.457", 1712195495000123457),
        ("1712195495000123", 1712195495000123000),
        ("9223372036854775.807", 2**63 - 1),
        ("-9223372036854775.808", -(2**63)),
        ("9223372036854775.808", None),
        ("0.0004999999999999999999999999999999999999999999", 0),
        ("0.0005", 1),
        ("-0.0005", -1),
        ("-0.0004", 0),
        ("1.5E-2", 15),
        ("1e3", 1_000_000),
        ("1e9999", None),
        ("1e999999999", None),
        ("1e-9999", 0),
        ('"1.5"', 1500),
        ('" 7 "', 7000),
        ('"1_0"', None),
        ('"NaN"', None),
        ("NaN", None),
        ("true", None),
        ("[1]", None),
        ("null", None),
    ],
)
def test_times_are_exact(written: str, ns: int | None) -> None:
    times, known = fields_of("ts", written).nanoseconds("start_us")
    assert known.tolist() == [ns is not None, False]
    assert times.tolist() == [ns or 0, 0]


@with_each(
    ("written", "number"),
    [
        ("7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", NONE),
        ("1" * 40, NONE),
        ('"7"', 7),
        ("7.5", 8),
        ("1e3", 1000),
        ('"x"', NONE),
        ("true", NONE),
        ("{}", NONE),
    ],
)
def test_integers(written: str, number: int) -> None:
    fields = fields_of("Python id", written, "5", argument=True)
    assert fields.numbers("python_id", np.arange(3)).tolist() == [number, 5, NONE]


def test_addresses_have_64_bits() -> None:
    fields = fields_of("Addr", str(2**64 - 8), str(2**64), argument=True)
    found = fields.numbers("memory_address", np.arange(3), 0).astype(np.uint64)
    assert found.tolist() == [2**64 - 8, 0, 0]


def test_decimals() -> None:
    fields = fields_of("blocks per SM", "0.25", "3", '"1.5"', '"inf"', "1" * 400, argument=True)
    found = fields.decimals("blocks_per_sm", np.arange(6), np.ones(6, np.bool_))
    assert np.array_equal(found, [0.25, 3, 1.5, np.nan, np.nan, np.nan], equal_nan=True)


@with_each(
    ("written", "text"),
    [
        (r'"a\n\u00e9"', "a\né"),
        ("7.50", "7.50"),
        ("-7", "-7"),
        ("true", "true"),
        ('[ 1, 2.50, "2.50", null, {"a": [false]} ]', '[1,2.50,"2.50",null,{"a":[false]}]'),
        ('["é\\n"]', '["é\\n"]'),
    ],
)
def test_texts_are_json_without_spaces(written: str, text: str) -> None:
    assert fields_of("name", written).texts("name").to_pylist() == [text, ""]


def test_a_text_that_is_nested_deeply_is_whole_or_left_out() -> None:
    """How deep a text may be that Python writes is not the same in all its versions."""
    written = "[" * 600 + "]" * 600
    assert fields_of("name", written).texts("name").to_pylist() in ([written, ""], ["", ""])


def test_elements_that_are_no_objects_are_counted() -> None:
    fields = read_plain(b'[{"ph": "X"}, 1, null, [], "x", {}]')
    assert fields is not None
    assert (fields.count, fields.others) == (2, 4)


@with_each(
    "text",
    ["", "[1", "[1,]", "[1] x", "[01]", "nan", "{a: 1}", r'"\ud83d"', r'"\\\ud83d"', '"\t"', "1" * 5_000],
)
def test_what_is_not_json(text: str) -> None:
    assert not is_json(text.encode())


@with_each("text", ["null", r'"\ud83d\ude00"', r'"\\ud83d"', '"\x7f"', r'"\u0000"', "[NaN]"])
def test_what_is_json(text: str) -> None:
    assert is_json(text.encode())


def test_any_depth_is_refused_or_read() -> None:
    assert not is_json(b"[" * 1_000_000 + b"]" * 1_000_000)
    assert not is_json(b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_000)
    assert is_json(b"[" * 300 + b"]" * 300)


def test_garbage_is_collected_afterwards_as_before() -> None:
    for text in (b"[{}]", b"[{"):
        is_json(text)
        assert gc.isenabled()
    gc.disable()
    try:
        is_json(b"[{}]")
        assert not gc.isenabled()
    finally:
        gc.enable()
