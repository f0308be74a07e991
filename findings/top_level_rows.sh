#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): `key_averages().table(top_level_events_only=True)` shows an operator with all its
# calls or not at all, by whether its first call was inside of another operator.
#
# A reader would guess: each row has the calls that are in no other operator, as the rows of events() have.
#
# Seen, `t` once inside of `linear` and three times by itself: with `linear` first there is no row of `t`, so the three
# calls are nowhere; with `linear` last its row has four calls, of which `linear` has one, too.
# events().table(top_level_events_only=True) has three rows of one call both times.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
import torch
from torch.profiler import ProfilerActivity, profile

matrix = torch.ones(8, 8)


def calls(table):
    """Return the numbers of calls in the rows of aten::t of a table."""
    rows = [line.split() for line in table.splitlines()]
    return [int(row[-1]) for row in rows if row[:1] == ["aten::t"]]


def seen(linear_first):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        if linear_first:
            torch.nn.functional.linear(matrix, matrix)
        for _ in range(3):
            matrix.t()
        if not linear_first:
            torch.nn.functional.linear(matrix, matrix)
    return [calls(events.table(top_level_events_only=True)) for events in (profiler.key_averages(), profiler.events())]


first, last = seen(True), seen(False)
print("rows of aten::t in key_averages and events; linear first:", first, "linear last:", last)
assert first == [[], [1, 1, 1]]
assert last == [[4], [1, 1, 1]]
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
