"""What makes a recording say less about the job than it seems to: one list. Each doubt says when it holds,
which rules it touches, and what it does to them. Severity, promises and the verdict read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.places import by_operator
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.gpu_use import GpuUse
from tb_gpudiag.facts.waiting.interruptions import FAR_LONGER
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding, Severity
from tb_gpudiag.rules.rule import LEAST_ERROR_NS, AnyRule
from tb_gpudiag.rules.shared.lost_time import COMPUTE_SHARE, Lost, lost_time
from tb_gpudiag.rules.shared.odd_recordings import (
    MOSTLY_LOADING,
    capture_ns,
    capture_sentence,
    first_run_sentence,
    is_thinned,
    loading_limits,
    lost_sentence,
    lost_share,
    no_gpu_sentence,
    nothing_of_the_job,
    steps_end_unseen,
    thinned_sentence,
)
from tb_gpudiag.rules.shared.recording_advice import little_work
from tb_gpudiag.rules.shared.server_recording import of_one_step, one_replayed_step
from tb_gpudiag.rules.shared.slowed_recording import (
    behind_blocking,
    host_likely_limits,
    host_may_keep_up,
    without_promise,
    without_recorder,
)
from tb_gpudiag.rules.shared.verdict_sentences import Said
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.engines import UNKNOWN_STEP
from tb_gpudiag.wording.format import in_quotes, share, time_ns
from tb_gpudiag.wording.good_recording import RECORD_HISTORY

T = TypeVar("T")

ABOUT_TIME = frozenset({"idle", "launches", "transfers", "kernels", "ranks"})
"""Families of rules whose findings are about time: without a steady state there is nothing to judge."""

ABOUT_A_JOB = ABOUT_TIME - {"kernels"}
"""Families that say nothing about a handful of kernels. A kernel problem shows even in a single kernel."""

ABOUT_THE_JOB = ABOUT_TIME | {"memory"}

HOST_SPEED = frozenset({"launch", "python"})
"""Topics of rules about the host's own work between and in launches, which recording makes slower."""


@dataclass(frozen=True)
class Doubt:
    """What makes a recording untrustworthy.

    holds: whether it does. touches: families and topics of the rules that it is about.
    silent: what these answer instead of checking. corrects: what becomes of each finding of theirs. at_most:
    how severe their findings are. finding: what becomes of one, instead of a promise.
    steps: what is said instead of comparing steps.
    verdict: what is said instead of a limiter, as nothing can be known of it. busy: how busy the GPU was is
    known all the same. first: a sentence before the verdict, which is about the rest.
    """

    holds: Callable[[Facts], object]
    touches: frozenset[str] = frozenset()
    silent: Callable[[Facts], CannotTell] | None = None
    corrects: Callable[[Finding, AnyRule, Facts], Finding] | None = None
    at_most: Severity = Severity.ERROR
    finding: Callable[[Finding, Facts], Finding] | None = None
    steps: Callable[[Facts], Clear | CannotTell] | None = None
    verdict: Callable[[Facts], Said] | None = None
    busy: bool = False
    first: Callable[[Facts], str] | None = None


def doubts_about(rule: AnyRule, facts: Facts) -> Iterator[Doubt]:
    """Yield what makes this recording untrustworthy for a rule."""
    about = {rule.family, rule.topic}
    return (doubt for doubt in DOUBTS if about & doubt.touches and doubt.holds(facts))


def corrected(found: Finding, rule: AnyRule, facts: Facts) -> Finding:
    """Return a rule's finding as far as this recording can be trusted."""
    for doubt in doubts_about(rule, facts):
        found = doubt.corrects(found, rule, facts) if doubt.corrects is not None else found
    return found


def not_comparable(facts: Facts) -> Clear | CannotTell | None:
    """Return what is said instead of comparing the times of steps; None if they can be compared."""
    return next((steps(facts) for steps, _ in _said(lambda doubt: doubt.steps, facts)), None)


def nothing_limits(facts: Facts) -> tuple[Said, bool] | None:
    """Return what is said where nothing can be known of what limits the job, and whether it is known how busy
    the GPU was; None if something can be known."""
    said = _said(lambda doubt: doubt.verdict, facts)
    return next(((verdict(facts), doubt.busy) for verdict, doubt in said), None)


def sentences_before(facts: Facts) -> list[str]:
    """Return what has to be said before any verdict."""
    return [first(facts) for first, _ in _said(lambda doubt: doubt.first, facts)]


def _said(what: Callable[[Doubt], T | None], facts: Facts) -> Iterator[tuple[T, Doubt]]:
    """Yield what the doubts that hold have to say of this, and each doubt."""
    for doubt in DOUBTS:
        said = what(doubt)
        if said is not None and doubt.holds(facts):
            yield said, doubt


def _cannot_tell(reason: str, how_to_record: str = "") -> Callable[[Facts], CannotTell]:
    return lambda _facts: CannotTell(reason, how_to_record)


def _computing_share(facts: Facts) -> float:
    """The share of the step window in which the GPU computes; 0 without a GPU."""
    if facts.device is None:
        return 0.0
    return int(facts.device.window_account.computing_ns[0]) / max(1, facts.window.duration_ns)


def _blocked_by_launches(facts: Facts) -> bool:
    """Whether every launch waits for its kernel (CUDA_LAUNCH_BLOCKING), and the GPU computes for longer than
    the host needs for its own work: without the variable the host is ahead, and that work costs nothing."""
    return facts.host_time.launches_block and _computing_share(facts) >= levels.HALF


def _of_unseen_gpu(what: str, use: GpuUse, facts: Facts) -> Said:
    """What a recording without its GPU says. Loading takes the same whatever the GPU does."""
    lost = lost_time(facts)
    loading = lost.share(lost.total_ns(lost.of(Cause.INPUT)))
    if loading_limits(use, loading):
        said = f"{what} The host does not wait for it: reads of its values return at once. "
        said += "The main thread spent most of its time loading data, which limits the job."
        return "input", said
    most = ["loading data"] if loading >= MOSTLY_LOADING else _largest_operator(facts, lost)
    where = "".join(f" The main thread was longest {doing}." for doing in most)
    return "unknown", f"{what.removesuffix('.')}, so this report cannot say what limits the job.{where}"


def _largest_operator(facts: Facts, lost: Lost) -> list[str]:
    """Return in which operator the main thread was longest, and its share of the time; nothing if that is
    little. A GPU that was not recorded does not make this less true."""
    ranked = [(name, lost.share(ns)) for name, ns in by_operator(facts.host, lost.event, lost.length_ns)[:1]]
    return [
        f"in {in_quotes(name, 80)}: {share(took)} of the time"
        for name, took in ranked
        if took >= levels.LARGE
    ]


def _unread(facts: Facts) -> str:
    return facts.recorded.unread_accelerator if facts.device is None else ""


def _all_events(facts: Facts) -> int:
    return facts.trace.events_read + facts.trace.malformed_events


def _share_of(facts: Facts, cause: Cause) -> str:
    lost = lost_time(facts)
    return share(lost.total_ns(lost.of(cause)), lost.window_ns)


def _of_silence(facts: Facts) -> str:
    silence_ns, recorded_ns = facts.silence.duration_ns, facts.recording.duration_ns
    return f"{share(silence_ns, recorded_ns)} of the recording, {time_ns(silence_ns)}"


def _one_call(facts: Facts) -> str:
    """Say which call of an operator was interrupted for most of the time."""
    found = facts.host_work.interruptions
    return (
        f"one call of {in_quotes(facts.host.name(found.longest), 80)} takes "
        f"{share(found.longest_ns, facts.window.duration_ns)} of the time, over {FAR_LONGER} times as long "
        "as most calls like it"
    )


# No operator, kernel or step takes a minute in which nothing else begins or ends.
LONG_SILENCE_NS = 60_000_000_000


DOUBTS: Sequence[Doubt] = (
    Doubt(
        is_thinned,
        touches=ABOUT_THE_JOB,
        silent=_cannot_tell(
            "events were removed from the file", "Diagnose the file as the profiler wrote it."
        ),
        verdict=lambda facts: (
            "unknown",
            f"{thinned_sentence(facts)} The figures below are of what is left: they do not show how busy the "
            "GPU was, or what limits the job.",
        ),
    ),
    Doubt(
        lambda facts: facts.trace.without_history,
        touches=frozenset({"memory"}),
        silent=_cannot_tell("the snapshot has no history", f"{RECORD_HISTORY}."),
        first=lambda _: (
            "The snapshot has no history: it shows how much memory was in use, and not for what or since "
            f"when. {RECORD_HISTORY}."
        ),
    ),
    Doubt(
        lambda facts: facts.trace.status == "PARTIAL",
        first=lambda _: "The file ends in the middle. What follows is about what is left of it.",
    ),
    Doubt(
        lambda facts: facts.trace.malformed_events > levels.SLIGHT * _all_events(facts),
        first=lambda facts: (
            f"{share(facts.trace.malformed_events, _all_events(facts))} of the file's events are malformed. "
            "What follows is about the rest."
        ),
    ),
    Doubt(
        lambda facts: facts.trace.cut_work >= levels.HALF * max(1, len(facts.work.event)),
        touches=ABOUT_TIME,
        silent=_cannot_tell("most kernels cannot have run when the file says", "Record again."),
        verdict=lambda _: (
            "unknown",
            "By their times, most kernels still ran when later ones of their stream had ended, which cannot "
            "be. The times are wrong, so nothing can be said of what limits the job.",
        ),
    ),
    Doubt(
        lambda facts: facts.recorded.kept_inputs,
        touches=frozenset({"growth"}),
        silent=_cannot_tell(
            "the recorder itself keeps sparse CSR tensors, whose shapes it recorded",
            "Record with profile_memory=True and without record_shapes.",
        ),
    ),
    # Events are not written in order of time: a GPU's may be what is missing.
    Doubt(
        lambda facts: (facts.trace.status, facts.device) == ("PARTIAL", None),
        touches=ABOUT_TIME | {"part"},
        silent=_cannot_tell("the file ends in the middle, and no GPU activity is left", "Record again."),
        verdict=lambda _: (
            "unknown",
            "It has no GPU activity, which may be among what is missing: nothing can be said of what limits "
            "the job.",
        ),
    ),
    Doubt(
        lambda facts: not facts.window.duration_ns,
        touches=ABOUT_TIME,
        silent=_cannot_tell("the trace has no host or GPU activity"),
        verdict=lambda _: ("unknown", "The trace holds no host or GPU activity, so nothing can be said."),
    ),
    Doubt(
        lambda facts: (
            facts.silence.duration_ns >= max(LONG_SILENCE_NS, levels.HALF * facts.recording.duration_ns)
        ),
        touches=ABOUT_A_JOB,
        silent=lambda facts: CannotTell(f"nothing begins or ends for {_of_silence(facts)}", "Record again."),
        verdict=lambda facts: (
            "unknown",
            f"For {_of_silence(facts)}, nothing began or ended on any thread or GPU: a clock jumped, the "
            "process was suspended, or what it did was not recorded. The rest is too little to say what "
            "limits the job.",
        ),
    ),
    Doubt(
        lambda facts: (
            facts.on_cpu
            and facts.host_work.interruptions.longest_ns >= levels.HALF * max(1, facts.window.duration_ns)
        ),
        touches=ABOUT_TIME,
        silent=lambda facts: CannotTell(f"the job was interrupted: {_one_call(facts)}", "Record again."),
        verdict=lambda facts: (
            "unknown",
            f"Something interrupted the job: {_one_call(facts)}. Nothing can be said of what limits it. "
            "Record again.",
        ),
    ),
    Doubt(
        lambda facts: facts.after_recording_ns >= levels.HALF * max(1, facts.recording.end_ns),
        first=lambda facts: (
            f"The file goes on for {time_ns(facts.after_recording_ns)} after the last operator and kernel: "
            "nothing was recorded there."
        ),
    ),
    Doubt(
        capture_ns,
        touches=ABOUT_TIME,
        silent=_cannot_tell(
            "the recording is of the capture of a graph, in which nothing runs",
            "Record steps after the capture.",
        ),
        verdict=lambda facts: ("initialization", capture_sentence(facts)),
    ),
    Doubt(
        lambda facts: facts.steady.mostly is Cause.INITIALIZATION,
        touches=ABOUT_TIME,
        silent=_cannot_tell(
            "first-run work takes most of the recording",
            "Record after a few warm-up steps: schedule(wait=5, warmup=2, active=6).",
        ),
        verdict=lambda facts: ("initialization", first_run_sentence(facts)),
        busy=True,
    ),
    Doubt(
        lambda facts: facts.steady.mostly is Cause.UNRECORDED,
        touches=ABOUT_A_JOB,
        silent=_cannot_tell(
            "the GPU may have run work from before the recording for most of it",
            "Call torch.cuda.synchronize() before the steps to record.",
        ),
        verdict=lambda facts: (
            "unknown",
            f"For {_share_of(facts, Cause.UNRECORDED)} of the time it shows no work while the host waits for "
            "it: it may have been running work from before the recording. The rest is too short to say what "
            "limits the job. Call torch.cuda.synchronize() before the steps to record.",
        ),
        busy=True,
    ),
    Doubt(
        little_work,
        touches=ABOUT_A_JOB,
        silent=lambda facts: CannotTell(
            f"only {little_work(facts)}, too little to judge a job by", "Record several steps of the job."
        ),
        verdict=lambda facts: (
            "unknown",
            f"Only {little_work(facts)}: too little to say what limits a job. Record several steps.",
        ),
        busy=True,
    ),
    Doubt(
        _unread,
        touches=ABOUT_TIME,
        silent=lambda facts: CannotTell(f"the job runs on {_unread(facts)}, whose activity is not read"),
        verdict=lambda facts: _of_unseen_gpu(
            f"The job runs on {_unread(facts)}, whose activity is not read.", GpuUse(), facts
        ),
    ),
    Doubt(
        nothing_of_the_job,
        verdict=lambda _: (
            "unknown",
            "Nothing of the job was recorded: no operator and no launch ran while the profiler was active.",
        ),
    ),
    # A GPU may have worked that the trace does not show: then the host's time may cost nothing.
    Doubt(
        lambda facts: facts.gpu_use.possible,
        touches=ABOUT_TIME,
        at_most=Severity.WARNING,
        verdict=lambda facts: _of_unseen_gpu(no_gpu_sentence(facts.gpu_use), facts.gpu_use, facts),
    ),
    # A step or two of a toy: an interrupt takes as long.
    Doubt(
        lambda facts: facts.on_cpu and facts.window.duration_ns < LEAST_ERROR_NS,
        touches=ABOUT_TIME,
        at_most=Severity.INFO,
    ),
    Doubt(
        lambda facts: lost_share(facts) >= levels.SIZEABLE,
        first=lambda facts: f"{lost_sentence(facts)} What follows is about the rest.",
    ),
    Doubt(_blocked_by_launches, touches=HOST_SPEED, at_most=Severity.INFO, finding=behind_blocking),
    Doubt(host_may_keep_up, touches=HOST_SPEED, at_most=Severity.WARNING, finding=without_promise),
    Doubt(
        lambda facts: host_may_keep_up(facts) and not host_likely_limits(facts),
        touches=HOST_SPEED,
        at_most=Severity.INFO,
    ),
    Doubt(one_replayed_step, touches=HOST_SPEED, at_most=Severity.INFO, finding=of_one_step),
    Doubt(
        lambda facts: facts.host_work.recorder_cost.frame_starts_ns.size,
        touches=HOST_SPEED | {"input"},
        corrects=without_recorder,
    ),
    # Each row of a batch is an operator or two, and recording one takes as long as it does.
    Doubt(
        lambda facts: facts.on_cpu and not facts.host_work.recorder_cost.frame_starts_ns.size,
        touches=frozenset({"input"}),
        corrects=without_recorder,
    ),
    Doubt(
        lambda facts: facts.engine and all(mark == UNKNOWN_STEP for mark in facts.engine.marks),
        steps=lambda _: Clear(
            "engine steps are not marked, and may have batches of different kinds and sizes"
        ),
    ),
    Doubt(
        lambda facts: len({mark[:3] for mark in facts.engine.marks}) > 1,
        steps=lambda _: Clear(
            "engine steps have batches of different kinds and sizes: the report has them by kind"
        ),
    ),
    Doubt(
        steps_end_unseen,
        steps=lambda _: CannotTell(
            "some kernels were launched and not recorded, so it is not known when their steps ended",
            "Record fewer steps.",
        ),
    ),
    # Where computing limits the job, the host's speed is a hint: recording slows the host as much.
    Doubt(lambda facts: _computing_share(facts) >= COMPUTE_SHARE, touches=HOST_SPEED, at_most=Severity.INFO),
)
