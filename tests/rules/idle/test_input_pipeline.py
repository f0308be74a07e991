from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.idle.input_pipeline import RULE
from tb_gpudiag.rules.rule import Severity
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, finding, healthy, is_clear, one_gap, without_gpu


def _load(main: HostThread, at: float, us: float) -> None:
    main.frame("data.py(7): decode", at=at, us=us)
    main.loader(at=at, us=us)
    main.op("aten::div", at=at + 1, us=us - 2)


def test_fires_on_idle_under_the_loader_whatever_the_innermost_operator(tmp_path: Path) -> None:
    facts = facts_of(one_gap(_load, 60), tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 60_000
    assert found.saving is not None
    assert found.saving.high_ns == 60_000
    assert (found.places[0].file, found.places[0].line) == ("data.py", 7)
    assert found.ranges[0].end_ns - found.ranges[0].start_ns == 60_000
    assert "num_workers" in found.fix.code


def test_is_an_error_from_a_fifth_of_the_window_on(tmp_path: Path) -> None:
    for idle_us, severity in ((190, Severity.WARNING), (210, Severity.ERROR)):
        facts = facts_of(one_gap(_load, idle_us), tmp_path / str(idle_us))
        assert RULE.severity_of(finding(RULE.check(facts)), facts.window.duration_ns) == severity


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_load, 49), tmp_path)))


def test_loading_beside_a_busy_gpu_costs_nothing(tmp_path: Path) -> None:
    trace = healthy()
    HostThread(trace, trace.recording.host[0].thread).loader(at=400, us=500)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_names_the_workers_where_there_are_some(tmp_path: Path) -> None:
    def wait(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us, workers=4)

    found = finding(RULE.check(facts_of(one_gap(wait, 200), tmp_path)))
    assert "worker processes" in found.summary


def test_splits_the_time_by_the_innermost_of_torchs_frames(tmp_path: Path) -> None:
    def fetch(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us)
        main.frame("torch/utils/data/_utils/fetch.py(49): fetch", at=at, us=us)
        main.frame("data.py(7): __getitem__", at=at, us=us - 40)
        main.op("aten::stack", at=at, us=us - 40)  # the item's own: no collating
        main.frame("torch/utils/data/_utils/collate.py(118): collate", at=at + us - 30, us=20)
        main.frame("torch/utils/data/_utils/pin_memory.py(50): pin_memory", at=at + us - 10, us=10)

    evidence = finding(RULE.check(facts_of(one_gap(fetch, 200), tmp_path))).evidence
    parts = {e.label: e.text for e in evidence if e.label.startswith("of that")}
    assert parts == {
        "of that, fetching items": "170 µs, 85.0 %",
        "of that, collating": "20 µs, 10.0 %",
        "of that, pinning": "10 µs, 5.0 %",
    }


def test_waiting_at_the_workers_queue_is_told(tmp_path: Path) -> None:
    def wait(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us, workers=4)
        main.frame("torch/utils/data/dataloader.py(1278): _try_get_data", at=at, us=us)
        main.frame("multiprocessing/queues.py(98): get", at=at, us=us)

    evidence = finding(RULE.check(facts_of(one_gap(wait, 200), tmp_path))).evidence
    assert {e.label: e.text for e in evidence}["of that, waiting for a worker's batch"] == "200 µs, 100 %"


def test_taking_a_batch_over_is_no_waiting(tmp_path: Path) -> None:
    def take_over(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us, workers=4)
        main.frame("torch/utils/data/dataloader.py(1278): _try_get_data", at=at, us=us)
        main.frame("<built-in function loads>", at=at + us - 150, us=150)
        main.frame("multiprocessing/reduction.py(182): recv_handle", at=at + us - 100, us=50)

    found = finding(RULE.check(facts_of(one_gap(take_over, 200), tmp_path)))
    parts = {e.label: e.text for e in found.evidence}
    assert parts["of that, taking over a worker's batch"] == "150 µs, 75.0 %"
    assert parts["of that, waiting for a worker's batch"] == "50 µs, 25.0 %"
    assert "do not keep up" not in found.summary


def test_without_stacks_operators_tell_of_collating(tmp_path: Path) -> None:
    def fetch(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us)
        main.op("aten::stack", at=at + us - 50, us=50)
        main.op("aten::cat", at=at + us - 45, us=30)

    evidence = finding(RULE.check(facts_of(one_gap(fetch, 200), tmp_path))).evidence
    assert {e.label: e.text for e in evidence}["of that, collating"] == "50 µs, 25.0 %"


def test_a_slow_first_batch_is_named(tmp_path: Path) -> None:
    for first_us, named in ((290, False), (310, True)):
        trace = one_gap(_load, 200)
        main = HostThread(trace, trace.recording.host[0].thread)
        main.loader(at=100, us=first_us / 10)
        for at in (600, 700, 800):
            main.loader(at=at, us=10)
        found = finding(RULE.check(facts_of(trace, tmp_path / str(first_us))))
        assert ("first batch" in {e.label for e in found.evidence}) == named


def test_without_a_gpu_it_is_the_hosts_time(tmp_path: Path) -> None:
    trace = without_gpu()
    HostThread(trace, trace.recording.host[0].thread).loader(at=1000, us=90)
    assert finding(RULE.check(facts_of(trace, tmp_path))).cost_ns == 90_000


def test_cannot_tell_from_a_trace_without_activity(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=()).raw({"ph": "i", "name": "mark", "ts": 1.0, "pid": 0, "tid": 0})
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))


def test_names_what_items_are_made_of_and_tokenizing_has_a_fix_of_its_own(tmp_path: Path) -> None:
    def tokenize(main: HostThread, at: float, us: float) -> None:
        main.loader(at=at, us=us)
        main.frame("<built-in method encode of tokenizers.Tokenizer object at 0x7f>", at=at, us=us - 40)
        main.frame("PIL/Image.py(2332): resize", at=at + us - 40, us=10)

    found = finding(RULE.check(facts_of(one_gap(tokenize, 200), tmp_path)))
    evidence = {e.label: e.text for e in found.evidence}
    assert evidence["of that, tokenizing text"] == "160 µs, 80.0 %"
    assert not [label for label in evidence if "images" in label]  # 5 % of it are not worth a line
    assert "batched=True" in found.fix.code
