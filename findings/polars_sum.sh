#!/bin/bash
# polars 2.1.0 (Python 3.11): the sum of a column of 32-bit integers is a 32-bit integer, and wraps around without an
# error.
#
# A reader would guess: a sum is as wide as it has to be: NumPy adds up int32 to 64 bits, and polars does so for 8 and
# 16 bits.
#
# Seen, two durations of 2,000,000,000 in Int32: sum -294,967,296 in select, group_by, cum_sum, SQL and the streaming
# engine. mean is right. Durations in nanoseconds pass the limit after 2.1 s, in microseconds after 36 minutes. Cast to
# Int64 before adding up.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q polars==2.1.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import numpy
import polars

TOTAL = 4_000_000_000
schema = {"stream": polars.Int32, "dur": polars.Int32}
events = polars.DataFrame({"stream": [7, 7], "dur": [TOTAL // 2] * 2}, schema=schema)
dur = polars.col("dur")
sums = {
    "sum": events["dur"].sum(),
    "group_by": events.group_by("stream").agg(dur.sum())["dur"].item(),
    "cum_sum": events["dur"].cum_sum()[-1],
    "SQL": polars.SQLContext(events=events).execute("SELECT sum(dur) FROM events").collect().item(),
    "streaming": events.lazy().select(dur.sum()).collect(engine="streaming").item(),
}
mean, cast, narrow = events["dur"].mean(), events["dur"].cast(polars.Int64).sum(), events["dur"].to_numpy().sum()
short = polars.Series([30_000] * 3, dtype=polars.Int16).sum()
print(sums, "mean:", mean, "cast:", cast, "NumPy:", narrow, "of Int16:", short)
assert set(sums.values()) == {TOTAL - 2**32} and mean * 2 == cast == narrow == TOTAL and short == 90_000
assert events["dur"].to_numpy().dtype == numpy.int32
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
