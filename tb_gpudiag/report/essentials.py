"""What lists and overviews take of Reports: findings about the job, the busiest GPU, how urgent it is, and
places in the code in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.rules.rule import family_of
from tb_gpudiag.vocabulary.frames import Frame, LineKind
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.wording.format import size_bytes
from tb_gpudiag.wording.quantity import throughput


def without_hints(findings: Iterable[pb.Finding]) -> list[pb.Finding]:
    """Return the findings in their order, without hints about the recording: `better_recording` of a Report
    says all of these in one line."""
    hint = pb.Finding.INFO
    return [one for one in findings if family_of(one.rule) != "recording" or one.severity != hint]


_RATE = lazy_re(r"(?: by)? ([\d.,]+\u00a0?[KMGT]?i?B) per [a-z ]+?(?=$|[:,.])")


def title_below(title: str, verdict: pb.Verdict) -> str:
    """A finding's title below a verdict: without the rate of a leak, if that stands there."""
    rates = [rate for rate in _RATE.finditer(title) if f" {rate[1]} per " in verdict.headline + verdict.leak]
    return title.replace(rates[0][0], "") if rates else title


def sentence_above(verdict: pb.Verdict, findings: Iterable[pb.Finding]) -> str:
    """The verdict's sentence, without the titles of the findings that stand below it."""
    titles = (f"{finding.title}. " for finding in without_hints(findings))
    return reduce(lambda said, title: said.replace(title, ""), titles, verdict.sentence)


def busiest(report: pb.Report) -> pb.Device | None:
    """Return the GPU with the most work in the step window; None without one."""
    devices = [device for device in report.devices if device.window_us > 0]
    return max(devices, key=lambda device: device.window_us - device.window_idle_us, default=None)


def peak_text(found: pb.Mfu) -> str:
    """The peak that an MFU is a share of, such as `989 TFLOP/s (BF16)`."""
    return f"{throughput(found.peak_teraflops)} ({found.computes_in}{', assumed' if found.assumed else ''})"


# What the first fix saves for sure; how fast memory grows, as the fix of a leak saves no time; and last what
# the fix saves at best, as that says little.
_SAVED = ("low_saving_share", "growth_bytes_per_step", "saving_share")


def urgency(field: Callable[[str], Any]) -> tuple[float, ...]:
    """Return what rows of the table of runs are sorted by, from their fields: how bad the worst finding is,
    whether it ends the job, and what a fix saves. That of the most urgent run is the largest."""
    return (field("severity"), ends_job(field), *map(field, _SAVED))


def ends_job(field: Callable[[str], Any]) -> bool:
    """Whether a run's first finding is that it has no memory left, or soon has none."""
    return bool(field("severity") == pb.Finding.ERROR and family_of(field("first_rule")) == "memory")


def code_place(where: pb.Place, was: pb.Place | None = None) -> str:
    """The function with its file and line, as much of it as is known. was: before an edit of the file."""
    before = f" (was line {was.line})" if was is not None and was.line else ""
    return f"{frame_of(where)}{before}"


def full_place(where: pb.Place) -> str:
    """The function, operator, module, `record_function` and caller, as much of it as is known."""
    parts = [
        _spot(frame_of(where), where),
        *_ranges(where),
        f"called from {code_place(where.caller)}" if where.HasField("caller") else "",
        _candidates(where),
    ]
    return ", ".join(filter(None, parts))


def short_place(where: pb.Place) -> str:
    """The same with the user's own function first and with fewer folders: its end may be cut off."""
    through = f"through {_spot(_short(frame_of(where)), where)}" if where.HasField("caller") else ""
    return ", ".join(filter(None, [_own(where), through, *_ranges(where)]))


def say_where(report: pb.Report) -> None:
    """Write the user's own functions, and lines if they are known, into the verdict: what the first fix is
    about, and a leak that its headline does not tell of. Such a leak limits nothing."""
    found, verdict = without_hints(report.findings), report.verdict
    first = (one for one in found if verdict.headline or not one.cost_bytes_per_step)
    verdict.where = own_place(next(first, pb.Finding()))
    leaks = (one for one in found if one.cost_bytes_per_step)
    leak = next(
        (one for one in leaks if size_bytes(one.cost_bytes_per_step) not in verdict.headline), pb.Finding()
    )
    where = own_place(leak) * (own_place(leak) != verdict.where)
    verdict.leak = ", ".join(filter(None, (leak.title.partition(": ")[0], where)))


def own_place(finding: pb.Finding) -> str:
    """The user's own function, and line if known, that a finding is about; "" if an operator is all."""
    return next(filter(None, (_own(where, called=False) for where in finding.places)), "")


def _own(where: pb.Place, *, called: bool = True) -> str:
    """`in load (train.py, defined at line 7), probably line 9: x = resize(x)`. called: also the operator that
    the function called."""
    own = where.caller if where.HasField("caller") else where
    frame = _short(frame_of(own))
    spot = _spot(frame, own) if called else str(frame)
    return ", ".join(filter(None, [f"{preposition(own)} {spot}" if spot else "", _candidates(where)]))


def _spot(frame: Frame, where: pb.Place) -> str:
    """A function and its operator."""
    spot = str(frame)
    if where.operator:
        return f"{spot} ({where.operator})" if spot else where.operator
    return spot


def _ranges(where: pb.Place) -> list[str]:
    return [f"module {where.module}" if where.module else "", f"range {where.range}" if where.range else ""]


def _short(frame: Frame) -> Frame:
    folders = frame.file.split("/")
    return frame._replace(file="/".join(["…", *folders[-2:]])) if len(folders) > 2 else frame


def _candidates(where: pb.Place) -> str:
    """`probably line 45: x = resize(x)`, or the lines to choose from."""
    lines = where.caller.candidates or where.candidates
    word = "probably" if len(lines) == 1 else "one of"
    return f"{word} {'; '.join(f'line {one.line}: {one.text}' for one in lines)}" if lines else ""


def preposition(where: pb.Place) -> str:
    """`at` a line that ran, `in` a function."""
    return frame_of(where).preposition


def frame_of(where: pb.Place) -> Frame:
    """A place of a report as a frame."""
    return Frame(where.file, where.line, where.function, LineKind(where.line_kind))
