"""What past fixes gave, by rule: how many promised ranges were right, and where most savings lay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tb_gpudiag.jobs.ledger.ledger_file import JUDGED, LedgerEntries, LedgerEntry
from tb_gpudiag.jobs.rules.every_rule import find_any_rule
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Column, Kind, ReportView, lines, table
from tb_gpudiag.wording.format import count, share

# One of so many savings is left out at each end: 90% are in between.
LEFT_OUT_OF: Final = 20

# The next saving is between the least and the most of n savings with a probability of (n - 1) / (n + 1),
# whatever their distribution: 19 are needed for 90%.
LEAST_SAVINGS: Final = 19

# Savings that other fixes made at the same time may have given are no measure of this one.
MOST_OF_OTHERS: Final = 0.1


def ledger_message(found: LedgerEntries) -> pb.Ledger:
    """Return the rules with an entry, most entries first."""
    by_rule: dict[str, list[LedgerEntry]] = {}
    for entry in found.entries:
        by_rule.setdefault(entry.rule, []).append(entry)
    gains = [past_gains(rule, entries) for rule, entries in sorted(by_rule.items())]
    notes = []
    if found.unreadable:
        notes.append(f"{count(found.unreadable, 'line')} of the ledger cannot be read, and is left out.")
    if found.cut:
        notes.append("The ledger is too long: its end was not read. Begin a new one.")
    gains.sort(key=_judged, reverse=True)
    return pb.Ledger(rules=gains, notes=notes)


def past_gains(rule: str, entries: Sequence[LedgerEntry]) -> pb.PastGains:
    """Return what these fixes of one rule gave."""
    known = find_any_rule(rule)
    promises = Counter(entry.promise for entry in entries)
    shares = sorted(
        entry.real_us / entry.high_us
        for entry in entries
        if entry.promise in JUDGED and entry.others_us <= MOST_OF_OTHERS * abs(entry.real_us)
    )
    found = pb.PastGains(
        rule=rule,
        name=known.name if known is not None else "",
        inside=promises["INSIDE"],
        below=promises["BELOW"],
        above=promises["ABOVE"],
        untold=promises["CANNOT_TELL"],
    )
    if len(shares) >= LEAST_SAVINGS:
        at_each_end = (len(shares) + 1) // LEFT_OUT_OF
        found.low_share, found.high_share = shares[at_each_end - 1], shares[-at_each_end]
    found.sentence = _sentence(found, len(shares))
    return found


def _judged(gains: pb.PastGains) -> int:
    return gains.inside + gains.below + gains.above


def _sentence(gains: pb.PastGains, savings: int) -> str:
    judged = _judged(gains)
    untold = f" Of {count(gains.untold, 'more fix', 'more fixes')} nobody can tell." if gains.untold else ""
    if not judged:
        return f"No saving is known.{untold}"
    right = f"The promised range was right for {gains.inside:,} of {count(judged, 'fix', 'fixes')}."
    if savings < LEAST_SAVINGS:
        few = f"{LEAST_SAVINGS} savings of one fix at a time show where 90% of them lie; there are {savings}."
        return f"{right}{untold} {few}"
    least, most = share(gains.low_share), share(gains.high_share)
    return f"{right}{untold} 90% of {savings:,} savings lie between {least} and {most} of the most promised."


def with_past(verification: pb.Verification, found: LedgerEntries) -> None:
    """Add what past fixes of the verified rule gave. The pair that is verified may be among them."""
    own = [entry for entry in found.entries if entry.rule == verification.rule]
    if not own:
        return
    gains = past_gains(verification.rule, own)
    verification.past.CopyFrom(gains)
    promised_us = max((row.high_us for row in verification.findings if row.rule == gains.rule), default=0.0)
    verification.past_low_us = gains.low_share * promised_us
    verification.past_high_us = gains.high_share * promised_us


def ledger_view(ledger: pb.Ledger, path: str) -> ReportView:
    """Return what readers see of a ledger."""
    rows = [
        (
            f"{one.rule} {one.name}",
            f"{one.inside:,} of {_judged(one):,}" if _judged(one) else "",
            f"{one.below:,}" if one.below else "",
            f"{one.above:,}" if one.above else "",
            f"{one.untold:,}" if one.untold else "",
            f"{share(one.low_share)} to {share(one.high_share)}" if one.high_share else "too few",
        )
        for one in ledger.rules
    ]
    columns = (
        Column("Rule"),
        Column("Range was right", Kind.NUMBER),
        Column("Gave less", Kind.NUMBER),
        Column("Gave more", Kind.NUMBER),
        Column("Cannot tell", Kind.NUMBER),
        Column("90% of savings, of the most promised", Kind.NUMBER),
    )
    inside, judged = sum(one.inside for one in ledger.rules), sum(map(_judged, ledger.rules))
    verdict = (
        f"The promised range was right for {inside:,} of {count(judged, 'fix', 'fixes')} "
        f"({share(inside, judged)})."
        if judged
        else "No saving is known."
    )
    sections = (
        table("ledger", "Promised and measured, by rule", columns, rows),
        lines("ledger_notes", "Notes", ledger.notes),
    )
    return ReportView(
        heading="Fixes that were verified",
        path=path,
        verdict=verdict,
        sections=tuple(section for section in sections if section),
    )
