#!/bin/bash
# polars 2.1.0 (Python 3.11): a key that appears first after row 100 of a file of JSON lines is dropped, without
# an error.
#
# A reader would guess: a column with nulls in the rows before, or an error, which a late number with decimals
# gets.
#
# Seen: 150 events of the host, then a kernel with `cat` and `args.stream`. The table has neither `cat` nor
# `stream`; the kernel is there as one more event of the host. A late "dur": 1.75 after integers raises
# ComputeError. infer_schema_length=None has all.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q polars==2.1.0
cat >"$work/see.py" <<'END'
import json
import pathlib

import polars

HOST = [{"ts": ts, "dur": 1, "args": {"External id": ts}} for ts in range(150)]


def read(last, **how):
    pathlib.Path("events.jsonl").write_text("\n".join(json.dumps(row) for row in [*HOST, last]))
    return polars.read_ndjson("events.jsonl", **how)


kernel = {"ts": 150, "dur": 1, "cat": "kernel", "args": {"External id": 150, "stream": 7}}
sampled, whole = read(kernel), read(kernel, infer_schema_length=None)
print(sampled.tail(1), whole.tail(1))
assert sampled.row(150) == (150, 1, {"External id": 150}) and "cat" not in sampled.columns
assert whole["cat"][150] == "kernel" and whole["args"][150] == {"External id": 150, "stream": 7}
try:
    read({"ts": 150, "dur": 1.75})
except polars.exceptions.ComputeError as raised:
    print(raised)
else:
    raise SystemExit("no error")
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
