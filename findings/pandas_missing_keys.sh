#!/bin/bash
# pandas 3.1.1 (polars 2.1.0, DuckDB 2.0.0, Python 3.11): merge joins rows without a key to each other, and groupby
# drops them.
#
# A reader would guess: a missing key equals nothing, as in SQL, so rows without one do not join.
#
# Seen, events of which 1 in each table has correlation 7 and 100 have none, as operators and memory events of a trace:
# merge on "correlation" gives 10,001 rows, each one without paired with each other one. polars and DuckDB give 1. And
# groupby("correlation") has only 7: what has no key is missing from all sums, unless dropna=False.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pandas==3.1.1 polars==2.1.0 duckdb==2.0.0 pyarrow==26.0.1 numpy==2.4.6
cat >"$work/see.py" <<'END'
import duckdb
import pandas
import polars

NONE = 100
launches = pandas.DataFrame({"correlation": [7] + [None] * NONE, "launch_us": 5})
kernels = pandas.DataFrame({"correlation": [7] + [None] * NONE, "kernel_us": 9})

merged = launches.merge(kernels, on="correlation")
of_polars = polars.from_pandas(launches).join(polars.from_pandas(kernels), on="correlation")
of_duckdb = duckdb.sql("SELECT * FROM launches JOIN kernels USING (correlation)")
grouped = int(kernels.groupby("correlation")["kernel_us"].sum().sum())
print("rows; pandas:", len(merged), "polars:", len(of_polars), "DuckDB:", len(of_duckdb), "us in groups:", grouped)
assert len(merged) == 1 + NONE**2 and len(of_polars) == len(of_duckdb) == 1 and grouped == 9
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
