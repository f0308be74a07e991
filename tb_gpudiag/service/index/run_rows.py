"""Rows of the table of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final
from zlib import crc32

from tb_gpudiag.digest.digest import WORK, Digest, MemoryPeaks, numbers, texts, time_parts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import ends_job, own_place, without_hints
from tb_gpudiag.wording.vocabulary import LIMITERS, bottleneck, limiter_word

# The costliest operators stay the same from a run to the next one, whatever was mended.
WORK_CODES: Final = 8


def run_row(digest: Digest) -> pb.RunRow:
    about = digest.about
    step = digest.step_time
    # Codes of the costliest operators with their input shapes, none if no shapes were recorded.
    table = digest.kernels
    spent: Counter[str] = Counter()
    columns = (texts(table, "operator"), texts(table, "shapes"), numbers(table, "time_ns").tolist())
    for operator, shapes, time_ns in zip(*columns, strict=True):
        if operator and any(map(str.isdigit, shapes)):
            spent[f"{operator} {shapes}"] += time_ns
    return row_with(
        digest.findings,
        run=about.run,
        kind=about.kind,
        worker=about.worker,
        ranks=1,
        recordings=1,
        time_s=about.origin_ns / 1e9,
        step_us=round(step.median) / 1_000,
        low_step_us=round(step.low) / 1_000,
        high_step_us=round(step.high) / 1_000,
        unprofiled_step_us=round(step.mean * about.unprofiled_share) / 1_000,
        busy_share=about.busy_share,
        account=_account(digest) * (about.kind == "trace"),  # the others have no times
        limiter=about.limiter,
        sentence=about.sentence,
        memory_share=memory_share(about.memory),
        work=sorted(crc32(work.encode(errors="surrogatepass")) for work, _ in spent.most_common(WORK_CODES)),
    )


def job_row(job: pb.JobReport, of_ranks: Sequence[pb.RunRow]) -> pb.RunRow:
    """Return the row of a job: its step as its report has it, and the rank in the middle; mean busy share and
    highest memory share of its ranks."""
    middle = sorted(of_ranks, key=lambda row: row.step_us)[len(of_ranks) // 2]
    return row_with(
        job.findings,
        run=job.run,
        kind="job",
        ranks=len(job.ranks),
        recordings=1,
        time_s=middle.time_s,
        step_us=job.step_time.median_us,
        low_step_us=middle.low_step_us,
        high_step_us=middle.high_step_us,
        unprofiled_step_us=job.step_time.unprofiled_us,
        busy_share=sum(row.busy_share for row in of_ranks) / len(of_ranks),
        account=middle.account,
        limiter=job.verdict.limiter,
        sentence=job.verdict.sentence,
        memory_share=max(row.memory_share for row in of_ranks),
        work=middle.work,
    )


def row_with(findings: Sequence[pb.Finding], **more: Any) -> pb.RunRow:
    """Return a row with the first finding, and what is worst among all."""
    counted = without_hints(findings)
    first = next(iter(counted), pb.Finding())
    row = pb.RunRow(
        first_rule=first.rule,
        first_title=first.title,
        saving_share=first.saving.high_share,
        low_saving_share=first.saving.low_share,
        severity=max((finding.severity for finding in counted), default=pb.Finding.INFO),
        growth_bytes_per_step=max((finding.cost_bytes_per_step for finding in counted), default=0.0),
        **more,
    )
    limits = limiter_word(pb.Verdict.Limiter.Name(row.limiter), on_gpu=row.busy_share > 0)
    word = LIMITERS["memory"].word if ends_job(partial(getattr, row)) else bottleneck(limits)
    row.why = "; look first ".join(filter(None, (word, own_place(first)))) * bool(counted)
    return row


def _account(digest: Digest) -> list[pb.CauseTime]:
    """Return the parts of the step window: of the GPU, or of the host if there is no GPU."""
    about = digest.about
    spent = time_parts(digest.steps, about, about.causes, on_gpu=about.devices > 0).sum(axis=0).tolist()
    parts = zip((*WORK, *about.causes), spent, strict=True)
    return [pb.CauseTime(cause=name, us=ns / 1_000) for name, ns in parts if ns]


def memory_share(memories: Iterable[MemoryPeaks | pb.DeviceMemory]) -> float:
    """Return the highest share of its memory that a device reserved."""
    shares = [m.peak_reserved_bytes / m.capacity_bytes for m in memories if m.capacity_bytes > 0]
    return max(shares, default=0.0)
