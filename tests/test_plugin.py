"""The plugin inside TensorBoard's own WSGI application, whose header checks must find nothing to complain
about."""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend import application
from tensorboard.plugins import base_plugin
from werkzeug.test import Client, TestResponse

from tb_gpudiag import plugin as plugin_module
from tb_gpudiag.loader import Loader
from tb_gpudiag.service.index import LogIndex
from tb_gpudiag.trace.find import Found
from tests.builder import TraceBuilder
from tests.service.helpers import eventually, hasten

BASE = "/data/plugin/gpudiag"


class Server:
    """A TensorBoard over one log directory, asked as a browser would."""

    def __init__(self, **flags: Any) -> None:
        self.prefix = flags.get("path_prefix", "")
        given = {"logdir": "", "logdir_spec": "", "path_prefix": "", "samples_per_plugin": {}, **flags}
        self.plugins: list[Any] = []
        keep = self.plugins

        class Kept(Loader):
            def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin | None:
                keep.append(super().load(context))
                return keep[-1]

        app = application.TensorBoardWSGIApp(argparse.Namespace(**given, window_title=""), [Kept()])
        self.client = Client(app)

    def get(self, route: str, **more: Any) -> TestResponse:
        return self.client.get(f"{self.prefix}{BASE}/{route}", **more)

    def json(self, route: str) -> Any:
        answer = self.get(route)
        assert answer.status_code == 200, answer.text
        return json.loads(answer.data)

    def ready(self, route: str) -> Any:
        """The answer once the analysis is done."""

        def ask() -> Any:
            found = self.json(route)
            assert found["state"] != "failed", found
            return found if found["state"] == "ready" else None

        return eventually(ask)

    def only_id(self) -> str:
        (trace,) = eventually(lambda: self.json("traces")["traces"])
        return str(trace["id"])


@pytest.fixture(autouse=True)
def no_complaint(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """TensorBoard checks the headers of every response, and warns."""
    with caplog.at_level(logging.WARNING, "tensorboard"):
        yield
    assert [record.getMessage() for record in caplog.records if record.name == "tensorboard"] == []


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    hasten(monkeypatch)
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(tmp_path / "cache"))
    servers = []

    def make(**flags: Any) -> Server:
        servers.append(Server(**({"logdir": str(tmp_path / "log")} | flags)))
        return servers[-1]

    yield make
    for server in servers:
        for plugin in server.plugins:
            plugin.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log directory with one small trace."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=500)
    main.frame("train.py(12): <b>train</b>", at=1, us=480)
    main.op("aten::mm", at=10, us=20).launch("gemm", at=15, us=5, runs_at=30, runs_us=100)
    main.alloc(1024, at=12)
    main.alloc(64, at=14, device=None)
    main.op("aten::add", at=300, us=20).launch("add", at=305, us=5, runs_at=315, runs_us=50)
    trace.write(tmp_path / "log" / "run")
    return tmp_path / "log"


def test_from_the_list_to_report_timeline_and_gap(serve: Callable[..., Server], log: Path) -> None:
    server = serve()
    id_ = server.only_id()
    report = server.ready(f"report?id={id_}")["report"]
    assert report["trace"]["run"] == "run"
    device = report["devices"][0]
    assert sum(part["us"] for part in device["window_idle_by_cause"]) == pytest.approx(
        device["window_idle_us"]
    )
    timeline = server.ready(f"timeline?id={id_}")
    assert [lane["kind"] for lane in timeline["lanes"]] == ["gaps", "stream", "queue", "thread"]
    queue = timeline["lanes"][2]
    assert queue["queue"]["low"] == queue["queue"]["high"]
    assert max(queue["queue"]["high"]) == queue["queue_most"] == 1
    assert "train.py(12): <b>train</b>" in timeline["names"]
    gap = timeline["lanes"][0]["box_gap"][-1]
    chain = server.ready(f"gap?id={id_}&device={device['id']}&gap={gap}")
    assert chain["gap"] == gap
    assert chain["before"]["name"] == "add"
    (entry,) = server.json("traces")["traces"]
    assert (entry["state"], entry["sentence"]) == ("ready", report["verdict"]["sentence"])


def test_a_slice_is_cut_as_asked(serve: Callable[..., Server], log: Path) -> None:
    server = serve()
    id_ = server.only_id()
    server.ready(f"report?id={id_}")
    part = server.ready(f"timeline?id={id_}&start_us=310&end_us=340.5&width=800")
    assert (part["start_us"], part["end_us"]) == (310, 340.5)
    assert [part["names"][name] for name in part["lanes"][1]["box_name"]] == ["add"]


def test_memory_is_served_by_device_and_range(serve: Callable[..., Server], log: Path) -> None:
    server = serve()
    id_ = server.only_id()
    report = server.ready(f"report?id={id_}")["report"]
    whole = server.ready(f"memory?id={id_}")
    assert [memory["device"] for memory in report["memory"]] == [0, -1]
    assert (whole["device"], whole["allocated"]["high"]) == (0, [0, 1024])
    assert (whole["sites"][0]["operator"], whole["sites"][0]["kept_bytes"]) == ("aten::mm", 1024)
    assert server.json(f"memory?id={id_}&device=-1")["allocated_bytes"] == 64
    part = server.json(f"memory?id={id_}&device=0&start_us=100&end_us=200.5&width=800")
    assert (part["start_us"], part["end_us"], part["allocated_bytes"]) == (100, 200.5, 0)
    assert part["allocated"] == {"time_us": [100], "low": [1024], "high": [1024]}


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
def test_answers_are_json_in_bytes_zipped_where_accepted(
    serve: Callable[..., Server], log: Path, accepted: str
) -> None:
    server = serve()
    id_ = server.only_id()
    server.ready(f"report?id={id_}")
    for route in ("traces", f"report?id={id_}", f"timeline?id={id_}", f"memory?id={id_}", "status"):
        answer = server.get(route, headers={"Accept-Encoding": accepted})
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        zipped = answer.headers.get("Content-Encoding") == "gzip"
        assert zipped == (accepted == "gzip")
        json.loads(gzip.decompress(answer.data) if zipped else answer.data)


def test_the_list_is_sent_again_only_when_it_changed(serve: Callable[..., Server], log: Path) -> None:
    server = serve()
    id_ = server.only_id()
    server.ready(f"report?id={id_}")
    # Nothing goes on any more: the list is the same from now on.
    known = server.json("traces")["generation"]
    again = server.json(f"traces?known={known}")
    assert (again["generation"], again["unchanged"], again["traces"]) == (known, True, [])
    shutil.copy(next(log.rglob("*.pt.trace.json")), log / "other.2.pt.trace.json")

    def changed() -> Any:
        found = server.json(f"traces?known={known}")
        return None if found["unchanged"] else found

    assert len(eventually(changed)["traces"]) == 2


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_only_get_is_answered(serve: Callable[..., Server], log: Path, method: str) -> None:
    server = serve()
    for route in ("traces", "report", "timeline", "memory", "gap", "cancel", "status", "static/index.js"):
        answer = server.client.open(f"{BASE}/{route}", method=method)
        assert answer.status_code == 405
        assert answer.headers["Allow"] == "GET"


HOSTILE_IDS = (
    "0" * 20,
    "../../etc/passwd",
    "/etc/passwd",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "file:///etc/passwd",
    "http://169.254.169.254/",
    "run",
    "a" * 100_000,
    "%00",
    "%ff%fe",
    "<script>alert(1)</script>",
    "' OR 1=1 --",
)


@pytest.mark.parametrize("id_", HOSTILE_IDS, ids=range(len(HOSTILE_IDS)))
def test_an_id_that_is_not_in_the_list_leads_nowhere(
    serve: Callable[..., Server], log: Path, id_: str
) -> None:
    server = serve()
    server.only_id()
    for route in ("report?", "timeline?", "memory?", "gap?device=0&gap=0&", "cancel?"):
        answer = server.get(f"{route}id={id_}")
        assert answer.status_code == 404
        assert set(json.loads(answer.data)) == {"what", "where", "remedy"}
        assert "passwd" not in answer.text


@pytest.mark.parametrize(
    "query",
    [
        "",
        "id=",
        "id={id}&start_us=nan",
        "id={id}&end_us=inf",
        "id={id}&start_us=-inf",
        "id={id}&start_us=1e999",
        "id={id}&start_us=abc",
        "id={id}&start_us=",
        "id={id}&start_us=10&end_us=10",
        "id={id}&start_us=20&end_us=10",
        "id={id}&width=-1",
        "id={id}&width=0",
        "id={id}&width=1e3",
        "id={id}&width=nan",
        "id={id}&width=999999999",
        "id={id}&width=" + "9" * 10_000,
        "id={id}&width=٣",
    ],
)
def test_a_slice_that_makes_no_sense_is_refused_with_its_reason(
    serve: Callable[..., Server], log: Path, query: str
) -> None:
    server = serve()
    id_ = server.only_id()
    for route in ("timeline", "memory"):
        answer = server.get(f"{route}?{query.format(id=id_)}")
        assert answer.status_code == 400
        assert json.loads(answer.data)["what"]


@pytest.mark.parametrize("device", ["", "x", "-2", "1.5", "0x0", "9" * 10_000, "3"])
def test_memory_of_a_device_that_is_not_there_is_refused(
    serve: Callable[..., Server], log: Path, device: str
) -> None:
    server = serve()
    id_ = server.only_id()
    server.ready(f"report?id={id_}")
    answer = server.get(f"memory?id={id_}&device={device}")
    assert answer.status_code == 400
    assert set(json.loads(answer.data)) == {"what", "where", "remedy"}


@pytest.mark.parametrize(
    "query", ["", "device=0", "gap=0", "device=x&gap=0", "device=0&gap=-1", "device=0&gap=1.5"]
)
def test_a_gap_that_makes_no_sense_is_refused(serve: Callable[..., Server], log: Path, query: str) -> None:
    server = serve()
    assert server.get(f"gap?id={server.only_id()}&{query}").status_code == 400


def test_a_gap_that_the_trace_does_not_have_is_refused(serve: Callable[..., Server], log: Path) -> None:
    server = serve()
    id_ = server.only_id()
    server.ready(f"report?id={id_}")
    assert server.get(f"gap?id={id_}&device=0&gap=4000").status_code == 400
    assert server.get(f"gap?id={id_}&device=7&gap=0").status_code == 400


def test_numbers_beyond_the_trace_are_answered(serve: Callable[..., Server], log: Path) -> None:
    server = serve()
    id_ = server.only_id()
    server.ready(f"report?id={id_}")
    for route in ("timeline", "memory"):
        assert server.json(f"{route}?id={id_}&start_us=-1e300&end_us=1e300")["state"] == "ready"


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
    assert 'import("./static/index.js")' in entry.text


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
    """By the waits that are asked for, not by a clock."""
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
    """TensorBoard loads plugins before it listens: on that thread nothing may be scanned."""
    monkeypatch.setattr(LogIndex, "start", lambda self: None)

    def find(root: str) -> Found:
        raise AssertionError("scanned while loading")

    monkeypatch.setattr("tb_gpudiag.service.index.find_traces", find)
    serve()


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built frontend, beside things that are none of it."""
    folder = tmp_path / "package" / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.js").write_text("export function render() {}")
    (folder / "chart-Ab3_-x9Z.js").write_text("chunk")
    (folder / "assets" / "style-12345678.css").write_text("style")
    (tmp_path / "package" / "secret.py").write_text("secret")
    (folder / "link.js").symlink_to(tmp_path / "package" / "secret.py")
    (folder / "outside").symlink_to(tmp_path)
    monkeypatch.setattr(plugin_module, "STATIC", folder)
    return folder


def test_chunks_are_kept_by_the_browser_and_the_entry_is_not(
    serve: Callable[..., Server], log: Path, static: Path
) -> None:
    server = serve()
    entry, chunk, style = (
        server.get(f"static/{name}")
        for name in ("index.js", "chart-Ab3_-x9Z.js", "assets/style-12345678.css")
    )
    assert entry.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert entry.headers["Cache-Control"] == "no-cache, must-revalidate"
    assert chunk.text == "chunk"
    assert "max-age=31536000" in chunk.headers["Cache-Control"]
    assert style.headers["Content-Type"] == "text/css; charset=utf-8"
    assert {answer.headers["X-Content-Type-Options"] for answer in (entry, chunk, style)} == {"nosniff"}


@pytest.mark.parametrize(
    "name",
    [
        "../secret.py",
        "..%2fsecret.py",
        "%2e%2e/secret.py",
        "%2e%2e%2fsecret.py",
        "assets/../../secret.py",
        "..\\secret.py",
        "..%5csecret.py",
        "//etc/passwd",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "....//secret.py",
        "index.js%00.css",
        "index.js/",
        "./index.js/../../secret.py",
        "link.js",
        "outside/package/secret.py",
        "assets",
        "assets/",
        "",
        "static/index.js",
        "INDEX.JS",
        "file:///etc/passwd",
        "C:\\Windows\\win.ini",
        "a" * 10_000,
    ],
)
def test_no_name_leads_out_of_the_frontend(
    serve: Callable[..., Server], log: Path, static: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = serve().get(f"static/{name}")
    assert "secret" not in answer.text.replace("secret.py", "")
    assert "root:" not in answer.text
    assert answer.status_code == 404
    # Where the name left our route, TensorBoard notes that it has no such one: no complaint about us.
    caplog.records[:] = [record for record in caplog.records if "not found, sending 404" not in record.msg]


def test_a_frontend_that_is_not_built_says_how_to_build_it(
    serve: Callable[..., Server], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_module, "STATIC", tmp_path / "nothing")
    server = serve()
    entry = server.get("static/index.js")
    assert entry.status_code == 200
    assert "export function render()" in entry.text
    assert "npm run build" in entry.text
    assert any("npm run build" in note for note in server.json("status")["notes"])


def test_status_counts(serve: Callable[..., Server], log: Path) -> None:
    server = serve()
    server.ready(f"report?id={server.only_id()}")
    status = server.json("status")
    assert status["traces"] == 1
    assert status["scanned"] is True
    assert status["cache_bytes"] > 0
    idle = {"queued": 0, "running": 0, "failed": 0}
    eventually(lambda: server.json("status")["jobs"] == idle)
