"""The verdict on a job that shows no GPU: where the main thread's time went."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np

from tb_gpudiag.arrays import NONE, marked, summed
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.places import by_operator
from tb_gpudiag.facts.core.steady import MOST
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.kernels import cpu_moves_of
from tb_gpudiag.rules.shared.cpu_job import CpuTime, cpu_time
from tb_gpudiag.rules.shared.host_task_fixes import HOST_TASK_FIXES, waits_sentence
from tb_gpudiag.rules.shared.lost_time import CLEAR_LEAD, LIMITER_SHARE, MOSTLY_UNSEEN, Lost
from tb_gpudiag.rules.shared.odd_recordings import first_run_sentence, no_gpu_sentence
from tb_gpudiag.rules.shared.verdict_sentences import BESIDES_COMPUTING, FOR_ENGINE, NO_REQUESTS
from tb_gpudiag.vocabulary.torch_frames import HostTask
from tb_gpudiag.wording.format import in_quotes, share


def cpu_verdict(facts: Facts, lost: Lost, unseen_ns: int) -> tuple[str, str]:
    """The limiter and the sentence that says so.

    lost: the main thread's time; unseen_ns: how much of it the trace does not show.
    """
    waiting_ns = lost.total_ns(lost.of(Cause.REQUESTS))
    if waiting_ns >= MOST * lost.window_ns:
        waited = share(waiting_ns, lost.window_ns)
        for_engine = facts.request_waits.for_engine
        limiter, said = ("unknown", FOR_ENGINE) if for_engine else ("requests", NO_REQUESTS)
        return limiter, said.format(all_requests=waited)
    spent = cpu_time(lost, facts.host_work.small_operators)
    start, took = no_gpu_sentence(facts.gpu_use), lost.share(spent.profiler_ns)
    if took >= LIMITER_SHARE:
        start = f"{start} The profiler itself took {share(took)} of the main thread's time"
        if took >= MOSTLY_UNSEEN:
            return "unknown", f"{start}: record more steps, after a warm-up, to see what limits the job."
        start += ": that is no part of the job."
    limiter, said = _host(facts, lost, spent, unseen_ns, start)
    return limiter, " ".join(filter(None, (said, waits_sentence(facts, limiter))))


def _host(facts: Facts, lost: Lost, spent: CpuTime, unseen_ns: int, start: str) -> tuple[str, str]:
    """A job without a GPU: where the main thread's time went. start: what is known about a GPU."""
    window_ns, parts = lost.window_ns, spent.others
    if lost.total_ns(lost.of(Cause.INITIALIZATION)) >= MOST * window_ns:
        return "initialization", f"{start} {first_run_sentence(facts)}"
    hidden = unseen_ns >= MOSTLY_UNSEEN * max(1, spent.python_ns)
    words = {**_WORDS, "python": _PYTHON[hidden], "compute": ("in operators", _computing(facts, lost, spent))}
    first, second = sorted(parts, key=lambda part: -parts[part])[:2]
    most_ns = parts[first]
    if spent.computing_limits:
        first, most_ns = "compute", spent.computing_ns
    elif most_ns < CLEAR_LEAD * parts[second]:
        said = ", ".join(_taken(spent, words, frozenset()))
        return "mixed", f"{start} No single part of the main thread's time limits this job: {said}."
    rivals = [ns for part, ns in {**parts, "compute": spent.computing_ns}.items() if part != first]
    near = most_ns < CLEAR_LEAD * max(rivals)
    if first == "host":
        first = max(spent.host, key=lambda part: spent.host[part])
        most_ns = spent.host[first]
    if first == "python" and hidden:
        said = f"The main thread spent {share(unseen_ns, window_ns)} of its time {words[first][0]}."
        return "unknown", f"{start} {said} {words[first][1]}"
    where, said = words[first]
    if first == "tasks":
        task = HostTask(int(spent.task_ns.argmax()))
        most_ns, where = int(spent.task_ns[task]), HOST_TASK_FIXES[task].activity
        said = f"{HOST_TASK_FIXES[task].label} limits this job."
    besides = near and spent.computing_ns > most_ns
    if besides:
        computing = share(spent.computing_ns, window_ns)
        said = BESIDES_COMPUTING.format(computing=computing, most=f"the main thread is longest {where}")
    rest = _taken(spent, words, {first, "compute"} if besides else {first})
    said += f" Beside it, {', '.join(rest)}." if rest and near else ""
    return "python" if first in {"overhead", "tasks"} else first, f"{start} {said}"


def _taken(spent: CpuTime, words: Mapping[str, tuple[str, str]], named: Set[str]) -> list[str]:
    """Say what takes time, most first, without what is named already."""
    parts = {**spent.others, **spent.host, "compute": spent.computing_ns}
    return [
        f"{share(ns, spent.window_ns)} {words[part][0]}"
        for part, ns in sorted(parts.items(), key=lambda one: -one[1])
        if part in words.keys() - named and ns >= LIMITER_SHARE * spent.window_ns
    ]


def _computing(facts: Facts, lost: Lost, spent: CpuTime) -> str:
    """Say that the CPU computes, and what takes most of that: a kind of work, or an operator by its name."""
    work, host = facts.host_work, facts.host
    event, length_ns = lost.event[spent.computing], lost.length_ns[spent.computing]
    kinds = {
        "the optimizer's steps": marked(work.optimizer_steps, event),
        "copying, casting and joining tensors": cpu_moves_of(host, np.append(host.operator, NONE)[event])
        != NONE,
        "matmuls, convolutions and the like": marked(work.multiplies, event),
    }
    kind = np.select([*kinds.values()], range(len(kinds)), len(kinds))
    rest = kind == len(kinds)
    others = by_operator(host, work.called(event[rest]), length_ns[rest])[:1]
    parts = dict(zip(kinds, summed(kind, length_ns, len(kinds) + 1).tolist(), strict=False))
    parts |= {in_quotes(name, 80): ns for name, ns in others}
    most = max(parts, key=lambda part: parts[part])
    return f"This job is CPU-bound: {share(parts[most], lost.window_ns)} of its time goes to {most}."


_WORDS = {
    "input": ("loading data", "The data pipeline limits this job."),
    "overhead": ("in operators of a few microseconds each", "Dispatching small operators limits this job."),
    "compile": ("compiling", "Compilation limits this job."),
    "evaluation": ("evaluating the model", "Evaluation limits this job."),
    "tasks": ("in work such as logging and saving", ""),
    "communication": ("in collectives", "Communication limits this job."),
    "waiting": ("waiting in a call", "What the main thread waits for limits this job."),
}
"""Where the main thread is, and what is said of the part that takes most."""

_PYTHON = {
    False: ("in Python between operators", "The host's own code limits this job."),
    True: ("in something unrecorded", "Record with with_stack=True to see what."),
}
"""The same between operators, by whether most of it was not recorded."""
