"""Child processes: messages arrive whole, and whoever asks gets an answer or an error."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tb_gpudiag.errors import Defect, LimitReached, NotATrace, ProcessFailed
from tb_gpudiag.service.processes import child as child_module
from tb_gpudiag.service.processes.child import (
    Child,
    ChildEnded,
    ChildMessage,
    MessageKind,
    error_in,
    of_error,
    take,
)
from tb_gpudiag.service.processes.process_setup import worker_environment
from tests.service.helpers import children, eventually, is_alive
from tests.with_each import with_each

LONG = 3 << 20


def test_messages_survive_a_round_trip_however_they_arrive() -> None:
    sent = [
        ChildMessage({"where": "/é/\udcff", "of": [1.5, None]}, kind=MessageKind.REQUEST),
        ChildMessage({"share": 0.5, "stage": "reading"}, kind=MessageKind.PROGRESS),
        ChildMessage(content=os.urandom(300), kind=MessageKind.PIECE),
    ]
    received, found = bytearray(), []
    for byte in b"".join(message.packed() for message in sent):
        received.append(byte)
        if (message := take(received)) is not None:
            found.append(message)
    assert found == sent
    assert not received


def test_errors_survive_a_round_trip() -> None:
    error = NotATrace("what\nnow", where="/a/ü\udcff", remedy="r")
    found = error_in(of_error(error))
    assert (type(found), str(found)) == (NotATrace, str(error))


@with_each("kind", ["os", "GpudiagError", "__import__", "TraceError", "Nonsense"])
def test_an_error_of_unknown_kind_is_still_an_error(kind: str) -> None:
    fields = {"error": kind, "what": "w", "where": "", "remedy": ""}
    assert error_in(ChildMessage(fields)).what == "w"


@pytest.mark.parametrize("noise", [b"no message, but text of a library", b"\xff" * 100])
def test_what_is_no_message_is_refused(noise: bytes) -> None:
    with pytest.raises(ValueError, match="message"):
        take(bytearray(noise))


slow = pytest.mark.slow  # starts processes


@pytest.fixture
def acting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Child]]:
    """Make children that act like this on each request."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made: list[Child] = []

    def make(act: str, **options: float) -> Child:
        script = f"""
            import os, sys, time
            from tb_gpudiag.errors import NotATrace
            from tb_gpudiag.service.processes.child import ChildMessage

            def answer(request, reply):
                fields = request
                {act}
                return ChildMessage({{"pid": os.getpid()}})
        """
        (tmp_path / "acting.py").write_text(textwrap.dedent(script))
        made.append(Child("acting", **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.stop()


@slow
def test_one_process_answers_many_requests_of_any_length(acting: Callable[..., Child]) -> None:
    here = acting("reply.piece(bytes(fields['size'])); reply.progress(2.0, 'x' * fields['size'])")
    pids = set()
    for size in (1, LONG, 1):
        piece, progress, answer = here.messages({"size": size, "more": "x" * size})
        assert len(piece.content) == len(progress.fields["stage"]) == size
        assert progress.fields["share"] == 1.0
        pids.add(answer.fields["pid"])
    assert len(pids) == 1
    here.stop()
    eventually(lambda: not is_alive(pids.pop()))


@slow
def test_after_an_error_the_process_answers_the_next_request(acting: Callable[..., Child]) -> None:
    here = acting("if fields.get('bad'): raise NotATrace('no trace', remedy='give another')")
    pid = here.ask({}).fields["pid"]
    with pytest.raises(NotATrace, match="give another"):
        here.ask({"bad": True})
    assert here.ask({}).fields["pid"] == pid


@slow
def test_a_bug_is_reported_by_its_place_and_its_trace_is_kept(acting: Callable[..., Child]) -> None:
    here = acting("raise KeyError('terces'[::-1])")
    with pytest.raises(Defect, match=r"KeyError in acting\.py") as raised:
        here.ask({"where": "/the/file"})
    assert raised.value.where == "/the/file"
    here.stop()
    assert b"acting.py" in here.last_output
    assert "secret" not in str(raised.value) + here.last_output.decode()


@slow
def test_output_of_a_library_is_no_message(acting: Callable[..., Child]) -> None:
    here = acting("print('x' * 1_000_000, flush=True); sys.stderr.write('y' * 1_000_000)")
    assert here.ask({}).fields["pid"] in children()


@slow
@pytest.mark.parametrize(
    ("act", "how"), [("os._exit(3)", "exit code 3"), ("os.kill(os.getpid(), 11)", "signal 11")]
)
def test_a_process_that_ends_is_replaced(acting: Callable[..., Child], act: str, how: str) -> None:
    here = acting(f"reply.piece(b'x'); fields.get('end') and {act}")
    with pytest.raises(ChildEnded, match=how):
        here.ask({"end": True})
    here.ask({})


@slow
@pytest.mark.parametrize("before", ["", "reply.progress(0.5, 'working'); "])
def test_a_process_that_takes_too_long_is_killed(acting: Callable[..., Child], before: str) -> None:
    here, others = acting(f"{before}time.sleep(600)"), children()
    with pytest.raises(TimeoutError):
        here.ask({}, within_s=0.5)
    assert children() == others


@slow
def test_killing_it_from_another_thread_ends_the_wait(acting: Callable[..., Child]) -> None:
    here = acting("reply.progress(0.5, 'working'); time.sleep(600)")
    said = here.messages({})
    assert next(said).fields["stage"] == "working"
    threading.Timer(0.05, here.close).start()
    with pytest.raises(ChildEnded, match="signal 9"):
        next(said)
    with pytest.raises(ChildEnded):  # it is closed
        here.ask({})


@slow
def test_who_stops_listening_ends_the_process(acting: Callable[..., Child]) -> None:
    here, others = acting("while True: reply.piece(b'x' * 100_000)"), children()
    said = here.messages({})
    next(said)
    said.close()  # type: ignore[attr-defined]
    assert children() == others


@slow
def test_a_process_over_its_memory_limit_says_so_and_ends(acting: Callable[..., Child]) -> None:
    eat = "kept = [(b'x' * (1 << 20), time.sleep(0.001)) for _ in range(fields['mib'])]"
    here = acting(f"reply.bound_memory(200 << 20); {eat}")
    with pytest.raises(LimitReached, match="memory limit of 200 MB"):
        here.ask({"mib": 100_000})
    assert here.ask({"mib": 1}).fields["pid"] in children()


@slow
def test_a_process_exits_when_nobody_asks_for_a_while(acting: Callable[..., Child]) -> None:
    here = acting("pass", idle_s=1.0)
    pid = here.ask({}).fields["pid"]
    eventually(lambda: not is_alive(pid))
    assert here.ask({}).fields["pid"] != pid


@slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_a_process_that_has_exited_leaves_no_zombie(acting: Callable[..., Child]) -> None:
    pid = acting("pass", idle_s=0.01).ask({}).fields["pid"]
    eventually(lambda: pid not in children())


@slow
def test_it_exits_when_stdin_ends(acting: Callable[..., Child]) -> None:
    """This works on every system, without the signal that Linux sends."""
    acting("reply.progress(0.5, 'working'); time.sleep(600)")
    command = [*child_module.PROGRAM, "acting", "0", "0", "0"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=worker_environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(ChildMessage({}, kind=MessageKind.REQUEST).packed())
        assert process.stdout.read(1)
        process.stdin.close()
        assert process.wait(60) == 0


@slow
def test_a_process_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "PROGRAM", ("/nonexistent/python",))
    with pytest.raises(ProcessFailed, match="No process could be started: No such file") as raised:
        Child("any").ask({"where": "/the/file"})
    assert raised.value.where == "/the/file"


@slow
def test_it_lowers_its_priority_before_it_imports_anything(
    acting: Callable[..., Child], tmp_path: Path
) -> None:
    here = acting("pass", nice=7)
    source = (tmp_path / "acting.py").read_text()
    (tmp_path / "acting.py").write_text(
        f"import os\nassert os.nice(0) == {min(os.nice(0) + 7, 19)}\n{source}"
    )
    here.ask({})


@slow
def test_hundreds_of_open_files_are_no_hindrance(acting: Callable[..., Child]) -> None:
    """TensorBoard has an open file for each event file."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most < 1300:
        pytest.skip("few files may be open here")
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        acting("pass").ask({})
    finally:
        for descriptor in held:
            os.close(descriptor)


def test_one_thread_watches_a_process_that_has_had_several_limits() -> None:
    """A program may run many commands: threads that wake up 20 times a second must not add up."""
    script = """
        import sys, threading
        from tb_gpudiag.service.processes.memory_limit import limit_memory
        told = threading.Event()
        for _ in range(5):
            limit_memory(1 << 60, lambda: sys.exit("not this limit"))
        limit_memory(1, told.set)
        assert told.wait(60)
        print(threading.active_count())
    """
    run = [sys.executable, "-c", textwrap.dedent(script)]
    ended = subprocess.run(run, check=True, capture_output=True, text=True, env=worker_environment())
    assert ended.stdout.split() == ["2"]
