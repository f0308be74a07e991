"""Files dropped on the page: who may send them, how many, and what becomes of them."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from tb_gpudiag.errors import UsageError
from tb_gpudiag.pages import server
from tb_gpudiag.pages.server import TOKEN_HEADER, DropBox, PageServer, safe_name
from tests.report.reports import slow_loader
from tests.with_each import with_each


class Dropping:
    """A box, and a browser that shows its page."""

    def __init__(self) -> None:
        self.box = DropBox()
        self.client = Client(self.box.receive)
        self.token = self.box.head.partition('content="')[2].partition('"')[0]

    def drop(self, content: bytes | None, name: str = "a.1.pt.trace.json", **more: Any) -> TestResponse:
        headers = {TOKEN_HEADER: self.token, **more.pop("headers", {})}
        query = {"name": name, "drop": "7"}
        return self.client.post("/drop", data=content, query_string=query, headers=headers, **more)

    def kept(self) -> list[str]:
        return sorted(str(path.relative_to(self.box.log)) for path in self.box.log.rglob("*.*"))


@pytest.fixture
def dropping() -> Iterator[Dropping]:
    made = Dropping()
    yield made
    made.box.close()


@pytest.fixture
def trace(tmp_path: Path) -> bytes:
    return Path(slow_loader().write(tmp_path)).read_bytes()


def test_a_trace_is_taken_and_gone_at_the_end(dropping: Dropping, trace: bytes) -> None:
    assert "Drop a trace here" in dropping.box.page
    assert dropping.drop(gzip.compress(trace), "a.1.pt.trace.json.gz").status_code == 200
    assert dropping.kept() == ["dropped_1/a.1.pt.trace.json.gz"]
    assert not dropping.box.is_empty
    log = dropping.box.log
    dropping.box.close()
    assert not log.exists()


def test_files_of_one_drop_are_one_run(dropping: Dropping, trace: bytes) -> None:
    for rank in (0, 1):
        assert dropping.drop(trace, f"rank{rank}.1.pt.trace.json").status_code == 200
    assert dropping.kept() == ["dropped_1/rank0.1.pt.trace.json", "dropped_1/rank1.1.pt.trace.json"]


@pytest.mark.parametrize("token", ["", "guessed", "ü"])
def test_only_the_page_itself_may_send_files(dropping: Dropping, trace: bytes, token: str) -> None:
    answer = dropping.drop(trace, headers={TOKEN_HEADER: token.encode("utf-8").decode("latin-1")})
    assert answer.status_code == 403
    assert dropping.kept() == []


def test_reading_the_address_takes_nothing(dropping: Dropping) -> None:
    assert dropping.client.get("/drop", headers={TOKEN_HEADER: dropping.token}).status_code == 403


def test_what_is_no_trace_is_refused_and_not_kept(dropping: Dropping) -> None:
    for name, content in (
        ("a.json", b'{"a": 1}'),
        ("a.exe", b"MZ"),
        ("a.pickle", b"cos\n"),
    ):
        answer = dropping.drop(content, name)
        assert answer.status_code == 415, name
    assert dropping.kept() == []


def test_a_file_that_is_too_large_is_refused_before_it_is_read(
    dropping: Dropping, trace: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LARGEST_BYTES", len(trace) - 1)
    assert dropping.drop(trace).status_code == 413
    monkeypatch.setattr(server, "LARGEST_BYTES", len(trace))
    monkeypatch.setattr(server, "MOST_BYTES", 2 * len(trace) - 1)
    assert dropping.drop(trace).status_code == 200
    assert dropping.drop(trace, "b.1.pt.trace.json").status_code == 413
    assert dropping.kept() == ["dropped_1/a.1.pt.trace.json"]


def test_a_file_without_a_length_is_refused(dropping: Dropping, trace: bytes) -> None:
    answer = dropping.drop(None, input_stream=io.BytesIO(trace), headers={"Transfer-Encoding": "chunked"})
    assert answer.status_code == 413


def test_a_file_that_arrives_in_part_is_not_kept(dropping: Dropping, trace: bytes) -> None:
    answer = dropping.drop(
        None, input_stream=io.BytesIO(trace[:-9]), environ_overrides={"CONTENT_LENGTH": str(len(trace))}
    )
    assert answer.status_code == 415
    assert "as a whole" in answer.get_data(as_text=True)
    assert dropping.kept() == []


def test_a_second_file_of_one_name_does_not_replace_the_first(dropping: Dropping, trace: bytes) -> None:
    assert dropping.drop(trace).status_code == 200
    assert dropping.drop(trace + b" ").status_code == 415
    assert (dropping.box.log / dropping.kept()[0]).read_bytes() == trace


@with_each(
    ("sent", "kept"),
    [
        ("../../etc/x.json", "x.json"),
        ("C:\\logs\\x.json", "x.json"),
        ("..", "dropped.json"),
        ("", "dropped.json"),
        (".hidden.json", "hidden.json"),
        ("<img src=x>.json", "_img_src_x_.json"),
        ("a\0b\n.json", "a_b_.json"),
        ("ä" * 300 + ".json", "_.json"),
    ],
)
def test_names_are_names_and_nothing_else(sent: str, kept: str) -> None:
    assert safe_name(sent) == kept


def test_a_long_name_keeps_its_end() -> None:
    assert safe_name("x" * 500 + ".pt.trace.json.gz").endswith("x.pt.trace.json.gz")
    assert len(safe_name("x" * 500)) == 120


def test_other_machines_may_not_drop_files() -> None:
    with pytest.raises(UsageError, match="this machine only"):
        PageServer(None, host="0.0.0.0")
