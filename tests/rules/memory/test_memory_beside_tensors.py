"""GD405: what grows on the host that the trace does not show, or that no tensor of Python's holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tb_gpudiag.rules.answer import RuleAnswer
from tb_gpudiag.rules.memory.host_memory_leak import RULE
from tb_gpudiag.training.noting_tensors import KEY
from tb_gpudiag.wording.quantity import size
from tests.builder import TraceBuilder
from tests.rules.memory_stage import MIB, STEP_US, job, only
from tests.rules.noted_stage import check_noted, held_by, noted
from tests.rules.stage import facts_of


def test_what_a_thread_keeps_since_the_job_began_is_a_leak_of_its_holder(tmp_path: Path) -> None:
    history = [[step, MIB * step] for step in (4, 8, 16, 24, 32)]
    written = noted({MIB: 8}, {}, steps=32)
    written |= {"history": history, "holders": held_by(["/home/me/train.py(3): workspace"])}
    found = only(check_noted([0] * 8, written, tmp_path))
    assert found.title.endswith(f"{size(MIB, 'per step')}")
    assert "a thread that the job has started" in found.summary
    assert found.places[0].function == "workspace"


def _malloc(*mebibytes: int) -> list[list[int]]:
    return [[step, MIB * each] for step, each in zip((4, 8, 16, 24), mebibytes, strict=True)]


OTHERS = noted({512: 6}, {512: 6}, steps=32) | {"history": [[step, 3_072] for step in (4, 8, 16, 24, 32)]}


def _check_nodes(folder: Path, *, updates: int = 8, **more: Any) -> RuleAnswer:
    """What is said of losses that are listed after their backward pass: the trace shows nothing of it."""
    roots = [{"bytes": 4, "functions": [["/home/me/train.py(7): collect"]], "graph": 0.0}]
    nodes = {"nodes": [[step, 40 * step] for step, _ in OTHERS["history"]], "roots": roots}
    trace = TraceBuilder(top_level={KEY: OTHERS | nodes | {"malloc": _malloc(4, 8, 16, 24)} | more})
    main = trace.thread()
    for step in range(8):
        main.step(step, at=step * STEP_US, us=STEP_US - 2)
        main.op("aten::mm", at=step * STEP_US + 10, us=20)
        main.free(main.alloc(MIB, at=step * STEP_US + 15, device=None), at=step * STEP_US + 40)
        if step < updates:
            main.annotation("Optimizer.step#SGD.step", at=step * STEP_US + 50, us=10)
    return RULE.check(facts_of(trace, folder))


def test_graphs_are_kept_though_a_backward_pass_has_freed_what_is_in_them(tmp_path: Path) -> None:
    found = only(_check_nodes(tmp_path))
    assert found.title.endswith(f"{size(MIB, 'per step')}: retained autograd graph")
    assert found.places[0].function == "collect"


def test_nodes_may_be_larger_than_the_tensors_of_which_few_have_a_graph(tmp_path: Path) -> None:
    held = [[step, 3 * MIB * step] for step in (4, 8, 16, 24, 32)]
    notes = noted({2 * MIB: 6, MIB: 6}, {}, steps=32) | {"attached": {str(MIB): 6}, "history": held}
    notes |= {"nodes": [[at, at * 10] for at, _ in held], "malloc": _malloc(32, 64, 128, 192)}
    trace = job([2 * MIB] * 6, device=None, operator="aten::log", top_level={KEY: notes})
    thread = trace.thread()
    for step in range(6):
        thread.op("aten::exp", at=step * STEP_US + 75, us=10)
        thread.alloc(MIB, at=step * STEP_US + 77, device=None)
    assert only(RULE.check(facts_of(trace, tmp_path))).title.endswith("per step: retained autograd graph")
