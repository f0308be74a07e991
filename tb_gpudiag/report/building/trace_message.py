"""The trace: what it is called, notes from reading it, what recording it cost, and the counters in it; and
reports on files that are no trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import Message

from tb_gpudiag.arrays import NONE
from tb_gpudiag.errors import without_url_secrets
from tb_gpudiag.facts.core.intervals import Intervals, Window
from tb_gpudiag.facts.core.recording import Recorded
from tb_gpudiag.facts.waiting.overhead import LEAST, MOST, RecorderCost
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.time_messages import STEPS_LIMIT
from tb_gpudiag.report.building.units import UINT32_MAX, message_of, us
from tb_gpudiag.report.wire import GENERATOR, SCHEMA_VERSION
from tb_gpudiag.rules.recording.secrets_recorded import at_least
from tb_gpudiag.trace.events import Counter, Trace
from tb_gpudiag.trace.files.file_names import named_rank
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.wording.format import one_line
from tb_gpudiag.wording.vocabulary import left_out

PATH_LIMIT = 4_000

_HOST_AND_PID = lazy_re(r"(.+)_\d+")


def name_file(message: pb.TraceInfo, file: TraceFile) -> None:
    """Set what the file's path says of the trace."""
    host = _HOST_AND_PID.fullmatch(file.worker)
    message.run = one_line(file.run)
    message.worker = one_line(file.worker)
    message.span = one_line(file.span)
    message.path = one_line(without_url_secrets(file.path), PATH_LIMIT)
    message.host = one_line(host[1]) if host else ""
    if message.kind == pb.TraceInfo.snapshot:
        rank = named_rank(file.worker)
        message.rank = NONE if rank is None else rank


def report_on_file(file: TraceFile, verdict: pb.Verdict, **found: Message) -> pb.Report:
    """Make the report on dumps or step clocks, which has what was found and nothing else."""
    report = pb.Report(
        schema_version=SCHEMA_VERSION,
        generator=GENERATOR,
        trace=pb.TraceInfo(kind=file.kind, rank=NONE),
        verdict=verdict,
        **found,  # type: ignore[arg-type]
    )
    name_file(report.trace, file)
    return report


NOTES_LIMIT = 50


def trace_message(
    trace: Trace, file: TraceFile, recorded: Recorded, recording: Window, main_thread: int, steps: int
) -> pb.TraceInfo:
    """Describe the trace. `steps` is the number of recorded steps."""
    distributed = trace.metadata.distributed
    places = sum(trace.credentials.values())
    shown = [one_line(note) for note in [*trace.time_notes, *trace.notes][:NOTES_LIMIT]]
    if steps > STEPS_LIMIT:
        shown.append(f"only the first {STEPS_LIMIT:,} of {steps:,} steps are listed")
    # The process of the main thread; 0 if there is none or its id is not a number.
    pid = trace.events.threads[main_thread].pid if main_thread != NONE else ""
    message = pb.TraceInfo(
        status=trace.status,
        events=min(trace.events_read, UINT32_MAX),
        malformed_events=min(trace.malformed_events, UINT32_MAX),
        rank=_number(distributed, "rank", -1),
        world_size=_number(distributed, "world_size", 0),
        recorded=message_of(pb.Recorded, recorded),
        notes=shown,
        simulated=trace.metadata.simulated,
        duration_us=us(recording.duration_ns),
        kind=trace.kind,
        recorder=trace.metadata.recorder,
        pid=int(pid) if pid.isdecimal() and len(pid) < 10 else 0,
        withheld=left_out(places, "What is shared from here", at_least(places, trace.unsearched_bytes))
        if places
        else "",
        reason=one_line(trace.metadata.recorded_because),
    )
    name_file(message, file)
    return message


def _number(metadata: Mapping[str, Any], key: str, missing: int) -> int:
    """A small count in the trace's metadata, which may contain anything."""
    value = metadata.get(key)
    return value if type(value) is int and 0 <= value < 2**31 else missing


def recording_cost_message(cost: RecorderCost, window: Window) -> pb.RecordingCost | None:
    """Estimate what recording frames and operators took of the step window; None without frames."""
    whole = Intervals(np.array([window.start_ns]), np.array([window.end_ns]))
    frames = cost.frames(whole)
    if not frames or not window.duration_ns:
        return None
    low_ns, high_ns = cost.spent_ns(whole, LEAST), cost.spent_ns(whole, MOST)
    return pb.RecordingCost(
        frames=frames,
        operators=cost.operators(whole),
        frame_us=us(cost.frame_ns or 0),
        low_us=us(low_ns),
        high_us=us(high_ns),
        low_share=low_ns / window.duration_ns,
        high_share=high_ns / window.duration_ns,
    )


def counter_messages(counters: Sequence[Counter]) -> list[pb.Counter]:
    """Summarize the values of each counter."""
    return [
        pb.Counter(
            name=one_line(counter.name),
            unit=counter.unit,
            device=counter.device,
            samples=len(counter.value),
            least=float(counter.value.min()),
            mean=float(counter.value.mean()),
            most=float(counter.value.max()),
            timed=counter.timed,
        )
        for counter in counters
    ]
