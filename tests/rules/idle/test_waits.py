"""A main thread that sits in one call waits: for a thread, a process, a socket, a file, a lock or a timer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.rules.answer import Finding
from tb_gpudiag.rules.idle import host_bound, input_pipeline
from tb_gpudiag.rules.verdict import find_verdict
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import facts_of, figures, finding, findings, is_clear
from tests.with_each import with_each

STEP_US = 100_000.0
WAIT_US = 80_000.0


def _waits(
    name: str, *, function: str = "train_step", steps: int = 4, devices: tuple[str, ...] = ()
) -> tuple[TraceBuilder, list[float]]:
    """Build steps of 100 ms on the CPU, of which the main thread sits in one call for 80 ms; also return when
    the waits begin."""
    trace = TraceBuilder(devices=devices)
    main = trace.thread()
    for step in range(steps):
        at = step * STEP_US
        main.step(step, at=at, us=STEP_US).frame("train.py(12): main", at=at, us=STEP_US)
        main.frame(f"train.py(30): {function}", at=at + 1, us=WAIT_US + 5)
        main.frame(name, at=at + 2, us=WAIT_US)
        main.frame("<built-in method acquire of _thread.lock object at 0x7fe1>", at=at + 3, us=WAIT_US - 2)
        main.op("aten::mm", at=at + WAIT_US + 10, us=STEP_US - WAIT_US - 10)
    return trace, [step * STEP_US + 2 for step in range(steps)]


def _works(trace: TraceBuilder, waits: list[float], *names: str, wakes: str = "queue.py(122): put") -> None:
    """Add a thread that does this during the waits, and ends them."""
    other = trace.thread()
    for at in waits:
        for inner, name in enumerate(names):
            other.frame(name, at=at + inner, us=WAIT_US - 20 - 2 * inner)
        other.frame(wakes, at=at + WAIT_US - 15, us=10)


@with_each(
    ("name", "what"),
    [
        ("queue.py(154): get", "another thread"),
        ("concurrent/futures/_base.py(428): result", "another thread"),
        ("threading.py(1087): join", "another thread"),
        ("subprocess.py(506): run", "a child process"),
        ("<built-in function waitpid>", "a child process"),
        ("multiprocessing/queues.py(98): get", "a child process"),
        ("<built-in method recv of socket object at 0x7f67>", "a socket"),
        ("<built-in method poll of select.epoll object at 0x7f9d>", "a socket"),
        ("<built-in method acquire of _thread.lock object at 0x7f12>", "a lock"),
    ],
)
def test_a_thread_that_sits_in_a_call_waits(name: str, what: str, tmp_path: Path) -> None:
    facts = facts_of(_waits(name)[0], tmp_path)
    found = finding(host_bound.RULE.check(facts))
    assert found.title == f"Waiting for {what} takes 80.0% of the main thread's time"
    assert found.cost_ns == 4 * WAIT_US * 1_000
    assert found.places[0].function == "train_step"
    verdict = find_verdict(facts)
    assert verdict.limiter == "waiting"
    assert f"The main thread was waiting for {what}." in verdict.sentence


def test_a_gpu_waits_for_what_the_main_thread_waits_for(tmp_path: Path) -> None:
    trace, waits = _waits("<built-in function waitpid>", devices=("GPU",))
    main = trace.thread(tid=trace.recording.pid)
    for at in waits:
        main.launch("gemm", at=at + WAIT_US + 20, us=5, runs_at=at + WAIT_US + 30, runs_us=19_000)
    facts = facts_of(trace, tmp_path)
    assert finding(host_bound.RULE.check(facts)).title.startswith("Waiting for a child process keeps the GPU")
    assert facts.gpu.ledger.by_cause(facts.window)[Cause.WAITING] >= 3 * WAIT_US * 1_000
    verdict = find_verdict(facts)
    assert verdict.limiter == "waiting"
    assert "The main thread was waiting for a child process." in verdict.sentence


def test_the_thread_that_ends_the_wait_is_shown_and_not_one_that_waits_as_well_or_works_on_its_own(
    tmp_path: Path,
) -> None:
    trace, waits = _waits("queue.py(154): get")
    _works(trace, waits, "simulate.py(3): play")
    _works(trace, waits, "monitor.py(9): run", wakes="monitor.py(10): beat")
    trace.thread().frame("threading.py(295): wait", at=0, us=4 * STEP_US)
    facts = facts_of(trace, tmp_path)
    assert _meanwhile(finding(host_bound.RULE.check(facts))) == ["play (simulate.py, defined at line 3)"]
    assert "and the other thread was mostly in play (simulate.py" in find_verdict(facts).sentence


def test_the_thread_that_holds_the_lock_is_shown(tmp_path: Path) -> None:
    trace, waits = _waits("<built-in method acquire of _thread.lock object at 0x7f12>")
    _works(trace, waits, "metrics.py(3): publish", wakes="metrics.py(9): rest")
    held = _meanwhile(finding(host_bound.RULE.check(facts_of(trace, tmp_path))))
    assert held[0] == "publish (metrics.py, defined at line 3)"


@with_each(
    ("name", "fix"),
    [
        ("subprocess.py(506): run", "Keep one process running"),
        ("multiprocessing/pool.py(774): get", "Ask the process for the next result"),
        ("<built-in method recv of socket object at 0x7f67>", "in one request"),
        ("<built-in function flock>", "Hold the lock for a shorter time"),
        ("<built-in method tensor of type object at 0x7f20>", "Make one array of them first"),
    ],
)
def test_the_fix_fits_the_call(name: str, fix: str, tmp_path: Path) -> None:
    found = finding(host_bound.RULE.check(facts_of(_waits(name)[0], tmp_path)))
    assert fix in found.fix.text
    assert "DataLoader" not in found.fix.code


@pytest.mark.parametrize("name", ["PIL/Image.py(2332): resize", "data.py(5): make_batch"])
def test_a_wait_for_a_thread_that_makes_batches_is_data_loading(name: str, tmp_path: Path) -> None:
    trace, waits = _waits("queue.py(154): get")
    _works(trace, waits, "worker.py(2): run", name)
    facts = facts_of(trace, tmp_path)
    found = finding(input_pipeline.RULE.check(facts))
    assert found.title == "Data loading takes 80.0% of the main thread's time"
    assert _meanwhile(found)
    assert is_clear(host_bound.RULE.check(facts))
    assert find_verdict(facts).limiter == "input"


def test_a_wait_for_a_thread_that_waits_for_a_process_is_one_for_the_process(tmp_path: Path) -> None:
    """As the thread of a pool of processes does."""
    trace, waits = _waits("concurrent/futures/_base.py(428): result")
    wakes = "concurrent/futures/_base.py(540): set_result"
    _works(trace, waits, "concurrent/futures/process.py(340): run", wakes=wakes)
    found = finding(host_bound.RULE.check(facts_of(trace, tmp_path)))
    assert found.title == "Waiting for a child process takes 80.0% of the main thread's time"


def test_a_wait_in_a_function_that_gets_a_batch_is_data_loading(tmp_path: Path) -> None:
    trace, _ = _waits("<built-in method recv of socket object at 0x7f67>", function="get_batch")
    facts = facts_of(trace, tmp_path)
    found = finding(input_pipeline.RULE.check(facts))
    assert found.places[0].function == "get_batch"
    assert "Waiting for a socket" in figures(found)
    assert "in one request" in found.fix.text
    assert "DataLoader" not in found.fix.code
    verdict = find_verdict(facts)
    assert verdict.limiter == "input"
    assert "waiting for a socket" in verdict.sentence


def test_what_calls_operators_does_not_wait(tmp_path: Path) -> None:
    """A process of a pool runs inside the frames of the pool."""
    trace, _ = _waits("concurrent/futures/process.py(340): run")
    trace.thread(tid=trace.recording.pid).op("aten::mm", at=10, us=WAIT_US - 20)
    found = findings(host_bound.RULE.check(facts_of(trace, tmp_path)))
    assert found[0].title.startswith("Waiting for a child process")
    assert found[0].cost_ns == 3 * WAIT_US * 1_000


def test_a_functions_name_says_nothing_in_an_installed_package(tmp_path: Path) -> None:
    trace, _ = _waits("queue.py(154): get")
    trace.thread(tid=trace.recording.pid).frame("ray/data.py(3): get_batch", at=1, us=WAIT_US + 5)
    assert findings(host_bound.RULE.check(facts_of(trace, tmp_path)))


def test_time_in_a_task_belongs_to_it_with_the_operators_and_waits_in_it(tmp_path: Path) -> None:
    trace, _ = _waits("<built-in method write of _io.BufferedWriter object at 0x7f68>")
    main = trace.thread(tid=trace.recording.pid)
    for step in range(4):
        main.annotation("[pl][profile]save_checkpoint", at=step * STEP_US + 1.5, us=WAIT_US + 2)
    facts = facts_of(trace, tmp_path)
    found = finding(host_bound.RULE.check(facts))
    assert found.title == "Saving files takes 80.0% of the main thread's time"
    assert find_verdict(facts).limiter == "python"


def test_recorded_collections_are_no_part_of_what_they_interrupt(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(4):
        at = step * STEP_US
        main.step(step, at=at, us=STEP_US).frame("train.py(12): main", at=at, us=STEP_US)
        main.frame("torch/serialization.py(945): save", at=at + 10, us=90_000)
        main.frame("Python GC", at=at + 100, us=88_000)
        main.op("aten::mm", at=at + 91_000, us=9_000)
    found = findings(host_bound.RULE.check(facts_of(trace, tmp_path)))
    assert [one.title.split(" takes")[0] for one in found] == ["Garbage collection", "Saving files"]
    assert found[0].cost_ns == 4 * 88_000_000


def _meanwhile(found: Finding) -> list[str]:
    label = "Meanwhile, in the other thread: "
    return [name.removeprefix(label) for name in figures(found) if name.startswith(label)]


@pytest.mark.parametrize("workers", [0, 2])
def test_items_that_wait_for_a_socket_are_asked_for_at_once_where_no_worker_waits_for_them(
    workers: int, tmp_path: Path
) -> None:
    """The socket is read as a file, which `makefile` made of it."""
    trace, waits = _waits("<built-in method read of _io.BufferedReader object at 0x7f09>", function="get")
    main = HostThread(trace, trace.recording.host[0].thread)
    for at in waits:
        main.frame("<built-in method recv_into of socket object at 0x7f67>", at=at + 10, us=WAIT_US - 20)
        main.loader(at=at - 1.5, us=WAIT_US + 6, workers=workers)
    found = finding(input_pipeline.RULE.check(facts_of(trace, tmp_path)))
    assert ("in one request" in found.fix.text) == (not workers)
    assert ("Waiting for a socket" in figures(found)) == (not workers)
