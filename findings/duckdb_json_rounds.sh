#!/bin/bash
# DuckDB 2.0.1 (Python 3.11): read_json rounds a number with decimals to an integer, without an error, if the
# first 20,480 rows have integers.
#
# A reader would guess: an error that names the row, as a late string gets, or a column of doubles.
#
# Seen: 30,000 events with whole microseconds, then one with "dur": 1.75. The column is BIGINT, and the last
# value is 2. A string there raises InvalidInputException. sample_size=-1 gives DOUBLE and 1.75.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q duckdb==2.0.1
cat >"$work/see.py" <<'END'
import json
import pathlib

import duckdb


def last(rows, **how):
    pathlib.Path("events.json").write_text("\n".join(json.dumps(row) for row in rows))
    events = duckdb.read_json("events.json", **how)
    return events.types[1], events.filter("ts = 30000").fetchall()


whole = [{"ts": ts, "dur": 1} for ts in range(30000)]
sampled, read = (last([*whole, {"ts": 30000, "dur": 1.75}], **how) for how in ({}, {"sample_size": -1}))
print(sampled, read)
assert sampled == ("BIGINT", [(30000, 2)]) and read == ("DOUBLE", [(30000, 1.75)])
try:
    last([*whole, {"ts": 30000, "dur": "long"}])
except duckdb.InvalidInputException as raised:
    print(str(raised).splitlines()[0][:150])
else:
    raise SystemExit("no error")
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
