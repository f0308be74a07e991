#!/bin/bash
# polars 2.1.0 (pandas 3.1.1, DuckDB 2.0.0, Python 3.11): quantile(0.5) is not the median: it is an element, here the
# upper one of the two in the middle, and describe() has it as "50%".
#
# A reader would guess: quantiles interpolate between two elements, as in pandas, and the one at 0.5 is the median.
#
# Seen, for 1, 2, 3, 10: quantile(0.5) 3, median() 2.5, describe() 3; quantile(0.9) 10 where pandas has 7.9. DuckDB's
# quantile takes the lower one, 2, and its quantile_cont and median 2.5. So the
# p50 and p99 of step times of one file differ by tool. interpolation="linear" makes polars agree with pandas.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q polars==2.1.0 pandas==3.1.1 duckdb==2.0.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import duckdb
import pandas
import polars

values = [1.0, 2.0, 3.0, 10.0]
steps = polars.Series(values)
described = dict(steps.describe().iter_rows())
quantiles = [steps.quantile(share) for share in (0.5, 0.9)]
linear = [steps.quantile(share, interpolation="linear") for share in (0.5, 0.9)]
of_pandas = pandas.Series(values).quantile([0.5, 0.9]).tolist()
query = "SELECT quantile(v, 0.5), quantile_cont(v, 0.5), median(v) FROM (SELECT unnest(?::DOUBLE[]) AS v)"
of_duckdb = duckdb.execute(query, [values]).fetchone()
print("polars:", quantiles, "linear:", linear, "median:", steps.median(), "describe:", described["50%"])
print("pandas:", of_pandas, "DuckDB's quantile, quantile_cont, median:", of_duckdb)
assert quantiles == [3.0, 10.0] and steps.median() == 2.5 and described["50%"] == 3.0
assert [round(value, 9) for value in linear] == [round(value, 9) for value in of_pandas] == [2.5, 7.9]
assert of_duckdb == (2.0, 2.5, 2.5)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
