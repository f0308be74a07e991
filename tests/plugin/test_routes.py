"""The plugin inside TensorBoard's own WSGI application."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.plugins import base_plugin

from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE
from tb_gpudiag.loader import Loader
from tb_gpudiag.service.index.log_index import LogIndex
from tb_gpudiag.trace.files.find import Found, find_traces
from tests.plugin.server import Server
from tests.service.helpers import eventually

pytestmark = pytest.mark.slow


def test_from_the_list_to_report_timeline_and_gap(diagnosed: Server) -> None:
    id_ = diagnosed.only_id()
    report = diagnosed.ready(f"report?id={id_}")["report"]
    assert report["trace"]["run"] == "run"
    device = report["devices"][0]
    assert sum(part["us"] for part in device["window_idle_by_cause"]) == pytest.approx(
        device["window_idle_us"]
    )
    timeline = diagnosed.ready(f"timeline?id={id_}")
    assert [lane["kind"] for lane in timeline["lanes"]] == ["gaps", "stream", "queue", "thread"]
    queue = timeline["lanes"][2]
    assert queue["queue"]["low"] == queue["queue"]["high"]
    assert max(queue["queue"]["high"]) == queue["queue_most"] == 1
    assert "train.py(12): <b>train</b>" in timeline["names"]
    gap = timeline["lanes"][0]["box_gap"][-1]
    chain = diagnosed.ready(f"gap?id={id_}&device={device['id']}&gap={gap}")
    assert chain["before"]["name"] == "add"
    shown = [("ready", report["verdict"]["sentence"])]
    eventually(
        lambda: [(one["state"], one["sentence"]) for one in diagnosed.json("traces")["traces"]] == shown
    )


def test_a_slice_is_cut_as_asked(diagnosed: Server) -> None:
    id_ = diagnosed.only_id()
    part = diagnosed.ready(f"timeline?id={id_}&start_us=310&end_us=340.5&width=800")
    assert (part["start_us"], part["end_us"]) == (310, 340.5)
    assert [part["names"][name] for name in part["lanes"][1]["box_name"]] == ["add"]


def test_operators_kernels_and_the_call_tree_are_served(diagnosed: Server) -> None:
    id_ = diagnosed.only_id()
    kernels = diagnosed.ready(f"kernels?id={id_}&filter=ADD&limit=1")
    assert [row["name"] for row in kernels["rows"]] == ["add"]
    row = diagnosed.ready(f"operators?id={id_}&group=stack&sort=host_self")["rows"][0]
    details = diagnosed.ready(f"calls?id={id_}&group=stack&key={row['key']:.0f}")
    assert [stack["calls"] for stack in details["stacks"]] == [row["calls"]]
    tree = diagnosed.ready(f"callTree?id={id_}&weight=gpu")
    assert tree["total_us"] == sum(row["total_us"] for row in diagnosed.ready(f"kernels?id={id_}")["rows"])
    assert diagnosed.ready(f"roofline?id={id_}")["points"] == []


def test_memory_is_served_by_device_and_range(diagnosed: Server) -> None:
    id_ = diagnosed.only_id()
    report = diagnosed.ready(f"report?id={id_}")["report"]
    whole = diagnosed.ready(f"memory?id={id_}")
    assert [memory["device"] for memory in report["memory"]] == [0, -1]
    assert (whole["device"], whole["allocated"]["high"]) == (0, [0, 1024])
    assert (whole["sites"][0]["operator"], whole["sites"][0]["kept_bytes"]) == ("aten::mm", 1024)
    assert diagnosed.json(f"memory?id={id_}&device=-1")["allocated_bytes"] == 64
    part = diagnosed.json(f"memory?id={id_}&device=0&start_us=100&end_us=200.5&width=800")
    assert (part["start_us"], part["end_us"], part["allocated_bytes"]) == (100, 200.5, 0)
    assert part["allocated"] == {"time_us": [100], "low": [1024], "high": [1024]}


def test_results_that_somebody_cuts_off_are_made_again(
    serve: Callable[..., Server], log: Path, tmp_path: Path
) -> None:
    server = serve()
    id_ = server.only_id()
    whole = server.ready(f"timeline?id={id_}")
    for size in (10_000, 100, 0):
        (result,) = (tmp_path / "cache" / "entries").iterdir()
        os.truncate(result, size)
        # Other ranges than before, which are not kept.
        assert server.json(f"timeline?id={id_}&start_us={size}&end_us=90000")["state"] in (
            "queued",
            "running",
        )
        assert server.ready(f"timeline?id={id_}&start_us={size}&end_us=90000")["start_us"] == size
    assert server.ready(f"timeline?id={id_}") == whole


def test_every_rule_is_explained(diagnosed: Server) -> None:
    for rule in EVERY_RULE:
        found = diagnosed.json(f"rule?id={rule.id}")
        assert (found["id"], found["name"], found["title"]) == (rule.id, rule.name, rule.title)
        assert found["markdown"].startswith(f"# {rule.id} ")
        assert "\n## Fix\n" in found["markdown"]


def test_what_is_not_ready_is_answered_at_once(serve: Callable[..., Server], log: Path) -> None:
    server = serve()
    id_ = server.only_id()
    routes = ("report?", "timeline?", "memory?", "gap?device=0&gap=0&")
    for route in (f"{route}id={id_}" for route in routes):
        answer = server.json(route)
        assert answer["state"] in ("queued", "running", "ready")
    assert server.json(f"cancel?id={id_}")["cancelled"] in (True, False)


def test_a_file_that_is_no_trace_fails_alone_with_a_clear_line(
    serve: Callable[..., Server], log: Path
) -> None:
    (log / "run" / "broken.9.pt.trace.json").write_text("this is no JSON")
    server = serve()
    traces = eventually(lambda: found if len(found := server.json("traces")["traces"]) == 2 else None)
    by_worker = {trace["worker"]: trace["id"] for trace in traces}
    broken = by_worker.pop("broken")

    def ask() -> Any:
        found = server.json(f"report?id={broken}")
        return found if found["state"] == "failed" else None

    failed = eventually(ask)
    assert failed["error"]["what"]
    assert failed["error"]["where"].endswith("broken.9.pt.trace.json")
    server.ready(f"report?id={by_worker.popitem()[1]}")


@pytest.mark.parametrize("accepted", ["gzip", "", "gzip;q=0"])
def test_answers_are_json_in_bytes_zipped_where_accepted(diagnosed: Server, accepted: str) -> None:
    id_ = diagnosed.only_id()
    for route in ("traces", f"report?id={id_}", f"timeline?id={id_}", f"memory?id={id_}", "status"):
        answer = diagnosed.get(route, headers={"Accept-Encoding": accepted})
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        zipped = answer.headers.get("Content-Encoding") == "gzip"
        assert zipped == (accepted == "gzip")
        json.loads(gzip.decompress(answer.data) if zipped else answer.data)


def test_the_list_is_sent_again_only_when_it_changed(serve: Callable[..., Server], log: Path) -> None:
    server = serve()
    id_ = server.only_id()
    server.ready(f"report?id={id_}")
    _wait_until_kept(server)  # from now on, the list stays the same
    known = server.json("traces")["generation"]
    again = server.json(f"traces?known={known}")
    assert (again["generation"], again["unchanged"], again["traces"]) == (known, True, [])
    shutil.copy(next(log.rglob("*.pt.trace.json")), log / "other.2.pt.trace.json")

    def changed() -> Any:
        found = server.json(f"traces?known={known}")
        return None if found["unchanged"] else found

    found = eventually(changed)
    assert [trace["worker"] for trace in found["traces"]] == ["other"]
    assert (found["whole"], found["more"], found["removed"]) == (False, False, [])
    assert len(server.json("traces")["traces"]) == 2


def test_the_listing_names_the_tab_and_its_module(serve: Callable[..., Server], log: Path) -> None:
    server = serve(path_prefix="/some/prefix")
    answer = server.client.get("/some/prefix/data/plugins_listing")
    listed = json.loads(answer.data)["gpudiag"]
    assert listed["tab_name"] == "Diagnosis"
    assert listed["enabled"] is True
    assert listed["disable_reload"] is False
    assert listed["loading_mechanism"] == {
        "type": "IFRAME",
        "module_path": "/some/prefix/data/plugin/gpudiag/static/index.js",
    }
    entry = server.client.get("/some/prefix/data/plugin_entry.html?name=gpudiag")
    assert 'import("./static/index.js")' in entry.get_data(as_text=True)


def test_a_spec_of_several_directories_is_served(serve: Callable[..., Server], log: Path) -> None:
    server = serve(logdir="", logdir_spec=f"first:{log},second:{log / 'run'}")
    runs = eventually(lambda: [trace["run"] for trace in server.json("traces")["traces"]])
    assert runs == ["first/run", "second"]


def test_an_address_of_a_store_is_served(serve: Callable[..., Server], log: Path) -> None:
    server = serve(logdir=log.as_uri())
    report = server.ready(f"report?id={server.only_id()}")["report"]
    assert report["trace"]["run"] == "run"
    assert report["trace"]["path"].startswith("file://")


def test_without_traces_the_tab_is_not_active(serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    server = serve()
    listed = json.loads(server.client.get("/data/plugins_listing").data)["gpudiag"]
    assert listed["enabled"] is False


def test_an_embedder_that_gives_next_to_nothing_gets_an_inactive_plugin() -> None:
    plugin = Loader().load(base_plugin.TBContext())
    assert plugin is not None
    assert plugin.is_active() is False
    plugin.close()


def test_a_slow_directory_holds_up_the_listing_once_and_briefly(
    serve: Callable[..., Server], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked by the wait times requested, not by a clock."""
    waits: list[float] = []
    monkeypatch.setattr(LogIndex, "start", lambda self: None)  # a scan that never ends

    def wait(self: LogIndex, at_most_s: float) -> bool:
        waits.append(at_most_s)
        return False

    monkeypatch.setattr(LogIndex, "wait_for_first_scan", wait)
    server = serve()
    for _ in range(3):
        assert json.loads(server.client.get("/data/plugins_listing").data)["gpudiag"]["enabled"] is False
    assert waits == [0.2]


def test_loading_does_not_look_at_the_directory(
    serve: Callable[..., Server], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorBoard loads plugins before it listens, so loading must not wait for a scan."""
    monkeypatch.setattr(LogIndex, "start", lambda self: None)
    searched = []

    def find(root: str, *more: Any) -> Found:
        searched.append(root)
        return find_traces(root, *more)  # servers of other tests go on searching

    monkeypatch.setattr("tb_gpudiag.service.index.log_index.find_traces", find)
    serve()
    assert str(log) not in searched


def _wait_until_kept(server: Server) -> None:
    """A report is there before its digest is made, and both are kept."""
    idle = {"queued": 0, "running": 0, "failed": 0}

    def kept() -> bool:
        status = server.json("status")
        return status["cache_bytes"] > 0 and status["jobs"] == idle

    eventually(kept)


def test_status_counts(diagnosed: Server) -> None:
    _wait_until_kept(diagnosed)
    status = diagnosed.json("status")
    assert status["traces"] == 1
    assert status["scanned"] is True
