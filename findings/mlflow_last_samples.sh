#!/bin/bash
# mlflow-skinny 3.17.2 (psutil 7.2.2, Python 3.11): MLflow's system metrics drop what was sampled last: a run shorter than the
# interval of 10 s has none, and of a longer one the end is missing.
#
# A reader would guess: a run has at least one sample, and its end writes what was sampled so far.
#
# Seen, an interval of 1 s: a run that ends after 0.5 s has no system metric at all; one that averages 4 samples has none
# after 3.5 s. What is sampled when the run ends, or fails, is never there: memory at its peak before an error, say.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q mlflow-skinny==3.17.2 psutil==7.2.2
cat >"$work/see.py" <<'END'
import logging
import os
import time

import mlflow

logging.getLogger("mlflow").setLevel(logging.ERROR)
mlflow.set_tracking_uri("file:runs")


def samples(seconds, averaged):
    """Return how many values of the memory in use a run has, if each is the mean of so many samples, 1 s apart."""
    os.environ["MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL"] = "1"
    os.environ["MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING"] = str(averaged)
    with mlflow.start_run(log_system_metrics=True) as run:
        time.sleep(seconds)
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "system/system_memory_usage_megabytes")
    return len(history)


short, long, averaged = samples(0.5, 1), samples(4.5, 1), samples(3.5, 4)
print("values; run of 0.5 s:", short, "of 4.5 s:", long, "of 3.5 s, four samples each:", averaged)
assert short == averaged == 0 and 1 <= long <= 4
END
cd "$work"
MLFLOW_ALLOW_FILE_STORE=true PYTHONWARNINGS=ignore venv/bin/python see.py
