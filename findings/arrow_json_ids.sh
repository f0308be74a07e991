#!/bin/bash
# pyarrow 26.0.1 and DuckDB 2.0.1 (Python 3.11): of addresses and ids that use all of 64 bits, pyarrow's JSON
# reader makes doubles, for the small ones in the same column, too; DuckDB keeps them.
#
# A reader would guess: uint64 where all are positive, or an error: the reader refuses a column of numbers and
# strings.
#
# Seen: [1, 2^53 + 1, 2^63 + 1] is read as double, so that 2^53 + 1 becomes 2^53 and 2^63 + 1 becomes 2^63.
# Without the last row it is int64 and exact. DuckDB reads HUGEINT, exact.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q duckdb==2.0.1 pyarrow==26.0.1
cat >"$work/see.py" <<'END'
import json
import pathlib

import duckdb
import pyarrow.json

ids = [1, 2**53 + 1, 2**63 + 1]


def write(values):
    pathlib.Path("ids.json").write_text("\n".join(json.dumps({"Addr": value}) for value in values))
    return "ids.json"


column = pyarrow.json.read_json(write(ids))["Addr"]
small = pyarrow.json.read_json(write(ids[:2]))["Addr"]
exact = [value for (value,) in duckdb.read_json(write(ids)).fetchall()]
print(column.type, [int(value) for value in column.to_pylist()], small.type, small.to_pylist(), exact)
assert str(column.type) == "double" and [int(value) for value in column.to_pylist()] == [1, 2**53, 2**63]
assert str(small.type) == "int64" and small.to_pylist() == ids[:2] and exact == ids
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
