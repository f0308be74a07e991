#!/bin/bash
# dvclive 3.49.1 (Python 3.11): a run whose last step ends without next_step() resumes at a step that it has already
# logged, and its summary has the old step beside the new metrics.
#
# A reader would guess: the end of the run writes the last step, as it writes the last metrics; resuming goes on after
# the last row of the plots.
#
# Seen, a loss at steps 0, 1 and 2, and next_step() between them: metrics.json has the loss of step 2 and "step": 1, and
# Live(resume=True) starts at step 2, so loss.tsv has two rows of step 2. That is each loop that ends by break before it
# calls next_step(). With a next_step() after the last one "step" is 2, and the run resumes at 3.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q dvclive==3.49.1
cat >"$work/see.py" <<'END'
import json
import logging
import pathlib

from dvclive import Live

logging.disable(logging.CRITICAL)


def run(folder, losses, last, resume=False):
    """Log one loss a step, and call next_step() after the last one or not; return the first step."""
    with Live(folder, save_dvc_exp=False, dvcyaml=None, resume=resume) as live:
        first = live.step
        for number, loss in enumerate(losses, 1):
            live.log_metric("loss", loss)
            if last or number < len(losses):
                live.next_step()
    return first


def summary(folder):
    return json.loads(pathlib.Path(folder, "metrics.json").read_text())


for folder, last in (("break", False), ("whole", True)):
    run(folder, [3.0, 2.0, 1.0], last)
    before = summary(folder)
    first = run(folder, [0.5], last, resume=True)
    rows = [row.split("\t") for row in pathlib.Path(folder, "plots/metrics/loss.tsv").read_text().split("\n")[1:-1]]
    print(f"{folder}: summary {before}, resumes at step {first}, rows {rows}")
    assert before == {"loss": 1.0, "step": 2 if last else 1} and first == (3 if last else 2)
    assert [row[0] for row in rows] == ["0", "1", "2", "3" if last else "2"] and len({row[1] for row in rows}) == 4
END
cd "$work"
DVC_NO_ANALYTICS=1 PYTHONWARNINGS=ignore venv/bin/python see.py
