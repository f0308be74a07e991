"""No answer for a coding assistant has a credential of the file, nor what is cached, whatever kind it is."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tb_gpudiag.cli.assistant import Assistant
from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.service.service import Service
from tb_gpudiag.service.settings import Settings
from tests.trace.credentials.planted_files import FILES, SECRET, with_trace

pytestmark = pytest.mark.slow

OF_A_TRACE = (
    *("gaps", "kernels", "launches", "memory", "collectives", "job", "job_collectives"),
    *("clock", "hang"),
)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("kind", FILES)
def test_no_answer_has_a_credential(kind: str, tmp_path: Path) -> None:
    log, cache = tmp_path / "log", tmp_path / "cache"
    log.mkdir()
    with_trace(kind, log)
    for path in log.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))  # a new file might still grow
    with closing(Service([Root(str(log))], Settings(cache))) as service:
        answers = dict(_answers(Assistant(service, wait_s=60)))
    assert [name for name, answer in answers.items() if SECRET in answer] == []
    assert any("[removed]" in answer for answer in answers.values()), "nothing of the file is shown"
    for path in cache.rglob("*"):
        if path.is_file():
            assert all(SECRET.encode() not in part for part in _unpacked(path.read_bytes())), path


def _answers(assistant: Assistant) -> Iterator[tuple[str, str]]:
    listed = assistant.list_runs()
    [row] = listed["traces"]
    trace = row["trace"]
    found = assistant.diagnose(trace)
    for number in range(len(found["findings"])):
        yield f"finding {number}", json.dumps(assistant.explain_finding(trace, number))
    yield from (("list_runs", json.dumps(listed)), ("diagnose", json.dumps(found)))
    for question in OF_A_TRACE:
        yield question, _said(assistant, question, trace)
    yield "gap", _said(assistant, "gap", trace, 0, 0)
    yield "compare", _said(assistant, "compare", trace, trace)


def _said(assistant: Assistant, question: str, *about: str | int) -> str:
    """What is answered; the error, if a trace of this kind has no answer."""
    try:
        return json.dumps(getattr(assistant, question)(*about))
    except GpudiagError as error:
        return str(error)


def _unpacked(content: bytes) -> Iterator[bytes]:
    """The content of a file, and what is packed in it."""
    yield content
    for start in re.finditer(rb"\x1f\x8b\x08", content):
        with suppress(zlib.error):  # those bytes were no start of gzip
            yield zlib.decompressobj(wbits=31).decompress(content[start.start() :])
