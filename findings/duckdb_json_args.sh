#!/bin/bash
# DuckDB 2.0.1 (Python 3.11): whether an id inside of `args` is exact depends on how many other keys the events
# have: from some twenty on, read_json makes a map with values of one type, and rounds the ids to doubles.
#
# A reader would guess: args becomes a struct, with a type for each key; or JSON, which keeps the text.
#
# Seen: events whose args have "Addr": 2^53 + 1 and one more key with decimals. With 3 different keys args is a
# STRUCT, and Addr is exact. With 50 it is MAP(VARCHAR, DOUBLE), and Addr 2^53. map_inference_threshold=-1 keeps
# the STRUCT and the id.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q duckdb==2.0.1
cat >"$work/see.py" <<'END'
import json
import pathlib

import duckdb

ADDRESS = 2**53 + 1


def read(keys, **how):
    rows = [{"name": "[memory]", "args": {"Addr": ADDRESS, f"counter {key}": 1.5}} for key in range(keys)]
    pathlib.Path("events.json").write_text("\n".join(json.dumps(row) for row in rows))
    events = duckdb.read_json("events.json", **how)
    ((value,),) = events.project("args['Addr']").limit(1).fetchall()
    return str(events.types[1])[:20], int(value)


few, many, struct = read(3), read(50), read(50, map_inference_threshold=-1)
print(few, many, struct)
assert few[0].startswith("STRUCT") and few[1] == ADDRESS
assert many == ("MAP(VARCHAR, DOUBLE)", 2**53)
assert struct[0].startswith("STRUCT") and struct[1] == ADDRESS
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
