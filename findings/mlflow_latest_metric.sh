#!/bin/bash
# mlflow-skinny 3.17.2 (Python 3.11): a run's metric is the value of its highest step, and of values that share step and
# time the largest one; not the value that was logged last.
#
# A reader would guess: run.data.metrics["loss"], which the table of runs and search_runs show, is the last value
# logged.
#
# Seen: 1.0 at step 10, then 2.0 at step 3, as of a job that went back to a checkpoint: 1.0. At the same step and time,
# 1.0, 3.0 and then 2.0: 3.0. Without steps, values of one millisecond are such: of a loop that logs quickly the run has
# the largest of them. A NaN at the highest step is the run's metric. The history has all, in the order of logging.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q mlflow-skinny==3.17.2
cat >"$work/see.py" <<'END'
import logging

import mlflow

logging.getLogger("mlflow").setLevel(logging.ERROR)
mlflow.set_tracking_uri("file:runs")
with mlflow.start_run() as run:
    mlflow.log_metric("back", 1.0, step=10)
    mlflow.log_metric("back", 2.0, step=3)
    for value in (1.0, 3.0, 2.0):
        mlflow.log_metric("together", value, step=0, timestamp=1_700_000_000_000)
    mlflow.log_metric("not a number", 1.0, step=1)
    mlflow.log_metric("not a number", float("nan"), step=2)
client = mlflow.MlflowClient()
metrics = client.get_run(run.info.run_id).data.metrics
history = {key: [m.value for m in client.get_metric_history(run.info.run_id, key)] for key in ("back", "together")}
print("metrics of the run:", metrics, "history:", history)
assert metrics["back"] == 1.0 and metrics["together"] == 3.0 and metrics["not a number"] != metrics["not a number"]
assert history == {"back": [1.0, 2.0], "together": [1.0, 3.0, 2.0]}
END
cd "$work"
MLFLOW_ALLOW_FILE_STORE=true PYTHONWARNINGS=ignore venv/bin/python see.py
