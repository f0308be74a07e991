"""Names of a trace in sentences stand in quotes, and elsewhere in fields of their own: in every report and
answer. A marker in every name of a trace shows where one does not."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.cli.assistant import Assistant
from tb_gpudiag.report.diagnosis import diagnose_file
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.service.service import Service
from tb_gpudiag.service.settings import Settings
from tb_gpudiag.trace.files.find import find_traces
from tests.report.views.formats import to_markdown
from tests.simulator import simulate

pytestmark = pytest.mark.slow

MARK = "M4RK"
# Together they have evidence with names of functions, frames, operators, kernels, modules and devices.
SCENARIOS = ("allocator_in_step", "compilation_in_step", "launch_bound", "leak_hooks", "uneven_steps")
# Fields of reports and answers that are a name, or a place made of names.
NAMES = {
    *("name", "file", "function", "module", "operator", "range", "key", "stack", "run", "worker", "span"),
    *("path", "host", "place", "where", "kernel", "operators", "category"),
}
_FRAME = re.compile(r"(?P<file>[^/]*)(?P<line>\(\d+\): )(?P<function>.*)")
_SHOWN_AS_NAMES = re.compile("“[^“”]*”|`[^`]*`")
# A marker would make these another call, or another kind of event.
_KNOWN = re.compile(
    r"cuda|aten::|autograd::|Memcpy|Memset|ProfilerStep|enumerate|Optimizer|Torch|\[memory]|Call Compiled"
)


def marked(content: bytes, *, known_too: bool) -> bytes:
    """Return the trace with the marker in every name. known_too: in those that a diagnosis knows, too."""
    document = json.loads(content)
    for device in document.get("deviceProperties", []):
        device["name"] += f" {MARK}"
    for event in document["traceEvents"]:
        named = event.get("args", {}) if event["ph"] == "M" else event
        name = named.get("name")
        if isinstance(name, str) and name != "[memory]" and (known_too or not _KNOWN.match(name)):
            frame = _FRAME.sub(rf"{MARK}_\g<file>\g<line>\g<function>_{MARK}", name)
            named["name"] = frame if frame != name else f"{name} {MARK}"
    return json.dumps(document).encode()


def bare(text: str) -> bool:
    return MARK in _SHOWN_AS_NAMES.sub("", text)


def bare_texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """The texts with a bare marker that are no names."""
    if isinstance(value, dict):
        cells_are_names = "texts" in value and value["kind"] in ("code", "name")
        for key, one in value.items():
            if key == "texts" and cells_are_names:
                continue
            if bare(key):
                yield field, key
            yield from bare_texts(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from bare_texts(one, field)
    elif isinstance(value, str) and field not in NAMES and bare(value):
        yield field, value


def written(folder: Path, scenario: str, *, known_too: bool) -> Path:
    path = folder / scenario / "host_1.1.pt.trace.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(marked(simulate(scenario).bytes(), known_too=known_too))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


@pytest.mark.parametrize("known_too", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_reports_and_their_exports(scenario: str, tmp_path: Path, known_too: bool) -> None:
    report = diagnose_file(find_traces(str(written(tmp_path, scenario, known_too=known_too))).files[0])
    document = to_dict(report)
    assert MARK in json.dumps(document)
    assert list(bare_texts(document)) == []
    assert [line for line in to_markdown([report]).splitlines() if bare(line)] == []


@pytest.mark.usefixtures("in_process")
def test_answers_to_an_assistant(tmp_path: Path) -> None:
    for scenario in ("allocator_in_step", "leak_hooks"):
        written(tmp_path / "log", scenario, known_too=False)
    with closing(Service([Root(str(tmp_path / "log"))], Settings(tmp_path / "cache"))) as service:
        assistant = Assistant(service, wait_s=60)
        one, other = (row["trace"] for row in assistant.list_runs()["traces"])
        answers = [assistant.list_runs(), assistant.compare(one, other)]
        for trace in (one, other):
            found = assistant.diagnose(trace)
            answers += [
                found,
                *(ask(trace) for ask in (assistant.gaps, assistant.kernels, assistant.launches)),
            ]
            answers += [assistant.memory(trace), assistant.gap(trace, 0, 0)]
            answers += [assistant.explain_finding(trace, row["finding"]) for row in found["findings"]]
    assert MARK in json.dumps(answers)
    assert list(bare_texts(answers)) == []
