"""Commands in odd surroundings: outputs that are closed or cannot show all, a deleted directory, Ctrl-C and
other requests to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tb_gpudiag.service.processes.process_setup import worker_environment
from tests.patience import HANGS_S
from tests.report.reports import slow_loader

pytestmark = pytest.mark.slow


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize("close", [">&-", "2>&-"])
@pytest.mark.parametrize("command", ["diagnose", "explain GD101 #"])
def test_a_closed_output_is_no_error(command: str, close: str, tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path)
    shell = f'"{sys.executable}" -m tb_gpudiag {command} "{path}" {close}'.replace(f'# "{path}"', "")
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) is (close == "2>&-")


@pytest.mark.parametrize("output", ["text", "json", "markdown"])
def test_characters_that_a_terminal_cannot_show_are_no_error(output: str, tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tb_gpudiag", "diagnose", "--format", output, str(path)],
        capture_output=True,
        check=False,
        timeout=HANGS_S,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode("ascii" if output == "text" else "utf-8")
    assert "GD101" in shown
    assert output != "json" or json.loads(shown)["reports"]


@pytest.mark.skipif(os.name != "posix", reason="other systems keep a directory that is in use")
@pytest.mark.parametrize("command", ["diagnose .", "hang dump_0"])
def test_a_deleted_working_directory_is_said(command: str, tmp_path: Path) -> None:
    there = tmp_path / "gone"
    there.mkdir()
    shell = f'cd "{there}" && rmdir "{there}" && "{sys.executable}" -m tb_gpudiag {command}'
    done = subprocess.run(
        ["sh", "-c", shell],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
        env=worker_environment(),
    )
    assert done.returncode == 2
    assert "directory" in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="other systems have no SIGINT for another process")
def test_an_interrupt_while_a_command_is_imported_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        "class Interrupting:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'tb_gpudiag.cli.diagnose':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), *sys.path]))}
    done = subprocess.run(
        [sys.executable, "-m", "tb_gpudiag", "diagnose", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


# It is asked to end when the copy has begun. Whoever runs the tests may have their processes ignore that.
ENDED = """
import os, signal, sys
from tb_gpudiag.cli.main import main
from tb_gpudiag.trace.credentials import scrubbed_copy

number = int(sys.argv.pop(1))
signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

def begin(*_):
    yield b"["
    os.kill(os.getpid(), number)
    yield b"]"

scrubbed_copy._cleaned = begin
sys.exit(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_command_that_is_asked_to_end_leaves_no_unfinished_file(name: str, tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path)
    number = str(int(getattr(signal, name)))
    done = subprocess.run(
        [sys.executable, "-c", ENDED, number, "scrub", str(path), "-o", str(tmp_path / "copy.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "gpudiag: interrupted\n")
    assert list(tmp_path.iterdir()) == [path]
