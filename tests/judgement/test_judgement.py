from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.brief import TOKENS, brief_text, tokens
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.wording.vocabulary import LIMITERS
from tests.judgement.agreement import Judged, Label, labels
from tests.real_traces import real_report
from tests.report.views.formats import one_space

OTHER_VERDICT = {"b300_sglang_decode", "cpu_torch213/gloo2"}
OTHER_FIRST_FINDING = {
    "a100_segment_anything",
    "rtx5080_module_graphed",  # launch gaps: without the profiler, they save less than 5%
}
OTHER_WINDOW = {"a100_particle_transformer"}  # the label looks at one warm pass of a cold run
"""Folders whose label the diagnosis does not agree with. One that it begins to agree with leaves the list."""

# The labels give two digits, and count overlapping or unlinked work in their own way.
BUSY_TOLERANCE = 0.05


@pytest.mark.slow
@pytest.mark.parametrize("label", labels(), ids=lambda label: label.folder)
def test_the_diagnosis_agrees_with_an_independent_reading(label: Label, shared_traces: Path) -> None:
    folder = label.folder
    judged = Judged(label, real_report(find_traces(str(shared_traces / folder)).files[0].path))
    print(f"\n{judged.row}")
    assert not judged.wrong_advice
    assert judged.agrees == (folder not in OTHER_VERDICT)
    assert judged.first_agrees == (folder not in OTHER_FIRST_FINDING)
    if label.busy_share is not None and judged.report.devices:
        difference = abs(judged.report.verdict.busy_share - label.busy_share)
        assert (difference <= BUSY_TOLERANCE) == (folder not in OTHER_WINDOW)


@pytest.mark.slow
@pytest.mark.parametrize("label", labels(), ids=lambda label: label.folder)
def test_the_text_for_a_language_model_answers_it(label: Label, shared_traces: Path) -> None:
    report = real_report(find_traces(str(shared_traces / label.folder)).files[0].path)
    text = one_space(brief_text(compose([report])))
    assert tokens(text) <= TOKENS
    assert one_space(report.verdict.sentence)[:300] in text
    loud = [finding for finding in report.findings if finding.severity != pb.Finding.INFO]
    for finding in loud[:1]:
        assert one_space(finding.title)[:300] in text
        assert one_space(finding.fix.text)[:300] in text
        assert all(place.function in text for place in finding.places[:1])


def test_every_label_is_a_limiter() -> None:
    for label in labels():
        assert set(label.verdicts) <= LIMITERS.keys(), label.folder


def test_a_third_is_held_out() -> None:
    assert sum(label.held_out for label in labels()) == len(labels()) // 3
