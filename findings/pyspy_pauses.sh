#!/bin/bash
# py-spy 0.4.3 (Python 3.11, Linux): a speedscope file of py-spy has no pauses: time in which nothing ran is cut out, and
# each sample is as long as the rate says. Its Chrome trace of the same job has them.
#
# A reader would guess: speedscope's "time order" shows when what ran, from 0 to the length of the run; the formats
# differ in form alone.
#
# Seen, 1 s of work, 2 s of sleep, 1 s of work, 20 samples a second: the speedscope file ends at 2 s and a little, all
# weights are 0.05, and the second work follows the first at once. The Chrome trace spans 4 s. With --idle
# the speedscope file has 4 s, too. When py-spy falls behind its rate, the file is shorter still. So waits for data, and
# the time of day of anything, are not to be read from it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q py-spy==0.4.3
cat >"$work/job.py" <<'END'
import time


def computes():
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass


def sleeps():
    time.sleep(2)


computes()
sleeps()
computes()
END
cat >"$work/see.py" <<'END'
import json
import subprocess
import sys


def recorded(form, *options):
    """Return what py-spy writes of the job."""
    command = ["venv/bin/py-spy", "record", "--rate", "20", "--format", form, "--output", form, *options]
    subprocess.run([*command, "--", sys.executable, "job.py"], check=True, capture_output=True)
    with open(form) as file:
        return json.load(file)


def length(speedscope):
    (thread,) = speedscope["profiles"]
    assert thread["unit"] == "seconds" and set(thread["weights"]) == {0.05}
    return thread["endValue"]


plain, idle, events = recorded("speedscope"), recorded("speedscope", "--idle"), recorded("chrometrace")
times = sorted(event["ts"] / 1e6 for event in events)
span = times[-1] - times[0]
print("seconds; speedscope:", length(plain), "with --idle:", length(idle), "Chrome trace:", span)
assert length(plain) < 3.2 and length(idle) > length(plain) + 0.5 and span > 3.5
END
cd "$work"
venv/bin/python see.py
