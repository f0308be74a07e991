#!/bin/bash
# pytorch-ignite 0.5.5 with torch 2.13.0 (CPU build, Python 3.11): a time profiler calls handlers that ran "not
# triggered", and the other one ends a run whose epochs are longer than its loader.
#
# A reader would guess: "not triggered" is for handlers that never ran, and profilers do not change what runs.
#
# Seen: HandlersTimeProfiler rounds the sum of a handler's times to 10 us, and shows 0 as "not triggered"; a handler
# that ran once and took a microsecond is one. With four batches and epoch_length=10, which reads the loader again,
# BasicTimeProfiler raises IndexError at the fifth iteration; with HandlersTimeProfiler ten run.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 pytorch-ignite==0.5.5
cat >"$work/see.py" <<'END'
import logging

from ignite.engine import Engine, Events
from ignite.handlers import BasicTimeProfiler, HandlersTimeProfiler

logging.disable(logging.CRITICAL)


def run(profiler, handlers=()):
    engine = Engine(lambda engine, batch: None)
    profiler.attach(engine)
    for event, handler in handlers:
        engine.add_event_handler(event, handler)
    engine.run([0] * 4, epoch_length=10)
    return engine.state.iteration


ran = []


def once():
    ran.append(1)


profiler = HandlersTimeProfiler()
iterations = run(profiler, [(Events.ITERATION_COMPLETED(once=3), once)])
(total,) = (row[2] for row in profiler.get_results() if row[0] == "once")
print("runs of the handler:", len(ran), "total:", total, "iterations:", iterations)
assert len(ran) == 1 and total == "not triggered" and iterations == 10
try:
    run(BasicTimeProfiler())
except IndexError as raised:
    print(repr(raised))
else:
    raise SystemExit("no error")
END
cd "$work"
KINETO_LOG_LEVEL=99 PYTHONWARNINGS=ignore venv/bin/python see.py
