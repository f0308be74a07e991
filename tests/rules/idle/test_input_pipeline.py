from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.doubts import corrected
from tb_gpudiag.rules.idle.input_pipeline import CODE, RULE
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.wording.quantity import Quantity, duration, number, share_of
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import (
    facts_of,
    figures,
    finding,
    healthy,
    is_clear,
    one_gap,
    saving,
    severity,
    without_gpu,
)


def _load(main: HostThread, at: float, us: float) -> None:
    main.frame("data.py(7): decode", at=at, us=us)
    main.loader(at=at, us=us)
    main.op("aten::div", at=at + 1, us=us - 2)


def _part(part_us: float, whole_us: float) -> tuple[Quantity, Quantity]:
    """A part of the waiting, as in the evidence."""
    return duration(part_us * 1000), share_of(part_us * 1000, whole_us * 1000, "of this time")


def test_fires_on_idle_under_the_loader_whatever_the_innermost_operator(tmp_path: Path) -> None:
    facts = facts_of(one_gap(_load, 60), tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 60_000
    assert figures(found)["Waiting for data"] == (
        duration(60_000),
        share_of(60_000, 1_000_000, "of the step window"),
    )
    assert saving(found, facts).high_ns == pytest.approx(60_000, abs=7_000)
    assert (found.places[0].file, found.places[0].line) == ("data.py", 7)
    assert found.ranges[0].end_ns - found.ranges[0].start_ns == 60_000
    assert "num_workers" in found.fix.code


def test_a_pipeline_gets_its_own_arguments(tmp_path: Path) -> None:
    def load(main: HostThread, at: float, us: float) -> None:
        main.frame("transformers/pipelines/pt_utils.py(120): __next__", at=at, us=us)
        main.loader(at=at, us=us)

    found = finding(RULE.check(facts_of(one_gap(load, 60), tmp_path)))
    assert "pipe(dataset, num_workers=len(os.sched_getaffinity(0)) - 1, batch_size=16)" in found.fix.code
    assert "DataLoader(" not in found.fix.code


def test_is_an_error_from_a_fifth_of_the_window(tmp_path: Path) -> None:
    for idle_us, expected in ((190, Severity.WARNING), (210, Severity.ERROR)):
        facts = facts_of(one_gap(_load, idle_us), tmp_path / str(idle_us))
        assert severity(RULE, finding(RULE.check(facts)), facts) == expected


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_load, 49), tmp_path)))


def test_loading_while_the_gpu_is_busy_costs_nothing(tmp_path: Path) -> None:
    trace = healthy()
    HostThread(trace, trace.recording.host[0].thread).loader(at=400, us=500)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_says_that_workers_load_the_batches(tmp_path: Path) -> None:
    def wait(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us, workers=4)

    found = finding(RULE.check(facts_of(one_gap(wait, 200), tmp_path)))
    assert "Worker processes" in found.summary


def test_splits_the_time_by_the_innermost_of_torchs_frames(tmp_path: Path) -> None:
    def fetch(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us)
        main.frame("torch/utils/data/_utils/fetch.py(49): fetch", at=at, us=us)
        main.frame("data.py(7): __getitem__", at=at, us=us - 40)
        main.op("aten::stack", at=at, us=us - 40)  # part of the item, not collating
        main.frame("torch/utils/data/_utils/collate.py(118): collate", at=at + us - 30, us=20)
        main.frame("torch/utils/data/_utils/pin_memory.py(50): pin_memory", at=at + us - 10, us=10)

    evidence = figures(finding(RULE.check(facts_of(one_gap(fetch, 200), tmp_path))))
    assert evidence["Fetching items"] == _part(170, 200)
    assert evidence["Collating"] == _part(20, 200)
    assert evidence["Pinning"] == _part(10, 200)


def test_a_sampler_runs_in_the_training_process_so_workers_are_no_fix(tmp_path: Path) -> None:
    def fetch(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us)
        main.frame("torch/utils/data/dataloader.py(714): _next_index", at=at, us=us - 40)
        main.frame("train.py(45): __iter__", at=at, us=us - 40)
        main.frame("torch/utils/data/_utils/fetch.py(49): fetch", at=at + us - 40, us=40)

    found = finding(RULE.check(facts_of(one_gap(fetch, 400), tmp_path)))
    assert figures(found)["Choosing items"] == _part(360, 400)
    assert "sampler" in found.fix.text
    assert "workers" not in found.fix.code


def test_reports_waiting_for_workers(tmp_path: Path) -> None:
    def wait(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us, workers=4)
        main.frame("torch/utils/data/dataloader.py(1278): _try_get_data", at=at, us=us)
        main.frame("multiprocessing/queues.py(98): get", at=at, us=us)

    evidence = figures(finding(RULE.check(facts_of(one_gap(wait, 200), tmp_path))))
    assert evidence["Waiting for workers"] == _part(200, 200)


def test_receiving_a_batch_is_not_waiting(tmp_path: Path) -> None:
    def receive(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us, workers=4)
        main.frame("torch/utils/data/dataloader.py(1278): _try_get_data", at=at, us=us)
        main.frame("<built-in function loads>", at=at + us - 150, us=150)
        main.frame("multiprocessing/reduction.py(182): recv_handle", at=at + us - 100, us=50)

    found = finding(RULE.check(facts_of(one_gap(receive, 200), tmp_path)))
    evidence = figures(found)
    assert evidence["Receiving from workers"] == _part(150, 200)
    assert evidence["Waiting for workers"] == _part(50, 200)
    assert "do not keep up" not in found.summary


@pytest.mark.parametrize(("waits_us", "waits"), [(120, True), (40, False)])
def test_waiting_until_a_busy_worker_hands_over_a_tensor_is_not_receiving(
    waits_us: float, tmp_path: Path, *, waits: bool
) -> None:
    """What the process does itself to ask for the tensor and to take it is receiving."""

    def receive(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us, workers=4)
        main.frame("torch/utils/data/dataloader.py(1278): _try_get_data", at=at, us=us)
        main.frame("<built-in function loads>", at=at + us - 180, us=180)
        main.frame("torch/multiprocessing/reductions.py(541): rebuild_storage_fd", at=at + us - 170, us=170)
        main.frame("multiprocessing/resource_sharer.py(55): detach", at=at + us - 160, us=160)
        main.frame("multiprocessing/connection.py(747): answer_challenge", at=at + us - 150, us=140)
        main.frame("<built-in function read>", at=at + us - 140, us=waits_us)

    found = finding(RULE.check(facts_of(one_gap(receive, 200), tmp_path)))
    evidence = figures(found)
    assert evidence["Receiving from workers"] == _part(180 - waits_us, 200)
    assert evidence["Waiting for workers"] == _part(20 + waits_us, 200)
    assert ("do not keep up" in found.summary) == waits
    assert ("cheaper" in found.fix.text) == waits


def test_without_stacks_operators_show_collating(tmp_path: Path) -> None:
    def fetch(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us)
        main.op("aten::stack", at=at + us - 50, us=50)
        main.op("aten::cat", at=at + us - 45, us=30)

    evidence = figures(finding(RULE.check(facts_of(one_gap(fetch, 200), tmp_path))))
    assert evidence["Collating"] == _part(50, 200)


def test_without_a_gpu_it_is_the_hosts_time(tmp_path: Path) -> None:
    trace = without_gpu()
    HostThread(trace, trace.recording.host[0].thread).loader(at=1000, us=100)
    assert finding(RULE.check(facts_of(trace, tmp_path))).cost_ns == 100_000


def test_on_a_cpu_a_worker_would_need_the_cores_that_compute(tmp_path: Path) -> None:
    trace = without_gpu()
    HostThread(trace, trace.recording.host[0].thread).loader(at=1000, us=90)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


@pytest.mark.parametrize(
    ("operators", "shapes", "hint"),
    [(65, [[8]], False), (73, [[8]], True), (73, None, False), (120, None, False), (128, None, True)],
)
def test_recording_the_rows_of_a_batch_may_be_what_takes_the_time(
    operators: int, shapes: list[list[int]] | None, tmp_path: Path, *, hint: bool
) -> None:
    """Of 150 µs, 0.8 µs are most likely for recording each operator with its shapes, and 0.45 µs without."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.loader(at=100, us=150)
    for row in range(operators):
        main.op("aten::select", at=101 + row, us=0.9, shapes=shapes)
    facts = facts_of(trace, tmp_path)
    found = corrected(finding(RULE.check(facts)), RULE, facts)
    assert (RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO) == hint
    assert "Recording frames and operators takes" in found.summary


@pytest.mark.parametrize(("us", "clear"), [(190, True), (210, False)])
def test_on_a_cpu_workers_share_the_cores(us: float, clear: bool, tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.loader(at=100, us=us, workers=2)
    answer = RULE.check(facts_of(trace, tmp_path))
    assert is_clear(answer) == clear
    if not clear:
        assert "only if CPU cores are free" in finding(answer).fix.text


def test_names_host_tasks_in_the_loader_and_tokenizing_has_its_own_fix(tmp_path: Path) -> None:
    def tokenize(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us)
        main.frame("<built-in method encode of tokenizers.Tokenizer object at 0x7f>", at=at, us=us - 40)
        main.frame("PIL/Image.py(2332): resize", at=at + us - 40, us=10)

    found = finding(RULE.check(facts_of(one_gap(tokenize, 200), tmp_path)))
    evidence = figures(found)
    assert evidence["Tokenizing text"] == _part(160, 200)
    assert not [label for label in evidence if "images" in label]  # 5% is not worth a line
    assert "batched=True" in found.fix.code


def test_nothing_is_pinned_without_a_gpu(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.loader(at=100, us=500)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "num_workers" in found.fix.code
    assert "pin_memory" not in found.fix.code


def _three_steps(load: Callable[[HostThread, float], object]) -> TraceBuilder:
    """Build three steps of 1 ms whose first 600 us load a batch. load: adds the frames, from a time on."""
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(3):
        at = 1_000 * step
        main.step(step, at=at, us=1_000)
        load(main, at)
        main.launch("gemm", at=at + 600, us=5, runs_at=at + 610, runs_us=390)
        main.sync(at=at + 610, us=390)
    return trace


def _one_iterator(main: HostThread, at: float) -> None:
    main.loader(at=at, us=600)


def _iterator_in_each_step(main: HostThread, at: float) -> None:
    main.frame("torch/utils/data/dataloader.py(491): __iter__", at=at, us=10)
    main.frame("torch/utils/data/dataloader.py(422): _get_iterator", at=at + 1, us=8)
    main.loader(at=at + 10, us=590)


def test_a_new_iterator_in_each_step_loads_nothing_ahead(tmp_path: Path) -> None:
    """Its first batch cannot be loaded before the step, so workers may save nothing."""
    facts = facts_of(_three_steps(_iterator_in_each_step), tmp_path)
    found = finding(RULE.check(facts))
    assert "one iterator per epoch" in found.fix.text
    assert figures(found)["From a new iterator"] == (number(3, "batch"),)
    saved = saving(found, facts)
    assert saved.low_ns == 0
    assert saved.high_ns >= 1_770_000


def test_stopping_the_workers_of_an_iterator_is_loading(tmp_path: Path) -> None:
    """An iterator that is dropped waits for its workers to end."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(30):
        at = 1_000 * step
        main.step(step, at=at, us=1_000)
        main.frame("torch/utils/data/dataloader.py(1703): __del__", at=at, us=500)
        main.frame("torch/utils/data/dataloader.py(1606): _shutdown_workers", at=at + 1, us=498)
        main.frame("multiprocessing/popen_fork.py(36): wait", at=at + 2, us=490)
        main.op("aten::mm", at=at + 510, us=480)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.cost_ns == pytest.approx(30 * 498_000, rel=0.01)


def _iterator_without_stacks(main: HostThread, at: float) -> None:
    """The seed that a loader draws for its workers, and then nothing that an event shows."""
    main.op("aten::empty", at=at, us=3).op("aten::random_", at=at + 4, us=3)
    main.op("aten::item", at=at + 8, us=3)
    main.loader(at=at + 400, us=200, workers=4)


def test_a_new_iterator_in_each_step_is_known_by_the_seed_that_it_draws(tmp_path: Path) -> None:
    """The start of its workers counts as loading, too."""
    found = finding(RULE.check(facts_of(_three_steps(_iterator_without_stacks), tmp_path)))
    assert "persistent_workers=True, and make one iterator per epoch" in found.fix.text
    assert "persistent_workers=True" in found.fix.code
    assert found.cost_ns == pytest.approx(3 * 600_000, rel=0.02)


def test_a_new_iterator_in_each_step_of_a_cpu_is_no_matter_of_the_recording(tmp_path: Path) -> None:
    """No kernels show where its steps begin."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(30):
        at = 1_000 * step
        main.step(step, at=at, us=1_000)
        _iterator_without_stacks(main, at)
        main.op("aten::mm", at=at + 610, us=380)
    (found,) = run_rules(facts_of(trace, tmp_path), [RULE]).findings
    assert found.severity > Severity.INFO
    assert found.finding.saving is not None
    assert "persistent_workers=True" in found.finding.fix.code


@pytest.mark.parametrize(("stalls", "crowded"), [(5, True), (2, False)])
def test_more_workers_are_no_fix_where_the_cpu_is_oversubscribed(
    stalls: int, crowded: bool, tmp_path: Path
) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(10):
        at = 10_000.0 * step
        main.step(step, at=at, us=10_000).loader(at=at, us=4_000, workers=4)
        for i in range(20):
            main.op("aten::relu", at=at + 4_000 + 20 * i, us=10)
        main.op("aten::relu", at=at + 4_500, us=2_000 if step < stalls else 10)
        main.launch("gemm", at=at + 6_600, us=5, runs_at=at + 6_610, runs_us=3_390)
        main.sync(at=at + 6_610, us=3_389)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert ("5 operators that usually take 10\xa0µs took 2\xa0ms" in found.summary) == crowded
    assert ("fewer workers" in found.fix.text) == crowded


def test_the_number_of_workers_follows_from_the_cores() -> None:
    """The trace does not say how many cores there are."""
    for name in ("workers", "one_iterator", "more_workers", "fewer_workers"):
        [line] = [line for line in CODE[name].splitlines() if "num_workers=" in line]
        assert not re.search(r"num_workers=\d", line)


@pytest.mark.parametrize(
    ("calls", "draws", "once"),
    [((3, 3, 3, 3), False, True), ((3, 2, 3, 3), False, False), ((3,) * 4, True, False)],
)
def test_what_makes_as_many_calls_for_each_item_is_to_be_done_once(
    calls: tuple[int, ...], *, draws: bool, once: bool, tmp_path: Path
) -> None:
    """Two steps load two items each; `table` splits so many lines for each item, or draws which ones."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(2):
        at = 1_000 * step
        main.step(step, at=at, us=1_000)
        main.loader(at=at, us=900)
        for item in range(2):
            begin = at + 1 + 440 * item
            main.frame("data.py(5): __getitem__", at=begin, us=430)
            main.frame("data.py(9): table", at=begin + 1, us=400)
            for line in range(calls[2 * step + item]):
                name = "random.py(3): choice" if draws else "<built-in method split of str object>"
                main.frame(name, at=begin + 2 + 100 * line, us=90)
        main.op("aten::mm", at=at + 905, us=90)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert ("def __init__" in found.fix.code) is once
    assert "num_workers" in found.fix.code
    assert ("With as many calls for each item" in figures(found)) is once


@pytest.mark.parametrize(
    ("each_us", "loops"), [(5, True), (100, False)], ids=["character by character", "file by file"]
)
def test_a_loop_over_items_is_to_be_replaced_before_workers_share_it_out(
    each_us: float, tmp_path: Path, *, loops: bool
) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for step in range(3):
        main.step(step, at=1000 * step, us=1000)
        batch = main.frame("train.py(9): batches", at=1000 * step + 10, us=600)
        for call in range(int(500 / each_us)):
            at = 1000 * step + 20 + (each_us + 1) * call
            batch.frame("<built-in method get of dict object at 0x1>", at=at, us=each_us)
        main.op("aten::mm", at=1000 * step + 700, us=200)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.fix.text.startswith("Replace the Python loop" if loops else "Load batches ahead")
    assert "num_workers" in found.fix.code
    assert found.places[0].function == "batches"
