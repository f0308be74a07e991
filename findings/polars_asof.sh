#!/bin/bash
# polars 2.1.0 (pandas 3.1.1, Python 3.11): join_asof with `by` joins tables that are not sorted, to wrong rows, where
# without `by` it raises an error.
#
# A reader would guess: it raises, as pandas does, with `by` and without.
#
# Seen, kernels at 30, 10, 20 joined to launches at 25, 5, 15 by stream: 30 finds the launch at 15, the others none.
# Sorted: 25, 5, 15. The only sign is a warning that it cannot check, which sorted tables give as well, so it is soon
# ignored. Sort both first.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1 numpy==2.4.6
cat >"$work/see.py" <<'END'
import warnings

import pandas
import polars

kernels = polars.DataFrame({"stream": [7, 7, 7], "ts": [30, 10, 20]})
launches = polars.DataFrame({"stream": [7, 7, 7], "ts": [25, 5, 15], "launch": [25, 5, 15]})


def joined(left, right, **how):
    """Return the launch of each kernel, and how many warnings there were."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        table = left.join_asof(right, on="ts", **how)
    return dict(zip(table["ts"], table["launch"])), len(warned)


def raised(join):
    try:
        join()
    except (polars.exceptions.InvalidOperationError, ValueError) as error:
        return str(error)


unsorted_tables = joined(kernels, launches, by="stream")
sorted_tables = joined(kernels.sort("ts"), launches.sort("ts"), by="stream")
without_by = raised(lambda: joined(kernels, launches))
in_pandas = raised(lambda: pandas.merge_asof(kernels.to_pandas(), launches.to_pandas(), on="ts", by="stream"))
print("launches and warnings; not sorted:", unsorted_tables, "sorted:", sorted_tables)
print("without by:", without_by, "pandas:", in_pandas)
assert unsorted_tables == ({30: 15, 10: None, 20: None}, 1)
assert sorted_tables == ({10: 5, 20: 15, 30: 25}, 1)
assert "not sorted" in without_by and "sorted" in in_pandas
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
