"""Invalid and malicious requests are refused with a reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin.server import BASE, Server
from tests.service.helpers import eventually

pytestmark = pytest.mark.slow

ROUTES = [
    "traces",
    "report",
    "timeline",
    "memory",
    "gap",
    "find",
    "event",
    "range",
    "export",
    "operators",
    "callTree",
    "rule",
    "cancel",
    "status",
    "static/index.js",
]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_only_get_is_answered(diagnosed: Server, method: str) -> None:
    for route in ROUTES:
        answer = diagnosed.client.open(f"{BASE}/{route}", method=method)
        assert answer.status_code == 405
        assert answer.headers["Allow"] == "GET"


BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this machine
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},  # a frame in a page of that site
        {"Origin": "https://other.example"},
        {"Origin": "null"},
    ],
    ids=str,
)
def test_pages_of_other_sites_are_refused(diagnosed: Server, headers: dict[str, str]) -> None:
    for route in ROUTES[:-1] if "Origin" in headers else ROUTES:
        answer = diagnosed.get(route, headers=BROWSER | headers)
        assert (answer.status_code, "of another site" in answer.get_data(as_text=True)) == (403, True)
        assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"User-Agent": "curl/8.5.0"},
        BROWSER,  # an old one, or the address is neither local nor encrypted
        BROWSER | {"Sec-Fetch-Site": "same-origin"},
        BROWSER | {"Sec-Fetch-Site": "none"},  # the user typed the address
        # A frame in a notebook, behind a proxy that changed the host.
        BROWSER
        | {
            "Sec-Fetch-Site": "same-origin",
            "Host": "gpu7:6006",
            "Referer": "https://hub.example/user/a/proxy/6006/",
        },
        BROWSER | {"Origin": "http://localhost"},
    ],
    ids=str,
)
def test_the_tab_and_scripts_may_ask(diagnosed: Server, headers: dict[str, str]) -> None:
    assert diagnosed.get("status", headers=headers).status_code == 200


def test_modules_load_behind_a_proxy_that_changes_the_host(diagnosed: Server) -> None:
    headers = BROWSER | {"Origin": "http://gateway.example", "Host": "gpu7:6006"}
    assert diagnosed.get("static/index.js", headers=headers).status_code == 200


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
def test_an_id_that_is_not_in_the_list_leads_nowhere(diagnosed: Server, id_: str) -> None:
    diagnosed.only_id()
    for route in (
        "report?",
        "timeline?",
        "memory?",
        "gap?device=0&gap=0&",
        "operators?",
        "calls?key=0&",
        "job?",
    ):
        answer = diagnosed.get(f"{route}id={id_}")
        assert answer.status_code == 404
        assert json.loads(answer.data)["what"] == "The log directory has no such trace."
        assert "passwd" not in answer.get_data(as_text=True)


def test_a_trace_that_is_gone_is_a_state(serve: Callable[..., Server], log: Path) -> None:
    server = serve()
    id_ = server.only_id()
    shutil.rmtree(log)
    eventually(lambda: not server.json("traces")["traces"])
    for route in ("report", "timeline", "job"):
        state = server.json(f"{route}?id={id_}")
        assert (state["state"], state["error"]["what"]) == ("failed", "The log directory has no such trace.")


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
def test_an_invalid_slice_is_refused_with_a_reason(diagnosed: Server, query: str) -> None:
    id_ = diagnosed.only_id()
    for route in ("timeline", "memory"):
        answer = diagnosed.get(f"{route}?{query.format(id=id_)}")
        assert answer.status_code == 400
        assert json.loads(answer.data)["what"]


@pytest.mark.parametrize("device", ["", "x", "-2", "1.5", "0x0", "9" * 10_000, "3"])
def test_memory_of_an_unknown_device_is_refused(diagnosed: Server, device: str) -> None:
    id_ = diagnosed.only_id()
    answer = diagnosed.get(f"memory?id={id_}&device={device}")
    assert answer.status_code == 400
    assert set(json.loads(answer.data)) == {"what", "where", "remedy"}


@pytest.mark.parametrize(
    "query", ["", "device=0", "gap=0", "device=x&gap=0", "device=0&gap=-1", "device=0&gap=1.5"]
)
def test_an_invalid_gap_is_refused(diagnosed: Server, query: str) -> None:
    assert diagnosed.get(f"gap?id={diagnosed.only_id()}&{query}").status_code == 400


@pytest.mark.parametrize(
    "route",
    [
        "operators?group=x&",
        "operators?kind=x&",
        "operators?sort=x&",
        "operators?limit=0&",
        "operators?limit=9999&",
        "kernels?sort=x&",
        "calls?",
        "calls?key=-1&",
        "calls?key=999999&",
        "callTree?weight=x&",
        "callTree?root=999999&",
    ],
)
def test_tables_that_there_are_not_are_refused(diagnosed: Server, route: str) -> None:
    id_ = diagnosed.only_id()
    assert diagnosed.get(f"{route}id={id_}").status_code == 400


def test_an_unknown_gap_is_refused(diagnosed: Server) -> None:
    id_ = diagnosed.only_id()
    assert diagnosed.get(f"gap?id={id_}&device=0&gap=4000").status_code == 400
    assert diagnosed.get(f"gap?id={id_}&device=7&gap=0").status_code == 400


@pytest.mark.parametrize(
    "query", ["", "id=", "id=GD000", "id=../rules/input_pipeline.md", "id=%00", "id=" + "a" * 10_000]
)
def test_an_unknown_rule_is_refused(diagnosed: Server, query: str) -> None:
    answer = diagnosed.get(f"rule?{query}")
    assert answer.status_code == 400
    problem = json.loads(answer.data)
    assert (set(problem), problem["where"]) == ({"what", "where", "remedy"}, "id")


def test_numbers_beyond_the_trace_are_answered(diagnosed: Server) -> None:
    id_ = diagnosed.only_id()
    for route in ("timeline", "memory"):
        assert diagnosed.json(f"{route}?id={id_}&start_us=-1e300&end_us=1e300")["state"] == "ready"
