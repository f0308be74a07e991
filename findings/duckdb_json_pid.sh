#!/bin/bash
# DuckDB 2.0.1 (Python 3.11): in a column that has numbers and text, such as `pid` of torch's traces (4711 and
# "Spans"), the text keeps its quotation marks, and comparing it with 'Spans' raises an error.
#
# A reader would guess: such a column is VARCHAR, and pid = 'Spans' finds the row.
#
# Seen: the column is JSON. pid = 'Spans' raises ConversionException (malformed JSON), and so does pid = 4711;
# pid = '4711' works. pid::varchar = 'Spans' finds nothing, without an error: the value is '"Spans"', with the
# quotation marks.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q duckdb==2.0.1
cat >"$work/see.py" <<'END'
import json
import pathlib

import duckdb

rows = [{"pid": 4711, "name": "aten::mm"}, {"pid": "Spans", "name": "PyTorch Profiler (0)"}]
pathlib.Path("events.json").write_text("\n".join(json.dumps(row) for row in rows))
events = duckdb.read_json("events.json")


def found(condition):
    try:
        return events.filter(condition).project("pid").fetchall()
    except duckdb.ConversionException as raised:
        return str(raised).splitlines()[0]


conditions = "pid = 'Spans'", "pid = 4711", "pid = '4711'", "pid::varchar = 'Spans'", "pid::varchar = '\"Spans\"'"
seen = [found(condition) for condition in conditions]
print(events.types, *zip(conditions, seen), sep="\n")
assert events.types[0] == "JSON" and "Malformed JSON" in seen[0] and "Conversion Error" in seen[1]
assert seen[2:] == [[("4711",)], [], [('"Spans"',)]]
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
