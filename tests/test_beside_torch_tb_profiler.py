"""torch-tb-profiler, the plugin that people have, and this one: in one TensorBoard, on one log directory."""

from __future__ import annotations

import json
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.patience import HANGS_S
from tests.service.helpers import eventually
from tests.simulator.scenarios import SMALL, simulate
from tests.test_plugin_process import TensorBoard, environment_with_plugin

OLD_PLUGIN = Path(__file__).resolve().parents[1] / ".make" / "torch-tb-profiler"
RUN = "run"

# The old plugin counts each step from its own start to the next one's, with the time between them.
SAME_SHARE = 0.02

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (OLD_PLUGIN / "torch_tb_profiler").is_dir(), reason="it is not installed"),
]


@pytest.fixture
def tensorboard(tmp_path: Path) -> Iterator[TensorBoard]:
    trace = simulate(replace(SMALL, blocks=12)).write(tmp_path / "log" / RUN)
    os.utime(trace, (1_700_000_000, 1_700_000_000))  # a new file might still grow
    path = os.pathsep.join([environment_with_plugin(tmp_path)["PYTHONPATH"], str(OLD_PLUGIN)])
    started = TensorBoard(tmp_path, f"--logdir={tmp_path / 'log'}", PYTHONPATH=path)
    yield started
    started.process.terminate()  # the old plugin has processes of its own, which a killed one leaves behind
    started.process.wait()


def test_both_tabs_show_the_same_log_directory(tensorboard: TensorBoard) -> None:
    def old(route: str, **query: str) -> Any:
        url = f"{tensorboard.address}/data/plugin/pytorch_profiler/{route}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=HANGS_S) as answer:
            return json.load(answer)

    entry = eventually(tensorboard.traces)[0]
    eventually(lambda: old("runs")["runs"] == [RUN], "the old plugin lists the run")
    listed = tensorboard.get("plugins_listing")
    assert listed["pytorch_profiler"]["enabled"]
    assert listed["gpudiag"]["enabled"]
    worker = old("workers", run=RUN, view="Overview")[0]
    span = old("spans", run=RUN, worker=worker)[0]
    overview = old("overview", run=RUN, worker=worker, span=span, view="Overview")
    shown = {row["title"]: row["value"] for row in overview["gpu_metrics"]["data"]}
    busy_share = float(shown["GPU Utilization"].removesuffix(" %")) / 100
    report = tensorboard.report(entry["id"])
    assert report["verdict"]["busy_share"] == pytest.approx(busy_share, abs=SAME_SHARE)
