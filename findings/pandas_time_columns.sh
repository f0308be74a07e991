#!/bin/bash
# pandas 3.1.1 (Python 3.11): read_json makes dates of a column such as step_time, if all of its numbers are larger than
# 31,536,000.
#
# A reader would guess: integers of a JSON file are integers; dates are strings, or columns that one names.
#
# Seen, a log of step times in ns: steps of 20 ms are integers, and steps of 40 ms are days in April 1971, as seconds
# after 1970. Columns that end in _time or _at, begin with timestamp, or are called date or modified are tried as
# seconds, then as ms, us and ns; a year's seconds is the least number. One step of less than 31.5 ms, or a 0, keeps the
# column as it is; another name does, too. So the same program fails only on the slower runs.
# read_json(convert_dates=False) keeps all.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pandas==3.1.1 numpy==2.4.6
cat >"$work/see.py" <<'END'
import io
import json

import pandas


def read(name, values, **how):
    lines = "\n".join(json.dumps({"step": step, name: value}) for step, value in enumerate(values))
    return pandas.read_json(io.StringIO(lines), lines=True, **how)[name]


fast, slow = [20_000_000, 21_000_000], [40_000_000, 41_000_000]
for name in ("step_time", "queued_at", "timestamp_of_step", "date", "step_ns", "duration"):
    dates = name not in ("step_ns", "duration")
    read_slow = read(name, slow)
    print(name, "of fast steps:", read(name, fast).dtype, "of slow steps:", read_slow.dtype, read_slow[0])
    assert read(name, fast).dtype == "int64" and (read_slow.dtype.kind == "M") == dates
    assert read(name, [*slow, fast[0]]).dtype == "int64"
    assert read(name, slow, convert_dates=False).tolist() == slow
assert read("step_time", slow)[0] == pandas.Timestamp("1971-04-08 23:06:40")
END
cd "$work"
venv/bin/python see.py
