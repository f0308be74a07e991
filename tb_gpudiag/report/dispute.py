"""One small file with what a report of a wrong diagnosis needs.

The events around a finding without credentials, what gpudiag said, and its version. Nothing is sent.
"""

from __future__ import annotations

import gzip
import io
import platform
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tb_gpudiag.errors import GpudiagError, UsageError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import diagnose_file, only_trace
from tb_gpudiag.report.wire import dump, to_dict
from tb_gpudiag.trace.credentials.removing import CredentialFilter
from tb_gpudiag.trace.files.file_names import TraceFile
from tb_gpudiag.trace.kineto.changed_copy import copy_window

TRACE: Final = "excerpt.pt.trace.json.gz"
REPORT: Final = "report.json"
ABOUT: Final = "about.txt"

# Compressed, 4 MB to 8 MB: forges take files of 10 MB to 25 MB. A step of a large model has 50,000 events.
_MOST_EVENTS: Final = 200_000

# So many steps before and after: most rules compare steps, and leave out the first of a recording.
_STEPS_AROUND: Final = 2

# With half or twice its part of the time, a finding is still the same to whoever reads it.
_ALIKE: Final = 2.0

_WITHOUT_STEPS: Final = 1.0
"""So much of the range's length before and after it."""


def dispute(report: pb.Report, file: TraceFile, start_ns: int, rule: str = "") -> bytes:
    """Return the zip file about a finding of this rule, or about the first one that has a place.

    start_ns: of the trace, on the file's clock.

    Raises UsageError if there is no such finding, or the file is not a profiler's trace, and TraceError if it
    cannot be read.
    """
    if report.trace.kind != pb.TraceInfo.trace:
        raise UsageError(
            "only events of a trace of torch.profiler can be cut out",
            where=file.path,
            remedy="attach its report",
        )
    finding = _finding(report, rule, file.path)
    cut = _cut(report, finding, file, start_ns, window(report, finding))
    if not (cut.shows_it or cut.left_out):
        whole = _cut(report, finding, file, start_ns, (0.0, report.trace.duration_us))
        cut = cut if whole.left_out else whole
    # The report without where its file is, and on which host it was recorded.
    made = pb.Report.FromString(report.SerializeToString())
    for name in ("path", "run", "worker", "host"):
        made.trace.ClearField(name)
    found, said = CredentialFilter(), dump({"reports": [to_dict(made)]})
    kept = found.feed(said.encode("utf-8", "replace")) + found.end()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(ABOUT, _about(report, finding, cut))
        archive.writestr(REPORT, kept)
        archive.writestr(TRACE, cut.content, zipfile.ZIP_STORED)
    return content.getvalue()


@dataclass(frozen=True)
class _Cut:
    """A part of the trace, compressed.

    left_out: how many of its events did not fit. again: what gpudiag says about the part alone. shows_it:
    that is the finding, and about as large.
    """

    begin_us: float
    end_us: float
    content: bytes
    left_out: int
    again: str
    shows_it: bool


def _cut(
    report: pb.Report, finding: pb.Finding | None, file: TraceFile, start_ns: int, part: tuple[float, float]
) -> _Cut:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as out:
        left_out = copy_window(
            file.path,
            start_ns + round(part[0] * 1000),
            start_ns + round(part[1] * 1000),
            out.write,
            most_events=_MOST_EVENTS,
            folder=file.folder,
        )
    again, shows_it = _again(packed.getvalue(), report, finding)
    return _Cut(*part, packed.getvalue(), left_out, again, shows_it)


def _finding(report: pb.Report, rule: str, where: str) -> pb.Finding | None:
    if not rule:
        placed = [finding for finding in report.findings if finding.ranges]
        return next(iter([*placed, *report.findings]), None)
    for finding in report.findings:
        if rule.upper() == finding.rule or rule in (finding.name, finding.name.partition("/")[0]):
            return finding
    known = ", ".join(dict.fromkeys(finding.rule for finding in report.findings)) or "none"
    raise UsageError(
        f"no finding of this trace is called {rule}", where=where, remedy=f"its findings: {known}"
    )


def window(report: pb.Report, finding: pb.Finding | None) -> tuple[float, float]:
    """Return the time to cut out, in µs: whole steps around the longest range of the finding."""
    steps = [(step.start_us, step.start_us + step.duration_us) for step in report.steps]
    ranges = [(place.start_us, place.end_us) for place in finding.ranges] if finding is not None else []
    if not ranges:
        chosen = steps[: 2 * _STEPS_AROUND + 1]
        return (chosen[0][0], chosen[-1][1]) if chosen else (0.0, float(report.trace.duration_us))
    start, end = ranges[0]
    inside = [i for i, (begin, stop) in enumerate(steps) if begin <= end and stop >= start]
    if not inside:
        around = (end - start) * _WITHOUT_STEPS
        return start - around, end + around
    chosen = steps[max(0, inside[0] - _STEPS_AROUND) : inside[-1] + _STEPS_AROUND + 1]
    return min(start, chosen[0][0]), max(end, chosen[-1][1])


def _again(excerpt: bytes, report: pb.Report, finding: pb.Finding | None) -> tuple[str, bool]:
    """Diagnose the excerpt alone. Return what is said about the finding, and whether it is about as large."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, TRACE)
        path.write_bytes(excerpt)
        try:
            again = diagnose_file(only_trace(str(path)))
        except GpudiagError as error:
            return f"The excerpt alone cannot be diagnosed: {error.what}", False
    if finding is None:
        rules = ", ".join(other.rule for other in again.findings) or "none"
        return f"The excerpt alone has these findings: {rules}.", not again.findings
    same = next((other for other in again.findings if other.rule == finding.rule), None)
    if same is None:
        return "The excerpt alone does not have the finding.", False
    before, now = _share(report, finding), _share(again, same)
    is_alike = before <= _ALIKE * now and now <= _ALIKE * before
    return f"The excerpt alone has the finding: {same.title}", is_alike


def _share(report: pb.Report, finding: pb.Finding) -> float:
    """The finding's part of the time; 0 if it costs none."""
    window_us = report.devices[0].window_us if report.devices else report.trace.duration_us
    return finding.cost_us / window_us if window_us else 0.0


def _about(report: pb.Report, finding: pb.Finding | None, cut: _Cut) -> str:
    about = "the trace, which has no findings" if finding is None else f"{finding.rule} {finding.title}"
    lines = [
        f"{report.generator}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        f"About: {about}",
        f"{TRACE}: events from {cut.begin_us:.0f} µs to {cut.end_us:.0f} µs of the recording",
        *([f"It was full: {cut.left_out:,} events are left out."] if cut.left_out else []),
        cut.again,
        f"{REPORT}: what gpudiag said about the whole trace",
        "Credentials that were found are left out, and what the trace says of its host and environment. "
        "Names of functions and files stay.",
        "Look through these files before you publish them.",
        "",
    ]
    return "\n".join(lines)
