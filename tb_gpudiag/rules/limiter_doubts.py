"""Why the largest part of a step window may not be what limits the job: one list, which the verdict asks once
it knows that part. What makes a whole recording untrustworthy is in doubts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.compilation import compiled_functions
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.shared.lost_time import MOSTLY_UNSEEN, WindowParts
from tb_gpudiag.rules.shared.odd_recordings import first_run_sentence
from tb_gpudiag.rules.shared.recording_advice import SEVERAL_STEPS
from tb_gpudiag.rules.shared.server_recording import one_replayed_step, one_step_sentence
from tb_gpudiag.rules.shared.slowed_recording import gpu_keeps_busy, host_likely_limits, host_may_keep_up
from tb_gpudiag.rules.shared.verdict_sentences import FOR_ENGINE, Said
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import in_quotes, share


class Judged(NamedTuple):
    """What a verdict is about to say of a device's step window.

    unseen_ns: what the host did and the trace does not show; in_range: the range of the user's own that has
    most of it.
    """

    facts: Facts
    parts: WindowParts
    unseen_ns: int
    in_range: str

    @property
    def host_ns(self) -> int:
        return self.parts.by_limiter["host"]

    def share(self, nanoseconds: int) -> str:
        return share(nanoseconds, self.parts.window_ns)


@dataclass(frozen=True)
class LimiterDoubt:
    """Why the largest part may not be what limits the job.

    limiters: of which this is asked. says: the limiter and the sentence instead of what would be said.
    """

    limiters: frozenset[str]
    holds: Callable[[Judged], object]
    says: Callable[[Judged, Said], Said]


def doubted(judged: Judged, said: Said) -> Said:
    """Return what can be said after all doubts about the limiter."""
    for doubt in LIMITER_DOUBTS:
        if said[0] in doubt.limiters and doubt.holds(judged):
            said = doubt.says(judged, said)
    return said


def _unseen_limiter(judged: Judged, _said: Said) -> Said:
    operators = judged.facts.recorded.operators
    how = "with_stack=True" if operators else "ProfilerActivity.CPU as well"
    said = "It waited while the host did something that this trace does not show"
    if judged.parts.computing_ns >= levels.HALF * judged.parts.window_ns:
        return "compute", f"Computing takes most of the time. {said}. Record with {how} to see what."
    if judged.in_range and operators:
        said += f", most of it in {in_quotes(judged.in_range, 80)}."
        limits = "The host's own work there limits this job."
        return "python", f"{said} {limits} Record with with_stack=True to see what it is."
    return "unknown", f"{said}. Record with {how} to see what."


def _of_slowed(judged: Judged, said: Said) -> Said:
    """What to say where recording may be why the GPU waits for the host."""
    facts, (limiter, sentence) = judged.facts, said
    if limiter != "unknown" and host_likely_limits(facts):
        return limiter, sentence.replace("limits this job", "probably limits this job")
    waited = f"In the recording, it waited for the host {judged.share(judged.host_ns)} of the time."
    return ("compute" if gpu_keeps_busy(facts) else "unknown"), waited


def _compiles_once(judged: Judged) -> bool:
    facts = judged.facts
    functions = compiled_functions(facts.host, facts.steps, facts.host_window)
    return len(facts.steps) < SEVERAL_STEPS and not any(function.before > 0 for function in functions)


def _only_step_of_server(judged: Judged) -> bool:
    most_ns = max(judged.parts.by_limiter.values())
    return judged.host_ns == most_ns and one_replayed_step(judged.facts)


_OF_HOST = frozenset({"launch", "python", "mixed", "unknown"})

LIMITER_DOUBTS: Sequence[LimiterDoubt] = (
    LimiterDoubt(
        frozenset({"initialization"}),
        lambda _: True,
        lambda judged, _: ("initialization", first_run_sentence(judged.facts)),
    ),
    LimiterDoubt(
        frozenset({"requests"}),
        lambda judged: judged.facts.request_waits.for_engine,
        lambda judged, _: ("unknown", FOR_ENGINE.format(all_requests=judged.share(judged.parts.requests_ns))),
    ),
    LimiterDoubt(
        frozenset({"launch", "python"}),
        lambda judged: judged.unseen_ns >= MOSTLY_UNSEEN * judged.host_ns,
        _unseen_limiter,
    ),
    LimiterDoubt(
        frozenset({"compile"}),
        _compiles_once,
        lambda judged, _: (
            "initialization",
            f"It waited {judged.share(judged.host_ns)} of the time for the host, most of it for compiling or "
            "loading code. In a recording without several steps nothing shows that this recurs. Record again "
            "after a few warm-up steps.",
        ),
    ),
    LimiterDoubt(
        _OF_HOST | {"compile"},
        _only_step_of_server,
        lambda judged, _: (
            "unknown",
            f"It waited for the host {judged.share(judged.host_ns)} of the time. "
            f"{one_step_sentence(judged.facts)}",
        ),
    ),
    LimiterDoubt(_OF_HOST, lambda judged: host_may_keep_up(judged.facts), _of_slowed),
)
