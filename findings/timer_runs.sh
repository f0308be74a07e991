#!/bin/bash
# torch 2.13.0 (CPU build, Python 3.11): torch.utils.benchmark.Timer runs the statement more often than it is told and
# counts, and the setup before each block of runs.
#
# A reader would guess: timeit(1) runs it once, as Python's timeit does, and the setup is run once before all.
#
# Seen: timeit(1) runs the statement 3 times and timeit(1000) 1,010 times: a hundredth more, at least 2, to warm up. With
# a training step as statement the model has taken 3 steps. The setup ran twice, and 54 times for the 43 blocks of
# blocked_autorange: a costly one takes most of the time, and what it makes is new for each block.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat >"$work/see.py" <<'END'
from torch.utils.benchmark import Timer


def runs(measure):
    """Return how often the setup and the statement ran, and the measurement."""
    ran = {"setup": 0, "statement": 0}
    timer = Timer("ran['statement'] += 1", "ran['setup'] += 1", globals={"ran": ran})
    measured = measure(timer)
    return ran["setup"], ran["statement"], measured


for number in (1, 1000):
    setups, statements, measured = runs(lambda timer: timer.timeit(number))
    print(f"timeit({number}): setup {setups}, statement {statements}, counted {measured.number_per_run}")
    assert statements == number + max(number // 100, 2) and measured.number_per_run == number
    assert setups == 2
setups, statements, measured = runs(lambda timer: timer.blocked_autorange(min_run_time=0.2))
print(f"blocked_autorange: setup {setups}, {len(measured.times)} blocks of {measured.number_per_run}")
assert setups > len(measured.times)
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
