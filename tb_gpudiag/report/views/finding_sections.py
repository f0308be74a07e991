"""The findings and their places, the order in which to fix them, and rules without findings."""

from __future__ import annotations

from collections.abc import Mapping

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import full_place, preposition, short_place, without_hints
from tb_gpudiag.report.views.document import (
    CodePlace,
    Column,
    ColumnOf,
    FindingCard,
    Findings,
    Item,
    Lines,
    Table,
    lines,
    numbers,
    table_of,
)
from tb_gpudiag.wording.format import count, size_bytes, time_us
from tb_gpudiag.wording.quantity import duration

PLACES_SHOWN = 5

NAMED = 3
"""Rules that are named of those that lack the same."""


def findings(report: pb.Report | pb.JobReport, nothing: str = "") -> Findings:
    """The findings about the job, in the report's order. nothing: what to say if there is none."""
    checked = len(report.clear)
    nothing = nothing or (
        "No problem found."
        if checked >= len(report.unchecked)
        else f"{count(checked, 'rule')} could check this trace, and found no problem."
    )
    shown = without_hints(report.findings)
    fixes = report.plan.fixes[1:] if isinstance(report, pb.Report) else []
    planned_us = {report.findings[fix.finding].title: fix.saving_us for fix in fixes}
    cards = tuple(_card(shown, number, planned_us) for number in range(1, len(shown) + 1))
    return Findings("findings", "Findings", cards, nothing)


def _card(shown: list[pb.Finding], number: int, planned_us: Mapping[str, float]) -> FindingCard:
    """planned_us: what fixes save on top of those before them, by title; not the first one's."""
    finding = shown[number - 1]
    cost = _cost(finding, planned_us.get(finding.title, 0.0))
    facts = [cost] if cost.text else []
    if finding.saving.beyond:
        facts.append(Item(f"more than the cost, because {finding.saving.beyond}", "saving"))
    facts += [Item(evidence.value, evidence.label) for evidence in finding.evidence]
    return FindingCard(
        number=number,
        severity=pb.Finding.Severity.Name(finding.severity),
        rule=finding.rule,
        name=finding.name,
        title=finding.title,
        summary=finding.summary,
        facts=tuple(facts),
        places=tuple(
            CodePlace(full_place(p), short_place(p), _cost_there(p), preposition(p))
            for p in finding.places[:PLACES_SHOWN]
        ),
        fix=finding.fix.text,
        code=_code(shown, number),
        url=finding.fix.url if finding.fix.url.startswith("https://") else "",
    )


def _cost(finding: pb.Finding, planned_us: float) -> Item:
    """What a fix saves, or else the cost, in time or memory; no text for a finding about the recording."""
    if finding.cost_bytes_per_step:
        return Item(f"{size_bytes(finding.cost_bytes_per_step)} more per step", "costs")
    if finding.cost_bytes:
        return Item(size_bytes(finding.cost_bytes), "costs")
    saving = _saving(finding.saving)
    if not finding.cost_us or not saving:
        return Item(time_us(finding.cost_us) if finding.cost_us else "", "costs")
    (_, likely, _), _ = _saved(finding.saving)
    if planned_us and (later := time_us(planned_us)) != likely:
        saving = f"{saving} alone, and {later} after the fixes above it"
    return Item(saving, "saves")


def _saved(saving: pb.Saving) -> tuple[list[str], str]:
    """Low end, most likely value and high end, of a step where steps are known, and what they are of."""
    unit, of = ("_per_step_us", " per step") if saving.high_per_step_us else ("_us", "")
    return [time_us(getattr(saving, f"{end}{unit}")) for end in ("low", "likely", "high")], of


def _saving(saving: pb.Saving) -> str:
    if not saving.high_us:
        return "nothing by itself (replayed)" if saving.basis == "replayed" else ""
    (low, likely, high), of = _saved(saving)
    if saving.basis.startswith("at most") or not saving.likely_us or (likely == high and not saving.low_us):
        return f"at most {high}{of}"
    span = f"80% range {low} to {high}" if saving.low_us else f"at most {high}"
    return f"about {likely}{of} ({span}; {saving.basis})"


def _cost_there(where: pb.Place) -> str:
    if where.us:
        return time_us(where.us)
    return size_bytes(where.bytes) if where.bytes else ""


def _code(shown: list[pb.Finding], number: int) -> str:
    """Code of the fix. Code that an earlier finding shows is not repeated."""
    own = shown[number - 1].fix.code.rstrip("\n")
    for earlier, finding in enumerate(shown[: number - 1], start=1):
        if own and finding.fix.code.rstrip("\n") == own:
            return f"# same code as finding {earlier}"
    return own


def plan(report: pb.Report) -> Table:
    """Fixes in the order to make them. Empty with fewer than two fixes: a single one needs no order."""
    shown = without_hints(report.findings)

    def name(fix: pb.PlannedFix) -> str:
        """With the number of its finding: a rule may have several."""
        return f"{shown.index(report.findings[fix.finding]) + 1}. {fix.rule} {fix.name}"

    columns: list[ColumnOf[pb.PlannedFix]] = [
        (Column("Fix"), name),
        (numbers("saves"), lambda fix: duration(fix.saving_us * 1e3)),
        (numbers("left_after"), _left),
    ]
    fixes = report.plan.fixes if len(report.plan.fixes) > 1 else []
    of = "step" if report.plan.per_step else "step window"
    return table_of("plan", f"Fix in this order: time of a {of}", fixes, columns)


def _left(fix: pb.PlannedFix) -> str:
    """`592 ms to 755 ms`: at best, and if each fix saves only what it surely saves."""
    best, most = time_us(fix.least_us), time_us(fix.most_us)
    return best if most == best or fix.most_us < fix.least_us else f"{best} to {most}"


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
    """What rules lack. Rules that the same setting of the recording would let check share an item."""
    by_need: dict[str, list[pb.Unchecked]] = {}
    for rule in report.unchecked:
        if not rule.defect:
            by_need.setdefault(rule.how_to_record or rule.reason, []).append(rule)
    return tuple(_lack(need, rules) for need, rules in by_need.items())


def _lack(need: str, rules: list[pb.Unchecked]) -> Item:
    first, *others = rules
    if not others:
        reason = f"{first.reason}. {first.how_to_record}" if first.how_to_record else first.reason
        return Item(reason, f"{first.rule} {first.name}")
    named = ", ".join(rule.rule for rule in rules[:NAMED])
    more = f" and {len(rules) - NAMED} more" if len(rules) > NAMED else ""
    return Item(need, f"{named}{more}")


def clear(report: pb.Report | pb.JobReport) -> Lines:
    """How many rules found no problem. JSON and the page have what each measured."""
    checked = len(report.clear)
    said = [f"{count(checked, 'rule')}; --format json has what each measured"] if checked else []
    return lines("clear", "Checked, no problem found", said)


def notes(report: pb.Report) -> Lines:
    """Notes from reading the file."""
    reason = [f"Recorded because {report.trace.reason}."] if report.trace.reason else []
    return lines("notes", "Notes on the file", [*reason, *report.trace.notes])
