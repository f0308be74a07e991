"""Which module became slower."""

from __future__ import annotations

from pathlib import Path

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.compare.comparison_view import comparison_document
from tb_gpudiag.report.views.text import document_text
from tb_gpudiag.trace.files.find import find_traces
from tests.builder import TraceBuilder
from tests.jobs.compare.sides import trace
from tests.report.views.formats import one_space


def steps(folder: Path, attention_us: float, *, stacks: bool = True) -> Digest:
    """Record eight steps of a model with two layers, each with attention and a small feed-forward part."""
    made = TraceBuilder()
    main = made.thread()
    for step in range(8):
        at = 20_000 * step
        main.step(step, at=at, us=20_000)
        for layer in (0, 1):
            for number, (module, us) in enumerate((("Attention", attention_us), ("FeedForward", 900))):
                begin = at + 100 + 9_000 * layer + 100 * number
                if stacks:
                    main.frame(f"nn.Module: {module}_{layer}", at=begin, us=90)
                runs_at = begin + 60 + number * attention_us
                main.launch(f"{module}_kernel", at=begin + 10, us=5, runs_at=runs_at, runs_us=us)
    made.write(folder)
    (file,) = find_traces(str(folder)).files
    return digest_file(file)[1]


def test_the_module_that_became_slower_is_named(tmp_path: Path) -> None:
    found = compare([steps(tmp_path / "a", 2_000)], [steps(tmp_path / "b", 6_000)])
    rows = {row.name: (row.base_us, row.candidate_us, row.base_count) for row in found.modules}
    assert rows == {"Attention_*": (4_000, 12_000, 2), "FeedForward_*": (1_800, 1_800, 2)}
    assert found.modules[0].name == "Attention_*"
    text = one_space(document_text(comparison_document(found)))
    assert "Modules whose GPU time changed most, per step" in text
    assert "Attention_* 4 ms 12 ms +8 ms" in text


def test_the_sentence_names_a_module_that_is_much_of_the_difference() -> None:
    def side(id: str, step_us: int, attention_us: int) -> Digest:
        rows = [
            {"module": "attn.*", "count": 16, "time_ns": attention_us * 8_000},
            {"module": "", "count": 8, "time_ns": 8_000},
        ]
        return trace([step_us] * 8, id, modules=rows)

    slower = compare([side("a", 10_000, 4_000)], [side("b", 14_000, 8_000)])
    assert "Kernels of “attn.*” take +4 ms per step." in one_space(slower.sentence)
    elsewhere = compare([side("a", 10_000, 4_000)], [side("b", 14_000, 4_050)])
    assert "attn" not in elsewhere.sentence


def test_nothing_is_said_of_modules_that_one_side_does_not_know(tmp_path: Path) -> None:
    known, unknown = steps(tmp_path / "a", 2_000), steps(tmp_path / "b", 6_000, stacks=False)
    assert not compare([known], [unknown]).modules
    assert not compare([unknown], [unknown]).modules
