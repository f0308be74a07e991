"""Findings about the job, without hints about its recording."""

from __future__ import annotations

from collections.abc import Iterable

from tb_gpudiag.report import report_pb2 as pb


def without_hints(findings: Iterable[pb.Finding]) -> list[pb.Finding]:
    """Return the findings in their order, without hints about the recording: `better_recording` of a Report
    says all of these in one line."""
    return [finding for finding in findings if not _is_hint(finding)]


def _is_hint(finding: pb.Finding) -> bool:
    return finding.rule.startswith("GD9") and finding.severity == pb.Finding.INFO
