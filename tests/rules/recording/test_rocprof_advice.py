"""What recordings of rocprofv3 lack names its options, or says that torch.profiler has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import CannotTell
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.shared.recording_advice import for_recorders
from tb_gpudiag.trace.kineto.changed_copy import copy_with_events
from tb_gpudiag.trace.read import read_trace
from tests.builder.recording import DeviceProperties
from tests.builder.rocprof import Recorded


def kernels(folder: Path) -> Path:
    made = Recorded().gpu(DeviceProperties("AMD Instinct MI300X"))
    for i in range(100):
        made.kernel("gemm", i * 100_000, i * 100_000 + 30_000, i + 1)
    return made.write(folder / "results.json")


def test_missing_launches_name_its_option(tmp_path: Path) -> None:
    outcome = run_rules(Facts(read_trace(str(kernels(tmp_path)))), RULES)
    (found,) = [f.finding for f in outcome.findings if f.rule.id == "GD904"]
    assert "--hip-runtime-trace" in found.fix.text
    asked = [answer.how_to_record for _, answer in outcome.unchecked]
    asked = [text for text in asked if "profile_memory" in text]
    assert asked
    how = {rule.id: answer.how_to_record for rule, answer in outcome.unchecked}
    assert "--hip-runtime-trace" in how["GD201"]
    assert "emit_nvtx" in how["GD511"]
    assert all(text.startswith("With torch.profiler: ") for text in asked)


@pytest.mark.parametrize("recorders", [{"rocprof"}, {"torch", "rocprof"}])
def test_each_recorder_is_named(recorders: set[str]) -> None:
    answer = for_recorders(CannotTell("no stacks", "Record with with_stack=True."), recorders)  # type: ignore[arg-type]
    assert answer == CannotTell("no stacks", "With torch.profiler: Record with with_stack=True.")


def test_only_events_of_torch_are_copied(tmp_path: Path) -> None:
    with pytest.raises(NotATrace, match="can be copied event by event"):
        copy_with_events(str(kernels(tmp_path)), [], lambda text: None, mend=False)
