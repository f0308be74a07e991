#!/bin/bash
# DuckDB 2.0.1 with pyarrow 26.0.1 (Python 3.11): the same 'infinity' becomes, in Arrow's text, "out of range"
# or a date in the year 32103, by whether the column has a time zone.
#
# A reader would guess: null, or one error for all; DuckDB's own fetchall gives the largest date that Python
# has.
#
# Seen: to_pylist raises OverflowError for DATE, TIMESTAMP and TIMESTAMPTZ. Cast to text, DATE gives "<value
# out of range: 2147483647>", TIMESTAMP "<value out of range: 9223372036854775807>", and TIMESTAMPTZ the
# plausible "32103-01-10 04:00:54.775807Z" (2^63 us are the year 294247).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q duckdb==2.0.1 pyarrow==26.0.1
cat >"$work/see.py" <<'END'
import duckdb
import pyarrow

texts = []
duckdb.sql("set timezone = 'UTC'")
for kind in ("date", "timestamp", "timestamptz"):
    query = f"select 'infinity'::{kind} as value"
    print(kind, duckdb.sql(query).fetchall())
    values = duckdb.sql(query).to_arrow_table()["value"]
    texts += values.cast(pyarrow.string()).to_pylist()
    try:
        values.to_pylist()
    except OverflowError as raised:
        print(raised)
    else:
        raise SystemExit("no error")
print(texts)
assert texts == [
    "<value out of range: 2147483647>",
    "<value out of range: 9223372036854775807>",
    "32103-01-10 04:00:54.775807Z",
]
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
