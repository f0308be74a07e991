"""What holds a leak: the container that receives what a line allocates, and whether it drops entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, Clear
from tb_gpudiag.rules.memory.host_memory_leak import RULE
from tb_gpudiag.rules.memory.memory_leak import RULE as GPU_LEAK
from tb_gpudiag.rules.shared.leak_state import LIKELY_STEPS, SURE_STEPS
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.rules.memory_stage import MIB, build_model, only, steps_of, unsure
from tests.rules.stage import facts_of

STEP_US = 100.0
KEEPER = "train.py(7): keep"
LATE = 1_000
"""A step of a job that has run for a while."""
TORCH = "/opt/lib/python3.11/site-packages/torch"


def _call(method: str, kind: str) -> str:
    return f"<built-in method {method} of {kind} object at 0x7f{abs(hash(method)) % 10**8:08d}>"


def keeping(
    *calls: str,
    steps: int = 8,
    first: int = LATE,
    hook: bool = False,
    begins: bool = False,
    inside: str = "",
) -> TraceBuilder:
    """Build a job on the CPU in whose steps `keep` allocates 1 MiB and makes these calls. begins: the
    trace shows the job's beginning, so nothing was full before. inside: what the first of the calls calls."""
    trace = TraceBuilder()
    for main, at in steps_of(trace, steps, first=first, built=begins):
        if hook:
            main.frame("nn.Module: Linear_0", at=at + 5, us=60)
            main.frame("torch/nn/modules/module.py(1782): _call_impl", at=at + 6, us=58)
            main.frame("torch/nn/modules/linear.py(125): forward", at=at + 8, us=10)
        main.op("aten::addmm" if hook else "aten::clone", at=at + 10, us=5)
        main.alloc(MIB, at=at + 12, device=None)
        if hook:
            main.frame(KEEPER, at=at + 30, us=20)
        for i, call in enumerate(calls):
            main.frame(call, at=at + 32 + 4 * i, us=2)
        if inside:
            main.frame(inside, at=at + 32.5, us=1)
        if not hook:
            main.frame(KEEPER, at=at + 5, us=60)
    return trace


def test_a_list_that_nothing_is_taken_from_is_named(tmp_path: Path) -> None:
    """It may be a full buffer: `del` is no call."""
    call = _call("append", "list")
    assert (
        "in keep (train.py, defined at line 7)"
        in unsure(RULE.check(facts_of(keeping(call), tmp_path / "open"))).reason
    )
    found = only(RULE.check(facts_of(keeping(call, begins=True), tmp_path / "sure")))
    assert "list.append in keep (train.py, defined at line 7)" in found.summary
    assert "removed nothing" in found.summary
    assert (found.places[0].function, found.places[0].line) == ("keep", 7)


@pytest.mark.parametrize(
    "calls",
    [
        [_call("append", "list"), _call("pop", "list")],
        [_call("append", "collections.deque")],
        [_call("append", "collections.deque"), _call("popleft", "collections.deque")],
    ],
)
def test_a_container_that_may_drop_its_oldest_entries_is_not_called_a_leak(
    calls: list[str], tmp_path: Path
) -> None:
    """torch's CPU profiler does not show frees of what was in a full buffer before the recording."""
    answer = RULE.check(facts_of(keeping(*calls), tmp_path))
    assert isinstance(answer, CannotTell)
    assert "append in keep" in answer.reason
    assert "oldest entries" in answer.reason


def test_what_a_hook_keeps_is_at_the_hook(tmp_path: Path) -> None:
    """A hook runs after the forward pass that allocated what it keeps."""
    found = only(RULE.check(facts_of(keeping(_call("append", "list"), hook=True, begins=True), tmp_path)))
    assert found.title.endswith("retained module outputs")
    assert found.places[0].function == "keep"


@pytest.mark.slow
def test_a_long_recording_shows_that_no_buffer_is_full(tmp_path: Path) -> None:
    assert unsure(RULE.check(facts_of(keeping(steps=8), tmp_path / "short")))
    likely = only(RULE.check(facts_of(keeping(steps=LIKELY_STEPS + 2), tmp_path / "likely")))
    assert not likely.sure
    assert f"more than {LIKELY_STEPS + 1} entries" in likely.summary
    long = only(RULE.check(facts_of(keeping(steps=SURE_STEPS + 2), tmp_path / "long")))
    assert long.sure
    assert "entries that was full" not in long.summary


@pytest.mark.parametrize(
    ("first", "nodes", "steps", "found"),
    [
        (0, None, 32, True),
        (3, None, 32, True),
        (3, 3, 32, True),
        (3, 3, 12, False),  # what fills in 14 steps is not full yet
        (24, None, 40, False),  # a ring of 24 was full, and has dropped the entries of 16 steps
        (3, 500, 32, False),  # the profiler was made late
        (LATE, 3, 32, False),
    ],
)
def test_a_recording_of_the_jobs_first_steps_shows_that_no_buffer_is_full(
    first: int, nodes: int | None, steps: int, found: bool, tmp_path: Path
) -> None:
    """nodes: that autograd had made before, of one in each step."""
    call = _call("append", "list")
    trace = keeping(call, steps=steps, first=first)
    training = trace.thread()
    for number in range(steps if nodes is not None else 0):
        training.op("aten::mul", at=number * STEP_US + 22, us=2, sequence=(nodes or 0) + number)
    answer = RULE.check(facts_of(trace, tmp_path))
    if not found:
        assert "oldest entries" in unsure(answer).reason
        return
    likely = only(answer)
    assert not likely.sure
    assert "filled before the job's first step" in likely.summary


def test_a_buffer_may_have_been_filled_before_the_jobs_first_step(tmp_path: Path) -> None:
    """Assignments are no calls. A buffer of a module's outputs is hardly ever filled without steps."""
    answer = RULE.check(facts_of(keeping(steps=32, first=3), tmp_path / "assigned"))
    assert "filled before the job's first step" in unsure(answer).reason
    assert only(RULE.check(facts_of(keeping(steps=32, first=3, hook=True), tmp_path / "outputs")))


def test_a_ring_that_the_jobs_first_steps_fill_is_no_leak(tmp_path: Path) -> None:
    """It has three entries when the recording begins, and frees those of its own steps later on."""
    for entries in (2, 3, 8):
        trace = TraceBuilder()
        main, held = trace.thread(), list[int]()
        for number in range(32):
            at = number * STEP_US
            main.step(3 + number, at=at, us=STEP_US - 2)
            main.op("aten::clone", at=at + 10, us=5)
            held.append(main.alloc(MIB, at=at + 12, device=None))
            main.frame(KEEPER, at=at + 5, us=60)
            if len(held) > entries:
                main.free(held.pop(0), at=at + 20)
        assert not isinstance(RULE.check(facts_of(trace, tmp_path / str(entries))), list)


def test_a_deque_that_began_empty_may_have_a_limit(tmp_path: Path) -> None:
    call = _call("append", "collections.deque")
    found = unsure(RULE.check(facts_of(keeping(call, begins=True), tmp_path / "short")))
    assert "maxlen" in found.reason
    assert "maxlen" in found.how_to_record
    assert only(
        RULE.check(facts_of(keeping(call, begins=True, steps=SURE_STEPS + 2), tmp_path / "long"))
    ).sure


@pytest.mark.parametrize(("gone", "reason"), [(0, ""), (2, ""), (3, "3 oldest"), (9, "went at once")])
def test_what_was_seen_to_go_at_once_is_dropped_now_and_then(gone: int, reason: str, tmp_path: Path) -> None:
    """Of 14 tensors that a line keeps, one in each step."""
    trace = TraceBuilder()
    held = []
    for number, (main, at) in enumerate(steps_of(trace, 20)):
        main.op("aten::clone", at=at + 10, us=5)
        held.append(main.alloc(MIB, at=at + 12, device=None))
        main.frame(KEEPER, at=at + 5, us=60)
        for address in held[:gone] if number == 13 else ():
            main.free(address, at=at + 70)
    answer = RULE.check(facts_of(trace, tmp_path))
    assert reason in unsure(answer).reason if reason else only(answer).sure


@pytest.mark.parametrize(
    ("emptied", "left", "clear"),
    [
        ((9, 19), 0, True),
        ((11,), 0, True),
        ((8,), 0, False),  # more is kept since than there was before
        ((9, 19), 4, False),  # not all of it goes
        ((3, 6), 0, False),
    ],
)
def test_what_all_went_as_it_came_is_no_leak(
    emptied: tuple[int, ...], left: int, clear: bool, tmp_path: Path
) -> None:
    """emptied: steps at whose end a list is cleared, but for its first `left` entries."""
    trace = TraceBuilder()
    main, held = trace.thread(), list[int]()
    build_model(trace)
    for number in range(21):
        at = number * STEP_US
        main.step(number, at=at, us=STEP_US - 2)
        main.op("aten::clone", at=at + 10, us=5)
        held.append(main.alloc(MIB, at=at + 12, device=None))
        main.frame(KEEPER, at=at + 5, us=60)
        for address in held[left:] if number in emptied else ():
            main.free(address, at=at + 70)
        if number in emptied:
            del held[left:]
    answer = RULE.check(facts_of(trace, tmp_path))
    went = isinstance(answer, Clear) and "went again" in answer.reason
    assert went is clear, answer


@pytest.mark.parametrize("more", [True, False])
def test_what_is_copied_anew_with_one_more_each_time_is_a_leak(more: bool, tmp_path: Path) -> None:
    """No copy is ever two steps old."""
    trace = TraceBuilder()
    main, held = trace.thread(), list[int]()
    build_model(trace)
    for number in range(21):
        at = number * STEP_US
        main.step(number, at=at, us=STEP_US - 2)
        main.op("aten::clone", at=at + 10, us=50)
        copies = len(held) + 1 if more or not held else len(held)
        if number % 2:
            old, held = held, [main.alloc(MIB, at=at + 12 + one, device=None) for one in range(copies)]
            for address in old:
                main.free(address, at=at + 60)
        main.frame(KEEPER, at=at + 4, us=80)
    answer = RULE.check(facts_of(trace, tmp_path))
    assert isinstance(answer, list) is more


def test_gradients_without_frames_are_kept_gradients_of_the_line_that_calls_backward(tmp_path: Path) -> None:
    """The engine's own threads run no Python, so a snapshot has no frames of what they allocate."""
    snapshot = SnapshotBuilder()
    snapshot.segment(1 << 30, at=0)
    for step in range(8):
        at = 100 * (step + 1)
        forward = snapshot.allocate(2 * MIB, at=at, stack=["train.py(5): fit", "model.py(8): forward"])
        loss = snapshot.allocate(
            512,
            at=at + 10,
            stack=[
                "train.py(6): fit",
                f"{TORCH}/_tensor.py(560): backward",
                f"{TORCH}/autograd/__init__.py(91): _make_grads",
            ],
        )
        snapshot.allocate(MIB, at=at + 20)
        for address in (forward, loss):
            snapshot.free(address, at=at + 30)
    found = only(GPU_LEAK.check(Facts(read_trace(str(snapshot.write(tmp_path))))))
    assert found.title.endswith("retained gradients")
    assert (found.places[0].file, found.places[0].line) == ("train.py", 6)


@pytest.mark.parametrize(
    "call",
    [
        f"{TORCH}/nn/modules/module.py(1687): register_forward_hook",
        f"{TORCH}/nn/modules/container.py(371): append",
    ],
    ids=["hooks", "modules"],
)
def test_what_gives_entries_back_through_calls_only_is_sure(call: str, tmp_path: Path) -> None:
    assert only(RULE.check(facts_of(keeping(call), tmp_path)))


@pytest.mark.parametrize("hashes", [True, False])
def test_a_set_is_sure_if_it_hashes_tensors(hashes: bool, tmp_path: Path) -> None:
    """Numbers may be added just after an assignment that keeps the tensor."""
    trace = keeping(_call("add", "set"), inside=f"{TORCH}/_tensor.py(1217): __hash__" if hashes else "")
    answer = RULE.check(facts_of(trace, tmp_path))
    assert isinstance(answer, CannotTell) != hashes


def test_a_heap_is_not_sure(tmp_path: Path) -> None:
    assert unsure(RULE.check(facts_of(keeping("<built-in function heappush>"), tmp_path)))


def test_modules_built_in_each_step_are_no_beginning(tmp_path: Path) -> None:
    """A population of networks, of which the oldest goes."""
    trace = keeping(_call("append", "list"))
    for number in range(8):
        trace.thread().frame("torch/nn/modules/linear.py(89): __init__", at=number * STEP_US + 9, us=7)
    assert unsure(RULE.check(facts_of(trace, tmp_path)))


@pytest.mark.parametrize(
    "calls",
    [
        ["<built-in function heappushpop>"],
        ["<built-in function heappush>", "<built-in function heappop>"],
        [f"{TORCH}/nn/modules/module.py(9): register_forward_hook", f"{TORCH}/utils/hooks.py(9): remove"],
        [_call("popitem", "collections.OrderedDict")],
        [_call("pop", "dict")],
        [_call("append", "list"), _call("append", "list"), _call("pop", "list")],  # the other one of numbers
    ],
)
def test_as_many_entries_that_leave_are_no_leak_for_sure(calls: list[str], tmp_path: Path) -> None:
    answer = RULE.check(facts_of(keeping(*calls), tmp_path))
    assert isinstance(answer, CannotTell)
    assert "entries" in answer.reason


def test_another_function_may_empty_the_container(tmp_path: Path) -> None:
    def made(*calls: str) -> TraceBuilder:
        trace = keeping(_call("append", "collections.deque"))
        main = trace.thread()
        for number in range(8):
            main.frame("train.py(20): consume", at=number * STEP_US + 80, us=10)
            for i, call in enumerate(calls):
                main.frame(call, at=number * STEP_US + 81 + 3 * i, us=2)
        return trace

    pop = _call("popleft", "collections.deque")
    assert isinstance(RULE.check(facts_of(made(pop), tmp_path / "one")), CannotTell)


def test_two_that_come_for_one_that_goes_pile_up(tmp_path: Path) -> None:
    trace = TraceBuilder()
    append, pop = _call("append", "collections.deque"), _call("popleft", "collections.deque")
    for main, at in steps_of(trace):
        main.frame(KEEPER, at=at + 5, us=60)
        for i in range(2):
            main.op("aten::clone", at=at + 10 + 10 * i, us=5)
            main.alloc(MIB, at=at + 12 + 10 * i, device=None)
            main.frame(append, at=at + 16 + 10 * i, us=2)
        main.frame(pop, at=at + 40, us=2)
    found = only(RULE.check(facts_of(trace, tmp_path)))
    assert "added 16 entries and removed 8 entries, so that memory grows by less" in found.summary


def test_a_method_that_is_called_next_may_be_the_holder(tmp_path: Path) -> None:
    """`meter.update(loss())`: neither of the two calls the other."""
    trace = TraceBuilder()
    for main, at in steps_of(trace):
        main.frame("train.py(1): main", at=at + 5, us=80)
        main.frame("train.py(30): loss", at=at + 10, us=10)
        main.op("aten::clone", at=at + 12, us=5)
        main.alloc(MIB, at=at + 14, device=None)
        main.frame("meter.py(7): update", at=at + 30, us=10)
        main.frame(_call("append", "list"), at=at + 32, us=2)
    found = only(RULE.check(facts_of(trace, tmp_path)))
    assert "update (meter.py, defined at line 7) is called next, and may receive it" in found.summary
    assert found.places[0].function == "update"


@pytest.mark.parametrize(("added", "place"), [(1, "forward"), (2, "mask_of")])
def test_a_module_that_is_called_next_may_fill_a_list_of_its_own(
    added: int, place: str, tmp_path: Path
) -> None:
    """`model(tokens, mask_of(lengths))`: with more entries than masks it is another list."""
    trace = TraceBuilder()
    for main, at in steps_of(trace):
        main.frame("train.py(1): main", at=at + 5, us=80)
        main.frame("train.py(30): mask_of", at=at + 10, us=10)
        main.op("aten::tril", at=at + 12, us=5)
        main.alloc(MIB, at=at + 14, device=None)
        main.frame("nn.Module: Model_0", at=at + 30, us=20)
        main.frame("model.py(7): forward", at=at + 31, us=18)
        for entry in range(added):
            main.frame(_call("append", "list"), at=at + 32 + 4 * entry, us=2)
    assert only(RULE.check(facts_of(trace, tmp_path))).places[0].function == place


def test_what_calls_several_functions_is_the_place(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for main, at in steps_of(trace):
        main.frame("store.py(7): store", at=at + 5, us=80)
        for i, name in enumerate(("features", "labels")):
            main.frame(f"train.py({30 + i}): {name}", at=at + 10 + 20 * i, us=10)
            main.op("aten::clone", at=at + 12 + 20 * i, us=5)
            main.alloc(MIB, at=at + 14 + 20 * i, device=None)
    found = only(RULE.check(facts_of(trace, tmp_path)))
    assert [place.function for place in found.places] == ["store", "features", "labels"]
