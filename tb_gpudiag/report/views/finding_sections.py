"""The findings and their places, the order in which to fix them, and rules without findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import full_place, preposition, short_place, title_below, without_hints
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
    made = [_card(shown, number, planned_us, report.verdict) for number in range(1, len(shown) + 1)]
    # What an earlier finding says in the same words, such as why no saving was replayed, is said there.
    said = [{fact for card in made[:i] for fact in card.facts[bool(card.gain) :]} for i in range(len(made))]
    cards = (
        replace(card, facts=tuple(f for f in card.facts if f not in said[i])) for i, card in enumerate(made)
    )
    return Findings("findings", "Findings", tuple(cards), nothing)


def _card(
    shown: list[pb.Finding], number: int, planned_us: Mapping[str, float], verdict: pb.Verdict
) -> FindingCard:
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
        title=title_below(finding.title, verdict),
        summary=finding.summary * (finding.summary not in verdict.sentence),
        facts=tuple(facts),
        places=tuple(_places(finding.places[:PLACES_SHOWN])),
        fix=finding.fix.text,
        code=_code(shown, number),
        url=finding.fix.url if finding.fix.url.startswith("https://") else "",
    )


def _cost(finding: pb.Finding, planned_us: float) -> Item:
    """What a fix saves, or else the cost, in time or memory; no text for a finding about the recording."""
    if finding.cost_bytes_per_step:  # the title says how much it is per step
        return Item(f"{size_bytes(finding.cost_bytes)} still live at the end", "leaked")
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
    span = f"80% range {low} to {high}; " * (low != high) if saving.low_us else f"at most {high}; "
    return f"about {likely}{of} ({span}{saving.basis})"


def _places(found: Sequence[pb.Place]) -> Iterator[CodePlace]:
    """The user's function and the range are said once, and after it what else it called."""
    above = around = ""
    for where in found:
        said = pb.Place()
        said.CopyFrom(where)
        said.range = where.range * (where.range != around)
        around = where.range
        short = short_place(said)
        own, _, through = short.partition(", through ")
        shown = f"through {through}" if through and own == above else short
        yield CodePlace(full_place(where), shown, _cost_there(where), preposition(where))
        above = own


def _cost_there(where: pb.Place) -> str:
    return time_us(where.us) if where.us else size_bytes(where.bytes) * bool(where.bytes)


def _code(shown: list[pb.Finding], number: int) -> str:
    """Code of the fix, without the parts that an earlier finding shows, whatever their comments say."""
    own, *others = (
        [*filter(None, one.fix.code.strip("\n").split("\n\n"))] for one in shown[number - 1 :: -1]
    )
    seen = {_calls(part) for parts in others for part in parts}
    new = [part for part in own if _calls(part) not in seen]
    above = "# Code above" + ", and:\n" * bool(new)
    return above * (len(new) < len(own)) + "\n\n".join(new)


def _calls(part: str) -> str:
    """The lines of code without their comments; the comments of a part that has nothing else."""
    return "\n".join(filter(None, (line.partition("#")[0].strip() for line in part.split("\n")))) or part


def plan(report: pb.Report) -> Table:
    """Fixes in the order to make them. Empty with fewer than two fixes: a single one needs no order."""
    shown = without_hints(report.findings)

    def name(fix: pb.PlannedFix) -> str:
        """With the number of its finding: a rule may have several."""
        finding = report.findings[fix.finding]
        return f"{shown.index(finding) + 1}. {finding.rule} {finding.name}"

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
    """What the recording lacks, and how to record all of it. Empty if nothing is lacking."""
    advice = report.better_recording
    items = (Item(advice.sentence),) if advice.sentence else ()
    title = "A better recording" if advice.code else "About the recording"
    return Lines("better_recording", title, items, advice.code)


def defects(report: pb.Report) -> Lines:
    """Rules that could not check because they have a bug."""
    items = [Item(rule.reason, f"{rule.rule} {rule.name}") for rule in report.unchecked if rule.defect]
    return Lines("defects", "Could not check", tuple(items))


def unchecked(report: pb.JobReport) -> Lines:
    """What rules on a job lack, each need once."""
    needs = [rule.how_to_record or rule.reason for rule in report.unchecked if not rule.defect]
    return lines("unchecked", "A better recording", dict.fromkeys(needs))


def notes(report: pb.Report) -> Lines:
    """Notes from reading the file."""
    reason = [f"Recorded because {report.trace.reason}."] if report.trace.reason else []
    return lines("notes", "Notes on the file", [*reason, *report.trace.notes])
