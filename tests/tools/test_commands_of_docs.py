"""Each command that README and documentation show runs as it stands there, on files with the names that they
have there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.builder.nsys import export_of
from tests.conftest import REPOSITORY
from tests.report.reports import slow_loader
from tests.simulator.jobs import DistributedJob, simulate_job
from tests.trace.flight_recorder.dumps import WORLD, entry
from tests.trace.flight_recorder.dumps import write as write_dump

pytestmark = pytest.mark.slow

PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
FOREVER = re.compile(r"gpudiag (demo|serve|mcp)\b")
ELSEWHERE = re.compile(r"s3://|tcp://|--export\b")  # a store, a cluster, a program of NVIDIA
ENDS = {0, 1}
"""Exit statuses: 1 is that of --fail-on."""


def _commands() -> list[str]:
    """The commands with arguments, in blocks and in sentences."""
    found: set[str] = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        shown = re.findall(r"`(gpudiag [a-z]+ [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        for block in re.findall(r"^ *```sh\n(.*?)```", text, re.DOTALL | re.MULTILINE):
            shown += re.findall(r"(?<![\w-])gpudiag [a-z]+(?:\"[^\"\n]*\"|[^#>)\"\n])*", block)
        found |= {re.sub(r"\s+", " ", one).strip() for one in shown}
    return sorted(one for one in found if not FOREVER.match(one) and not ELSEWHERE.search(one))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages speak of."""
    for name in ("before", "after"):
        slow_loader().write(tmp_path / "log" / name)
    for name in ("BEFORE", "AFTER", "base.json", "candidate.json", "TRACE", "PATH"):
        (tmp_path / name).write_bytes(slow_loader().bytes())
    job = simulate_job(DistributedJob("ddp", ranks=2, layers=2, steps=3))
    for name in ("my_job", "my_run"):
        job.write(tmp_path / "log" / name)
    (tmp_path / "demo").symlink_to(REPOSITORY / "demo")
    (tmp_path / "log" / "fixes.jsonl").touch()
    (tmp_path / "logs").mkdir()
    snapshot = SnapshotBuilder()
    snapshot.segment(1 << 20, at=0)
    snapshot.free(snapshot.allocate(1 << 19, at=10, stack=["train.py(4): train"]), at=20)
    written = snapshot.write(tmp_path / "log" / "my_run")
    for name in ("before.pickle", "after.pickle"):
        shutil.copy(written, tmp_path / name)
    for name in ("my_run", "eager", "compiled"):
        export_of(slow_loader().recording).write(tmp_path / f"{name}.sqlite")
    traces = sorted(str(trace) for trace in (tmp_path / "log" / "my_job").rglob("*.json*"))
    captured = TraceBuilder()
    main_thread = captured.thread()
    main_thread.call("hipStreamBeginCapture", at=0, us=5)
    main_thread.op("aten::mm", at=10, us=40).captured("gemm", at=20, us=5)
    main_thread.call("hipStreamEndCapture", at=60, us=5)
    (tmp_path / "CAPTURE").write_bytes(captured.bytes())
    for rank in range(2):
        write_dump(tmp_path / "dumps", rank, [entry("all_reduce", 1)], {WORLD: (0, 1)})
    monkeypatch.setenv("MY_RANKS_TRACE", traces[0])
    monkeypatch.setenv("SHARED", str(tmp_path / "shared"))
    monkeypatch.chdir(tmp_path)
    assert main(["digest", *traces, "-o", "shared/digests"]) == 0
    return tmp_path


def _status(command: str) -> int:
    words = [{"TERM": "headroom"}.get(word, word) for word in shlex.split(os.path.expandvars(command))]
    try:
        return main(words[1:])
    except SystemExit as exit:
        return int(exit.code or 0)


@pytest.mark.usefixtures("work", "in_process")
def test_each_command_runs(capsys: pytest.CaptureFixture[str]) -> None:
    commands = _commands()
    assert len(commands) > 25
    failed = {}
    for command in commands:
        status = _status(command)
        said = capsys.readouterr().err
        if status not in ENDS:
            failed[command] = (status, said)
    assert not failed
