"""Facts and what the rules made of them, as one Report. It names no figure of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tb_gpudiag.facts.core.account import Account
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import DeviceFacts, Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.host_messages import host_activity
from tb_gpudiag.report.building.launch_messages import hotspot_messages, queue_messages
from tb_gpudiag.report.building.memory_messages import memory_messages
from tb_gpudiag.report.building.sync_messages import sync_site_messages
from tb_gpudiag.report.building.units import UINT32_MAX, place, time_ranges, us
from tb_gpudiag.rules.rule import Saving
from tb_gpudiag.rules.run import Found, Outcome, run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.find import TraceFile
from tb_gpudiag.version import __version__
from tb_gpudiag.wording.format import one_line

SCHEMA_VERSION = 1
"""Rises when a field changes its meaning; a new field does not raise it."""

# A Report is bounded whatever the trace holds: it is sent to a page, pasted and kept.
STEPS_LIMIT = 5_000
RANGES_LIMIT = 100
PLACES_LIMIT = 20
NOTES_LIMIT = 50
CODE_LIMIT = 4_000

_HOST_AND_PID = re.compile(r"(.+)_\d+")


def build_report(facts: Facts, file: TraceFile) -> pb.Report:
    """The whole Report of one trace."""
    outcome = run_rules(facts)
    verdict = find_verdict(facts)
    report = pb.Report(
        schema_version=SCHEMA_VERSION,
        generator=f"tb-gpudiag {__version__}",
        trace=_trace(facts, file),
        devices=[_device(facts, device) for device in facts.devices],
        steps=[
            pb.Step(name=one_line(name), start_us=us(start), duration_us=us(end - start))
            for name, start, end in zip(
                facts.steps.names[:STEPS_LIMIT], facts.steps.start_ns, facts.steps.end_ns, strict=False
            )
        ],
        verdict=pb.Verdict(
            limiter=verdict.limiter, sentence=one_line(verdict.sentence, 1_000), busy_share=verdict.busy_share
        ),
        findings=[_finding(facts, found) for found in outcome.findings],
        plan=_plan(facts, outcome),
        inferred_steps=_inferred(facts),
        launch_hotspots=hotspot_messages(facts),
        launch_queues=queue_messages(facts),
        kernel_families=list(_families(facts)),
        sync_sites=sync_site_messages(facts),
        memory=memory_messages(facts),
        host=host_activity(facts),
    )
    _add_the_rest(report, outcome)
    return report


def _trace(facts: Facts, file: TraceFile) -> pb.TraceInfo:
    trace, recorded = facts.trace, facts.recorded
    distributed = trace.metadata.distributed
    notes = [one_line(note) for note in trace.notes[:NOTES_LIMIT]]
    if len(facts.steps) > STEPS_LIMIT:
        notes.append(f"only the first {STEPS_LIMIT:,} of {len(facts.steps):,} steps are listed")
    host = _HOST_AND_PID.fullmatch(file.worker)
    return pb.TraceInfo(
        run=one_line(file.run),
        worker=one_line(file.worker),
        span=one_line(file.span),
        path=one_line(file.path, 4_000),
        status=trace.status,
        events=min(trace.events_read, UINT32_MAX),
        malformed_events=min(trace.malformed_events, UINT32_MAX),
        host=one_line(host[1]) if host else "",
        rank=_number(distributed, "rank", -1),
        world_size=_number(distributed, "world_size", 0),
        recorded=pb.Recorded(
            steps=recorded.steps,
            stacks=recorded.stacks,
            shapes=recorded.shapes,
            memory=recorded.memory,
            flops=recorded.flops,
        ),
        notes=notes,
        simulated=trace.metadata.simulated,
        duration_us=us(facts.recording.duration_ns),
        kind=trace.kind,
    )


def _number(data: Mapping[str, Any], key: str, missing: int) -> int:
    """A small count of the trace's metadata, which may hold anything."""
    value = data.get(key)
    return value if type(value) is int and 0 <= value < 2**31 else missing


def _device(facts: Facts, device: DeviceFacts) -> pb.Device:
    ledger, span, window = device.ledger, device.span, facts.window
    busy_ns = device.busy.all.total
    over_window = device.whole
    return pb.Device(
        id=device.id,
        name=one_line(device.name),
        span_us=us(span.duration_ns),
        busy_us=us(busy_ns),
        idle_us=us(span.duration_ns - busy_ns),
        gaps=ledger.gaps_in(span),
        idle_by_cause=[pb.CauseTime(cause=c.label, us=us(ns)) for c, ns in ledger.by_cause(span).items()],
        idle_by_trigger=[
            pb.TriggerTime(trigger=t.label, us=us(ns)) for t, ns in ledger.by_trigger(span).items()
        ],
        window_start_us=us(window.start_ns),
        window_us=us(window.duration_ns),
        window_idle_us=us(ledger.idle_ns(window)),
        window_idle_by_cause=_idle(over_window, 0),
        window_computing_us=us(over_window.computing_ns[0]),
        window_copying_us=us(over_window.copying_ns[0]),
        window_communicating_us=us(over_window.communicating_ns[0]),
        step_accounts=_step_accounts(facts.account(device)),
    )


def _step_accounts(account: Account) -> list[pb.StepAccount]:
    return [
        pb.StepAccount(
            name=one_line(name),
            start_us=us(account.start_ns[i]),
            duration_us=us(account.end_ns[i] - account.start_ns[i]),
            computing_us=us(account.computing_ns[i]),
            copying_us=us(account.copying_ns[i]),
            communicating_us=us(account.communicating_ns[i]),
            idle_by_cause=_idle(account, i),
        )
        for i, name in enumerate(account.names[:STEPS_LIMIT])
    ]


def _inferred(facts: Facts) -> pb.InferredSteps | None:
    found, device, window = facts.inferred_steps, facts.device, facts.window
    if found is None or device is None:
        return None
    length_ns = found.end_ns - found.start_ns
    accounts = _step_accounts(found.account)
    return pb.InferredSteps(
        sign=found.sign.value,
        are_steps=found.are_steps,
        inside=one_line(found.inside),
        device=device.id,
        repetitions=len(found),
        period_launches=found.period_launches,
        setup_us=us(found.start_ns[0] - window.start_ns),
        tail_us=us(window.end_ns - found.end_ns[-1]),
        median_us=us(np.median(length_ns)),
        steps=[pb.Step(name=a.name, start_us=a.start_us, duration_us=a.duration_us) for a in accounts],
        accounts=accounts,
    )


def _idle(account: Account, i: int) -> list[pb.CauseTime]:
    return [
        pb.CauseTime(cause=cause.label, us=us(account.idle_ns[i, cause]))
        for cause in Cause
        if account.idle_ns[i, cause]
    ]


def _finding(facts: Facts, found: Found) -> pb.Finding:
    rule, finding = found.rule, found.finding
    message = pb.Finding(
        rule=rule.id,
        name=rule.name,
        severity=found.severity.name,
        title=one_line(finding.title),
        summary=one_line(finding.summary, 2_000),
        cost_us=us(finding.cost_ns),
        cost_bytes=finding.cost_bytes,
        cost_bytes_per_step=finding.cost_bytes_per_step,
        memory_device=finding.memory_device if finding.cost_bytes or finding.cost_bytes_per_step else 0,
        evidence=[
            pb.Evidence(label=one_line(evidence.label), value=one_line(evidence.text))
            for evidence in finding.evidence
        ],
        places=[place(p) for p in finding.places[:PLACES_LIMIT]],
        fix=pb.Fix(
            text=one_line(finding.fix.text, 2_000),
            code=_code(finding.fix.code),
            url=one_line(finding.fix.url),
        ),
        ranges=[
            pb.TimeRange(start_us=us(r.start_ns), end_us=us(r.end_ns), device=r.device)
            for r in sorted(finding.ranges, key=lambda r: r.start_ns - r.end_ns)[:RANGES_LIMIT]
        ],
    )
    if finding.saving is not None:
        message.saving.CopyFrom(_saving(facts, finding.saving))
    return message


def _saving(facts: Facts, saving: Saving) -> pb.Saving:
    window_ns, steps = max(1, facts.window.duration_ns), len(facts.steps)
    return pb.Saving(
        low_us=us(saving.low_ns),
        high_us=us(saving.high_ns),
        basis=saving.basis,
        low_share=saving.low_ns / window_ns,
        high_share=saving.high_ns / window_ns,
        low_per_step_us=us(saving.low_ns / steps) if steps else 0.0,
        high_per_step_us=us(saving.high_ns / steps) if steps else 0.0,
    )


def _plan(facts: Facts, outcome: Outcome) -> pb.Plan | None:
    if not outcome.plan:
        return None
    return pb.Plan(
        fixes=[
            pb.PlannedFix(
                finding=planned.finding,
                rule=outcome.findings[planned.finding].rule.id,
                name=outcome.findings[planned.finding].rule.name,
                saving_us=us(planned.saving_ns),
                window_us=us(planned.window_ns),
            )
            for planned in outcome.plan
        ],
        window_us=us(facts.window.duration_ns),
        saving_us=us(sum(planned.saving_ns for planned in outcome.plan)),
        error_share=facts.replay.error,
    )


def _code(code: str) -> str:
    """Lines of code, each made safe to show; their indentation is kept."""
    return "\n".join(one_line(line) for line in code[:CODE_LIMIT].split("\n"))


def _families(facts: Facts) -> Iterable[pb.KernelFamily]:
    for device in facts.devices:
        for family in device.kernels.by_family():
            yield pb.KernelFamily(
                device=device.id,
                family=family.family.label,
                us=us(family.time_ns),
                share=family.covered_ns / facts.window.duration_ns,
                kernels=family.kernels,
                tensor_core_us=us(family.tensor_core_ns),
                ranges=time_ranges(family.ranges),
            )


def _add_the_rest(report: pb.Report, outcome: Outcome) -> None:
    for rule, answer in outcome.unchecked:
        report.unchecked.add(
            rule=rule.id,
            name=rule.name,
            reason=one_line(answer.reason),
            how_to_record=one_line(answer.how_to_record),
        )
    for rule, clear in outcome.clear:
        report.clear.add(rule=rule.id, name=rule.name, reason=one_line(clear.reason))
