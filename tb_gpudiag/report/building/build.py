"""Build the Report of a trace. The only module here that takes facts out of Facts: each builder of a message
names what it needs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.compile_reasons import NO_LOG
from tb_gpudiag.facts.waiting.sync_sites import sync_sites
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.compile_messages import compile_log_message, compile_tables
from tb_gpudiag.report.building.finding_messages import (
    Whole,
    clear_messages,
    finding_message,
    plan_message,
    unchecked_messages,
)
from tb_gpudiag.report.building.headline_messages import (
    captured_message,
    graph_table,
    mfu_message,
    rate_table,
    serving_message,
    serving_tables,
)
from tb_gpudiag.report.building.memory_messages import memory_messages
from tb_gpudiag.report.building.time_messages import (
    collective_table,
    device_message,
    family_table,
    host_table,
    hotspot_messages,
    inferred_message,
    module_table,
    step_messages,
    step_time_message,
    sync_table,
)
from tb_gpudiag.report.building.trace_message import counter_messages, recording_cost_message, trace_message
from tb_gpudiag.report.essentials import say_where
from tb_gpudiag.report.wire import GENERATOR, SCHEMA_VERSION
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.better_recording import BetterRecording, better_recording
from tb_gpudiag.rules.outcome import Outcome
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import Verdict, find_verdict
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.wording.format import one_line

SENTENCE_LIMIT = 2_000


def build_report(facts: Facts, file: TraceFile) -> pb.Report:
    outcome = run_rules(facts, RULES)
    report = _essentials(facts, file, outcome)
    steps, window, reasons = facts.steps, facts.window, facts.compile_reasons
    report.MergeFrom(
        pb.Report(
            plan=plan_message(outcome, _whole(facts), facts.replay) if outcome.plan else None,
            inferred_steps=_inferred(facts, facts.device),
            launch_hotspots=hotspot_messages(facts.launches.hotspots.values(), len(steps)),
            tables=[table for table in _tables(facts) if table.rows],
            clear=clear_messages(outcome),
            recording_cost=recording_cost_message(facts.host_work.recorder_cost, window),
            counters=counter_messages(facts.trace.counters),
            better_recording=_better_recording(better_recording(outcome, facts)),
            compile_log=compile_log_message(reasons) if reasons is not NO_LOG else None,
            serving=_serving(facts),
            captured_graphs=captured_message(facts.captured)
            if facts.captured is not None and facts.device
            else None,
            step_time=step_time_message(
                facts.step_time,
                len(steps),
                marked=facts.recorded.steps,
                unprofiled_shares=facts.unprofiled_shares,
            ),
        )
    )
    return report


def build_essentials(facts: Facts, file: TraceFile) -> pb.Report:
    """Build the part of a Report that a digest is made of."""
    return _essentials(facts, file, run_rules(facts, RULES))


def _essentials(facts: Facts, file: TraceFile, outcome: Outcome) -> pb.Report:
    report = pb.Report(
        schema_version=SCHEMA_VERSION,
        generator=GENERATOR,
        trace=trace_message(
            facts.trace, file, facts.recorded, facts.recording, facts.main_thread, len(facts.recorded_steps)
        ),
        devices=[device_message(device) for device in facts.devices],
        steps=step_messages(facts.recorded_steps),
        verdict=_verdict(find_verdict(facts, outcome.findings)),
        findings=[finding_message(f, _whole(facts)) for f in outcome.findings],
        memory=memory_messages(facts.memory, facts.events),
        unchecked=unchecked_messages(outcome),
        mfu=mfu_message(facts.gpu.mfu, facts.gpu.roofline, len(facts.steps)) if facts.devices else None,
    )
    say_where(report)
    return report


def _whole(facts: Facts) -> Whole:
    """What savings are shares of."""
    return Whole(facts.window.duration_ns, facts.step_time.mean, facts.unprofiled_share)


def _verdict(verdict: Verdict) -> pb.Verdict:
    return pb.Verdict(
        limiter=verdict.limiter,
        sentence=one_line(verdict.sentence, SENTENCE_LIMIT),
        busy_share=verdict.busy_share,
        headline=one_line(verdict.headline),
    )


def _better_recording(advice: BetterRecording | None) -> pb.BetterRecording | None:
    if advice is None:
        return None
    return pb.BetterRecording(sentence=one_line(advice.sentence, SENTENCE_LIMIT), code=advice.code)


def _inferred(facts: Facts, device: DeviceFacts | None) -> pb.InferredSteps | None:
    if facts.inferred_steps is None or device is None:
        return None
    return inferred_message(facts.inferred_steps, device.repetitions, facts.recording)


def _serving(facts: Facts) -> pb.Serving | None:
    found, server = facts.serving, facts.job.server
    if found is None or server is None:
        return None
    return serving_message(found, server, for_engine=facts.request_waits.for_engine)


def _tables(facts: Facts) -> Iterator[pb.Table]:
    window = facts.window
    yield host_table(facts.host, facts.main_thread_spans, window)
    yield family_table(facts.devices, window)
    yield module_table(facts.devices)
    yield collective_table(facts.exposure, facts.host, facts.device)
    if facts.device is not None:
        # Tables of the busiest device.
        times = facts.host_time.blocking, facts.device.time, facts.window, facts.host_window
        yield sync_table(sync_sites(facts.host, facts.transfers, *times), facts.host)
        if not facts.gpu.mfu.missing:
            yield rate_table(facts.gpu.roofline)
        if facts.captured is not None and facts.captured.matched:
            _, kernels = facts.device.naming
            graphs = facts.work.in_graph[np.searchsorted(facts.work.event, kernels.event)]
            yield graph_table(facts.captured.host, kernels, graphs)
    if facts.compile_reasons is not NO_LOG:
        yield from compile_tables(facts.compile_reasons, facts.events, facts.all_steps)
    if facts.serving is not None and facts.job.server is not None:
        yield from serving_tables(facts.serving, facts.job.server, window)
