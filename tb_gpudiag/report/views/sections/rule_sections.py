"""Rules without findings, and notes on the trace file."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Item, Lines, lines
from tb_gpudiag.wording.format import count


def better_recording(report: pb.Report) -> Lines:
    """What the recording and which rules lack, and how to record all of it. Empty if nothing is lacking."""
    advice = report.better_recording
    items = (Item(advice.sentence), *_lacks(report)) if advice.sentence else ()
    return Lines("better_recording", "A better recording", items, advice.code)


def defects(report: pb.Report) -> Lines:
    """Rules that could not check because they have a bug."""
    items = [Item(rule.reason, f"{rule.rule} {rule.name}") for rule in report.unchecked if rule.defect]
    return Lines("defects", "Could not check", tuple(items))


def unchecked(report: pb.JobReport) -> Lines:
    """Rules on a job that could not check, and what they lack."""
    return Lines("unchecked", "Cannot tell from this trace", _lacks(report))


def _lacks(report: pb.Report | pb.JobReport) -> tuple[Item, ...]:
    """What rules lack. Rules that lack the same share an item."""
    rules_by_lack: dict[str, list[str]] = {}
    for rule in report.unchecked:
        if not rule.defect:
            lacks = f"{rule.reason}. {rule.how_to_record}" if rule.how_to_record else rule.reason
            rules_by_lack.setdefault(lacks, []).append(f"{rule.rule} {rule.name}")
    return tuple(_lack(lacks, rules) for lacks, rules in rules_by_lack.items())


def _lack(lacks: str, rules: list[str]) -> Item:
    if len(rules) == 1:
        return Item(lacks, rules[0])
    return Item(f"{lacks.rstrip('.')}. Not checked: {', '.join(rules)}", count(len(rules), "rule"))


def clear(report: pb.Report | pb.JobReport) -> Lines:
    """Rules that found no problem, and what they measured."""
    items = tuple(Item(rule.reason, f"{rule.rule} {rule.name}") for rule in report.clear)
    return Lines("clear", "Checked, no problem found", items)


def notes(report: pb.Report) -> Lines:
    """Notes from reading the file."""
    reason = [f"Recorded because {report.trace.reason}."] if report.trace.reason else []
    return lines("notes", "Notes on the file", [*reason, *report.trace.notes])
