from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import COMMANDS, FIRST, main
from tb_gpudiag.version import __version__
from tests.patience import HANGS_S
from tests.report.reports import slow_loader
from tests.with_each import with_each


def _gpudiag(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tb_gpudiag", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"gpudiag {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["no-such-command"], ["diagnose", "--no-such-option"], ["explain", "a", "b"]]
)
def test_invalid_usage_exits_with_2_and_shows_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: gpudiag" in capsys.readouterr().err


def test_a_path_without_a_command_is_told_of_diagnose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == main(["s3://bucket/run"]) == 2
    assert capsys.readouterr().err.count("`gpudiag diagnose PATH`") == 2


@pytest.mark.parametrize("command", ["diagnose", "explain", "scrub"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert f"usage: gpudiag {command}" in capsys.readouterr().out


def test_help_shows_what_most_people_need_before_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    first, more = capsys.readouterr().out.split("commands:\n")[1].split("\nmore:\n")
    assert [line.split()[0] for line in first.strip().splitlines()] == list(FIRST)
    assert {line.split()[0] for line in more.split("\n\n")[0].splitlines()} == COMMANDS.keys() - FIRST.keys()


@with_each("command", COMMANDS)
def test_every_command_has_a_parser(command: str) -> None:
    assert import_module(f"tb_gpudiag.cli.{command}").parser().prog == f"gpudiag {command}"


@pytest.mark.slow
def test_python_dash_m_is_the_command() -> None:
    done = _gpudiag("explain", "GD101")
    assert done.returncode == 0
    assert "GD101" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no limit of this kind")
def test_too_little_address_space_is_said_before_a_library_crashes(tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path)
    command = f'ulimit -v 600000; "{sys.executable}" -m tb_gpudiag diagnose "{path}"'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "614 MB of address space, which is not enough memory" in line


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path)
    command = [sys.executable, "-m", "tb_gpudiag", "diagnose", "--format", "json", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()
        assert process.wait(60) == 0
    assert complaint == b""


def test_a_bug_exits_with_3_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> str:
        raise KeyError("secret")

    monkeypatch.setattr("tb_gpudiag.report.views.screen.screen_text", broken)
    assert main(["diagnose", str(slow_loader().write(tmp_path)), "--fail-on", "info"]) == 3
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) == 1
    assert "KeyError in test_main.py:" in shown.err
    assert "report this bug" in shown.err
    assert "secret" not in shown.err


def test_an_interrupt_exits_with_130_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tb_gpudiag.report.diagnosis.read_facts", interrupted)
    assert main(["diagnose", str(slow_loader().write(tmp_path))]) == 130
    assert capsys.readouterr().err == "gpudiag: interrupted\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_is_named_as_such(tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tb_gpudiag", "diagnose", str(path)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "bug" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


LINGERS = """
import sys, threading
from tb_gpudiag.report import diagnosis
from tb_gpudiag.cli.main import COMMANDS, main

read = diagnosis.read_facts

def linger(file, *others):
    if "endless" not in file.path:
        return read(file, *others)
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    [timer] = [each for each in timers if not each.finished.is_set()]  # the one before may still end
    threading.Thread(target=timer.function).start()  # now
    while True:
        try:
            threading.Event().wait()
        except Exception:
            pass

diagnosis.read_facts = linger
sys.exit(main(["diagnose", sys.argv[1], "--format", "json"]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_file_that_takes_too_long_costs_only_its_report(tmp_path: Path) -> None:
    for run in ("a", "endless", "z"):
        slow_loader().write(tmp_path / run)
    done = subprocess.run(
        [sys.executable, "-c", LINGERS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert done.returncode == 0
    assert [r["trace"]["run"] for r in json.loads(done.stdout)["reports"]] == ["a", "z"]
    assert "stopped at its time limit of 1200 s" in done.stderr
    assert "GPUDIAG_TIME_LIMIT_S" in done.stderr


@pytest.mark.slow
def test_a_digest_that_takes_too_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUDIAG_TIME_LIMIT_S", "1e-9")
    assert main(["compare", *(str(slow_loader().write(tmp_path / run)) for run in "ab")]) == 2
    assert "stopped at its time limit" in capsys.readouterr().err


EATS = """
import sys, time
import numpy as np
from tb_gpudiag.report import diagnosis
from tb_gpudiag.cli.main import COMMANDS, main
from tb_gpudiag.service.processes import gate, memory_limit

memory_limit.REFUSED_AT = {refused_at}
gate.command_memory_limit_bytes = lambda: memory_limit.memory_bytes() + (100 << 20)
read = diagnosis.read_facts
kept = []

def eat(file, *others):
    if "greedy" not in file.path:
        return read(file, *others)
    mine = []
    while True:
        mine.append(np.ones({items}))
        time.sleep(0.001)

diagnosis.read_facts = eat
sys.exit(main(["diagnose", sys.argv[1], "--format", "json"]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    ("refused_at", "items"),
    [(1000, 1 << 20), (2, 1 << 40)],
    ids=["eats", "gulps"],
)
def test_a_file_that_takes_too_much_memory_costs_only_its_report(
    tmp_path: Path, refused_at: int, items: int
) -> None:
    for run in ("a", "greedy", "z"):
        slow_loader().write(tmp_path / run)
    done = subprocess.run(
        [sys.executable, "-c", EATS.format(refused_at=refused_at, items=items), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert done.returncode == 0
    assert [r["trace"]["run"] for r in json.loads(done.stdout)["reports"]] == ["a", "z"]
    assert "memory limit of" in done.stderr
    assert "GPUDIAG_MEMORY_LIMIT_MB" in done.stderr
    assert "bug" not in done.stderr
