"""The text for a language model: short, and with what one acts on."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.brief import TOKENS, brief_text, tokens
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.report.views.document import Column, Document, table
from tests.report.reports import usual_report
from tests.report.views.formats import one_space


def test_it_has_verdict_finding_place_fix_and_code() -> None:
    report = usual_report()
    text = one_space(brief_text(compose([report])))
    for words in (
        report.verdict.sentence,
        "GD101 input_pipeline: ",
        "train (train.py, defined at line 12)",
        f"fix: {report.findings[0].fix.text}",
        "num_workers",
        "Not recorded: ",
        "with_stack=True",  # how to record what is missing
        "`gpudiag explain GD101`",
    ):
        assert one_space(words) in text, words
    assert "Left out" not in text


def test_a_long_report_is_cut_from_what_is_needed_least() -> None:
    report = usual_report()
    first = report.findings[0]
    for number in range(200):
        more = pb.Finding()
        more.CopyFrom(first)
        more.title = f"Finding {number} " + "costs time in many places " * 5
        more.fix.code = "\n".join(f"other_{number}_{line}()" for line in range(8))
        report.findings.append(more)
    text = brief_text(compose([report]))
    assert tokens(text) <= TOKENS
    assert one_space(first.title) in one_space(text)
    assert first.fix.code.splitlines()[0] in text
    assert "other_0_0()" not in text
    assert text.endswith("Left out: see `gpudiag diagnose PATH --full`, or `--format json`.\n")


def test_endless_names_leave_room_for_the_rest() -> None:
    report = usual_report()
    report.trace.path = "a/" * 10_000 + "b.pt.trace.json"
    report.findings[0].places[0].function = "f" * 10_000
    text = brief_text(compose([report]))
    assert tokens(text) <= TOKENS
    assert "num_workers" in text


def test_several_recordings_have_a_line_each() -> None:
    overview = table(
        "runs", "30 recordings, worst first", [Column("Run"), Column("Step")], [("a", "1 ms")] * 30
    )
    for reports in ((), compose([usual_report(), usual_report()]).reports):
        text = brief_text(Document("Diagnosis", reports, overview))
        assert tokens(text) <= TOKENS
        assert text.startswith("30 recordings, worst first:\na, step 1 ms\n")
        assert ("num_workers" in text) == bool(reports)
