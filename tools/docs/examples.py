"""Examples of rules: what gpudiag says about a recording with the fault, and the piece of the timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import tb_gpudiag
from tb_gpudiag.cli.demo import LOG
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import only_trace, read_facts
from tb_gpudiag.report.essentials import short_place
from tb_gpudiag.report.slices.memory_history import prepare_memory
from tb_gpudiag.report.slices.memory_slice import slice_memory
from tb_gpudiag.report.slices.prepared import Prepared
from tb_gpudiag.report.slices.timeline import prepare_timeline, slice_timeline
from tb_gpudiag.report.views.markdown import code, text
from tests.simulator import simulate
from tests.simulator.jobs import DistributedJob, JobFault, simulate_job
from tools.docs.built import BUILT
from tools.docs.picture import WIDTH, Span, ranks_picture, timeline_picture

SIMULATED: Final = {
    "GD203": "launch_bound_fixed",
    "GD304": "exposed_copies",
    "GD401": "leak_growing_cache",
    "GD508": "occupancy",
}
"""Rule -> a scenario of tests/simulator."""

_TWO_HOSTS: Final = DistributedJob("ddp", ranks=4, hosts=2, layers=5, steps=4)
SIMULATED_JOBS: Final = {"GD604": replace(_TWO_HOSTS, fault=JobFault("slow_link", (1,), 6, (2, 3)))}

PACKAGED: Final = {
    "GD405": "recorded_on_a_cpu/memory_leak",
    "GD514": "recorded_on_a_cpu/memory_leak",
}
"""Rule -> a recording that comes with the package."""

MOST_EVIDENCE: Final = 8
LEAST_STEP, MOST_STEP = 3, 40  # how many times as long as the finding's longest range the picture is


@dataclass(frozen=True)
class Example:
    """A finding as Markdown, and a picture as SVG."""

    said: str
    picture: str

    def section(self, origin: str, picture: str) -> str:
        """The section of a rule's page. origin: where it comes from, a sentence; picture: its file."""
        shown = f"![The timeline there; the finding is about what is shaded.]({picture})"
        return f"\n## Example\n\n{origin}\n\n{self.said}\n\n{shown}\n"


def of_trace(path: str) -> dict[str, Example]:
    """An example for each rule that finds something in a trace."""
    file = only_trace(path)
    facts = read_facts(file)
    report, prepared = build_report(facts, file), prepare_timeline(facts) | prepare_memory(facts)
    found: dict[str, Example] = {}
    for finding in report.findings:
        if finding.rule not in found:
            picture = _picture(report, finding, prepared)
            found[finding.rule] = Example(_said(finding), picture)
    return found


def of_job(path: str) -> dict[str, Example]:
    """The same of a job."""
    report = tb_gpudiag.job(path)
    step = report.steps[len(report.steps) // 2]
    picture = ranks_picture(report, (step.start_us, step.start_us + step.duration_us))
    return {finding.rule: Example(_said(finding), picture) for finding in report.findings}


@cache
def built_here() -> Mapping[str, tuple[str, Example]]:
    """Rule -> where its example comes from, and the example, of recordings that come with the project."""
    return dict(_built_here())


def _built_here() -> Iterator[tuple[str, tuple[str, Example]]]:
    for rule, where in PACKAGED.items():
        yield (
            rule,
            (f"Recorded on a CPU; `gpudiag demo` has it as `{where}`.", of_trace(str(LOG / where))[rule]),
        )
    with TemporaryDirectory() as folder:
        for rule, scenario in SIMULATED.items():
            written = simulate(scenario).write(Path(folder, scenario))
            origin = f"Simulated: `python -m tests.simulator OUT --only {scenario}` makes this trace."
            yield rule, (origin, of_trace(str(written))[rule])
        for rule, job in SIMULATED_JOBS.items():
            simulate_job(job).write(Path(folder, rule))
            yield rule, (f"Simulated: a job of {job.ranks} ranks.", of_job(str(Path(folder, rule)))[rule])
        for rule, build in BUILT.items():
            written = build(Path(folder, rule))
            yield rule, ("Not recorded: a trace built to show it.", of_trace(str(written))[rule])


def _said(finding: pb.Finding) -> str:
    severity = pb.Finding.Severity.Name(finding.severity)
    parts = [f"**{severity} {finding.rule}: {text(finding.title)}**", "", text(finding.summary), ""]
    parts += [f"- {text(one.label)}: {text(one.value)}" for one in finding.evidence[:MOST_EVIDENCE]]
    for place in finding.places[:2]:
        word, _, where = short_place(place).partition(" ")  # "in forward (model.py)"
        parts.append(f"- {word} {code(where)}")
    return "\n".join(parts).rstrip()


def _picture(report: pb.Report, finding: pb.Finding, prepared: Prepared) -> str:
    about_memory = finding.rule.startswith("GD4") and len(report.memory) > 0
    start, end = (None, None) if about_memory else _span(report.steps, finding)
    timeline = slice_timeline(prepared, start, end, WIDTH)
    memory = slice_memory(prepared, finding.memory_device, start, end, WIDTH) if about_memory else None
    marks = [(one.start_us, one.end_us) for one in finding.ranges]
    return timeline_picture(timeline, marks, memory)


def _span(steps: Sequence[pb.Step], finding: pb.Finding) -> Span | tuple[None, None]:
    """What to show: a step, more of it or less, so that the finding's longest range can be seen."""
    if not finding.ranges:
        middle = steps[len(steps) // 2] if steps else None
        return (middle.start_us, middle.start_us + middle.duration_us) if middle else (None, None)
    longest = finding.ranges[0]
    length = longest.end_us - longest.start_us
    step = next(
        (one for one in steps if one.start_us <= longest.start_us < one.start_us + one.duration_us), None
    )
    shown = min(max(step.duration_us if step else 0, length * LEAST_STEP), length * MOST_STEP)
    if step and shown == step.duration_us:
        return step.start_us, step.start_us + shown
    before = (shown - length) / 3
    return longest.start_us - before, longest.start_us - before + shown
