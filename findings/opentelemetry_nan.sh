#!/bin/bash
# opentelemetry-sdk 1.45.2 (Python 3.11): a gauge that is set to NaN keeps, and exports, its last healthy value.
#
# A reader would guess: NaN is a value of a gauge as of a float, and the loss of a run that diverged is NaN in each
# export.
#
# Seen: set(0.7), then set(nan) or set(inf): 0.7 is exported, again each time, with the time of the export and one
# warning in the log for each call. A gauge that was never set to a finite number is not exported. Histograms and
# counters leave out NaN and infinity as well; so the count of a histogram is not the number of steps. An observable
# gauge whose callback returns NaN exports no point.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q opentelemetry-sdk==1.45.2
cat >"$work/see.py" <<'END'
import logging
import math
import time

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

warnings = []
handler = logging.Handler()
handler.emit = lambda record: warnings.append(record.getMessage())
logging.getLogger().addHandler(handler)
reader = InMemoryMetricReader()
meter = MeterProvider([reader]).get_meter("training")
loss, never = meter.create_gauge("loss"), meter.create_gauge("never")
losses, seconds = meter.create_histogram("losses"), [0.7]
meter.create_observable_gauge("observed", [lambda _: [Observation(seconds[0])]])


def export():
    data = reader.get_metrics_data()
    return {
        metric.name: point for resource in data.resource_metrics for scope in resource.scope_metrics
        for metric in scope.metrics for point in metric.data.data_points
    }


loss.set(0.7)
losses.record(0.7)
first = export()
for value in (math.nan, math.inf):
    loss.set(value)
    never.set(value)
    losses.record(value)
seconds[0] = math.nan
time.sleep(0.01)
second = export()
print({name: getattr(point, "value", None) for name, point in second.items()}, second["losses"].count, warnings)
assert first["loss"].value == second["loss"].value == 0.7
assert first["loss"].time_unix_nano < second["loss"].time_unix_nano
assert first["observed"].value == 0.7 and "observed" not in second and "never" not in second
assert second["losses"].count == 1
END
cd "$work"
PYTHONWARNINGS=ignore venv/bin/python see.py
