"""The verdict: one limiter over the step window, and a sentence that a newcomer understands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from itertools import chain

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.doubts import nothing_limits, sentences_before
from tb_gpudiag.rules.limiter_doubts import Judged, doubted
from tb_gpudiag.rules.outcome import RuleFinding
from tb_gpudiag.rules.rule import AnyRule
from tb_gpudiag.rules.shared.cpu_verdict import cpu_verdict
from tb_gpudiag.rules.shared.emptied_cache import emptying_sentences
from tb_gpudiag.rules.shared.host_task_fixes import waits_sentence
from tb_gpudiag.rules.shared.kernel_time import KernelTime
from tb_gpudiag.rules.shared.leak import leak_headlines, leak_sentences
from tb_gpudiag.rules.shared.lost_time import (
    CLEAR_LEAD,
    LIMITER_SHARE,
    MOSTLY_UNSEEN,
    Lost,
    WindowParts,
    computing_limits,
    lost_time,
    own_range,
    split_window,
    unseen,
)
from tb_gpudiag.rules.shared.out_of_memory import out_of_memory_sentences, out_of_memory_title
from tb_gpudiag.rules.shared.recording_advice import sentences_for
from tb_gpudiag.rules.shared.slowed_recording import host_may_keep_up, slowed_sentences
from tb_gpudiag.rules.shared.verdict_sentences import (
    BESIDES_COMPUTING,
    first_fix_sentence,
    leads,
    left_out_sentences,
    waiting_sentence,
)
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.recorded import FileKind
from tb_gpudiag.wording.format import count, in_quotes, share, size_bytes
from tb_gpudiag.wording.vocabulary import CAUSES, FILE_KINDS, LIMITERS


@dataclass(frozen=True)
class Verdict:
    """`busy_share` is the busiest device's share of the step window, 0 to 1; 0 without a device, and where
    nothing can be said of it. `headline`: what ends the job; "" if nothing does."""

    limiter: str
    sentence: str
    busy_share: float
    headline: str = ""


def find_verdict(facts: Facts, ranked: Sequence[RuleFinding] = ()) -> Verdict:
    """Name the largest part of the step window, if it is large enough to limit the job, with its doubts.

    ranked: the findings in their order, so that the verdict agrees with it.
    A failed allocation and a leak that end the job are not limiters: the headline and the sentence start with
    them.
    """
    verdict = _without_memory(facts, [found.rule for found in ranked])
    waits = waiting_sentence(verdict.limiter, ranked)
    said = sentences_for(verdict.sentence, {facts.trace.metadata.recorder})
    limits = _WORDS["communication"]
    if waits and limits in said:  # what is waited for does
        said, waits = said.replace(limits, waits), ""
    first = ""
    if not host_may_keep_up(facts):  # what may be the recorder's promises nothing that could be compared
        first = first_fix_sentence(verdict.limiter, ranked, facts.window.duration_ns)
    emptying = emptying_sentences(facts.memory, facts.window.duration_ns)
    ran_out = list(_ran_out(facts.memory))
    ends = [*(said for _, said in ran_out), *leak_sentences(facts.memory)]
    sentences = [*ends, *sentences_before(facts), said, waits, first, *emptying]
    headline = next(chain((line for line, _ in ran_out), leak_headlines(facts.memory)), "")
    return replace(verdict, sentence=" ".join(filter(None, sentences)), headline=headline)


def _ran_out(memories: Sequence[DeviceMemory]) -> Iterator[tuple[str, str]]:
    """Yield a headline and a sentence on each memory that ran out: it ended the job."""
    for memory in memories:
        if memory.failure is not None and memory.ran_out:
            said = [of(memory, memory.failure) for of in (out_of_memory_title, out_of_memory_sentences)]
            yield f"Out of memory on {memory.name}", ". ".join(said).strip()


def _without_memory(facts: Facts, ranked: Sequence[AnyRule]) -> Verdict:
    if facts.trace.kind != "trace":
        return _memory_file(facts.trace.kind, next(iter(facts.memory), None))
    if (nothing := nothing_limits(facts)) is not None:
        (limiter, said), busy_is_known = nothing
        if not busy_is_known:
            return Verdict(limiter, said, 0.0)
        start, busy = _busy(facts, _parts(facts, facts.gpu, lost_time(facts)))
        return Verdict(limiter, f"{start} {said}", busy)
    lost = lost_time(facts)
    hidden = unseen(lost, facts)
    if facts.device is None:
        return Verdict(*cpu_verdict(facts, lost, lost.total_ns(hidden)), 0.0)
    judged = Judged(
        facts, _parts(facts, facts.device, lost), lost.total_ns(hidden), own_range(lost, facts.host, hidden)
    )
    return _gpu(judged, ranked)


def _parts(facts: Facts, device: DeviceFacts, lost: Lost) -> WindowParts:
    return split_window(device.window_account, lost, device.lost.total)


def _busy(facts: Facts, parts: WindowParts) -> tuple[str, float]:
    """How busy the GPU was, in words and as a share of the step window."""
    busy = parts.busy_ns / parts.window_ns
    return f"The GPU was busy {share(busy)} of the step window.", busy


def _gpu(judged: Judged, ranked: Sequence[AnyRule]) -> Verdict:
    facts, parts = judged.facts, judged.parts
    start, busy = _busy(facts, parts)
    limiter, said = doubted(judged, _limiter(parts, ranked))
    if limiter == "compute":
        said = f"{said} {_one_kernel(facts)}".strip()
    small = KernelTime(facts).small_model_sentence
    said = " ".join(filter(None, [said, waits_sentence(facts, limiter), small, *slowed_sentences(facts)]))
    for taken_ns, sentence in ((parts.lost_ns, _LOST), (parts.profiler_ns, _PROFILER)):
        if LIMITER_SHARE * parts.window_ns <= taken_ns < MOSTLY_UNSEEN * parts.window_ns:
            start += f" {sentence.format(share(taken_ns, parts.window_ns))}"
    inferred = len(facts.steps) > 0 and not facts.recorded.steps
    left_out = left_out_sentences(facts.steady, inferred=inferred)
    sentences = [*left_out, start, said] if leads(facts.steady) else [start, said, *left_out]
    return Verdict(limiter, " ".join(sentences), busy)


def _one_kernel(facts: Facts) -> str:
    name, time_ns = facts.gpu.kernels.largest
    if time_ns < levels.HALF * facts.window.duration_ns:
        return ""
    return f"One kernel, {in_quotes(name, 80)}, takes {share(time_ns, facts.window.duration_ns)} of the time."


def _limiter(parts: WindowParts, ranked: Sequence[AnyRule]) -> tuple[str, str]:
    """The limiter, and the sentence that says so."""
    window_ns, by_limiter = parts.window_ns, parts.by_limiter
    if parts.lost_ns >= MOSTLY_UNSEEN * window_ns:
        return "unknown", "This trace does not show what limits the job."
    if parts.profiler_ns >= MOSTLY_UNSEEN * window_ns:
        return "unknown", _THE_PROFILER.format(share(parts.profiler_ns, window_ns))
    first, second = sorted(by_limiter, key=lambda part: -by_limiter[part])[:2]
    most_ns = by_limiter[first]
    if computing_limits(parts.computing_ns, most_ns, parts.seen_ns) or most_ns < LIMITER_SHARE * window_ns:
        return "compute", "Computing limits this job, so faster kernels help most."
    if most_ns < CLEAR_LEAD * by_limiter[second]:
        return "mixed", f"No single cause limits this job: {_noun(first)} and {_noun(second)} cost most."
    limiter = _host_limiter(parts, ranked) if first == "host" else first
    said = _WORDS[limiter]
    if parts.computing_ns >= CLEAR_LEAD * most_ns:
        most = f"most time goes to {_noun(limiter)}"
        said = BESIDES_COMPUTING.format(computing=share(parts.computing_ns, window_ns), most=most)
    said = said.format(all_requests=share(parts.requests_ns, window_ns))
    return "launch" if limiter == "nodes" else limiter, said


def _noun(part: str) -> str:
    """A key of WindowParts.by_limiter inside a sentence."""
    names = {"host": "waiting for the host", "nodes": CAUSES[Cause.GRAPH.label].noun}
    return names.get(part) or LIMITERS[part].noun


def _host_limiter(parts: WindowParts, ranked: Sequence[AnyRule]) -> str:
    """What the host mostly does. Where two are nearly as much, the first finding about them decides."""
    by_time = sorted(parts.host, key=lambda part: -parts.host[part])
    near = [part for part in by_time if parts.host[by_time[0]] < CLEAR_LEAD * parts.host[part]]
    return next((rule.topic for rule in ranked if rule.topic in near), by_time[0])


_WORDS: Mapping[str, str] = json.loads(
    resources.files(__package__).joinpath("verdict.json").read_text(encoding="utf-8")
)
"""What is said of each limiter. Its share is said by the finding about it, if there is one."""

_THE_PROFILER = (
    "The profiler itself kept it idle {} of the time. Record more steps, after a warm-up, to see "
    "what limits the job."
)

_PROFILER = "For another {} of it, the profiler itself kept it idle: that is no part of the job."

_LOST = "For another {} of it, kernels may have run that were not recorded."


def _memory_file(kind: FileKind, memory: DeviceMemory | None) -> Verdict:
    """A file about memory alone. Memory limits a job that ran out of it."""
    start = f"This is {FILE_KINDS[kind].noun}: it shows memory, not time."
    if memory is None:
        return Verdict("unknown", f"{start} No memory of a GPU was in use.", 0.0)
    peak = f"{memory.name} had at most {size_bytes(memory.peak_allocated_bytes)} allocated"
    if memory.peak_reserved_bytes:
        peak += f" and {size_bytes(memory.peak_reserved_bytes)} reserved"
    refused = memory.reserve.out_of_memory
    if refused and not memory.ran_out:
        peak += f"; it ran out of memory {count(refused, 'time')}, and went on"
    return Verdict("memory" if refused else "unknown", f"{start} {peak}.", 0.0)
