"""Score the diagnoses of recorded jobs against what was expected and what the fix really gave."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tb_gpudiag
from tb_gpudiag.report.wire import to_dict
from tests.truth.job import Expected, Job
from tests.truth.times import Times

LEAST_DOUBT = 0.03
"""Share of a step by which a promise may miss: recorded steps are not the timed ones."""

SAME = ("SAME", "CANNOT_TELL")

Diagnosis = dict[str, Any]


@dataclass
class Score:
    """What was right about one job. None where it does not apply."""

    job: Job
    times: Times
    verdict: bool | None = None
    first: bool | None = None
    place: bool | None = None
    rank: bool | None = None
    promised: bool | None = None  # by the first finding alone
    planned: bool | None = None  # between that and all fixes of the plan
    gone: bool | None = None  # the finding, after the fix; None if the fixed job may have it, too
    alarms: list[str] = field(default_factory=list)  # findings of healthy code, above INFO
    equal: list[str] = field(default_factory=list)  # verdicts of equal code
    changed: str = ""  # verdict of before against after
    said: dict[str, str] = field(default_factory=dict)  # verdict and first finding, by recording


def diagnoses(folder: Path) -> Diagnosis:
    """What `gpudiag diagnose` says of all recordings below a folder."""
    command = [sys.executable, "-m", "tb_gpudiag", "diagnose", str(folder), "--format", "json", "--quiet"]
    found: Diagnosis = json.loads(subprocess.run(command, check=False, capture_output=True, text=True).stdout)
    return found


def score(job: Job, times: Times, folder: Path) -> Score:
    """Score the recordings that record.py wrote below `folder`."""
    found = Score(job, times)
    said = _said(job, folder)
    found.said = {kind: _summary(one) for kind, one in said.items()}
    for kind, one in said.items():
        # On a GPU, what a fix leaves is small enough that the host limits it: no healthy job.
        if job.healthy or (kind.startswith("after") and not job.gpu):
            found.alarms += [f"{kind}: {rule}" for rule in _loud(one) if rule not in job.allowed]
    if job.expected:
        _score_fault(found, job, said)
    _compare(found, job, folder)
    return found


def _said(job: Job, folder: Path) -> dict[str, Diagnosis]:
    """The report of each recording, or of its ranks together, by its run, such as `before_first/plain`."""
    answer = diagnoses(folder)
    by_run: dict[str, list[Diagnosis]] = defaultdict(list)
    for report in answer["reports"]:
        by_run[report["trace"]["run"]].append(report)
    said = {one["run"]: one for one in answer.get("jobs", [])} if job.world > 1 else {}
    return {
        run: dict(said.get(run, {}) if job.world > 1 else reports[0])
        for run, reports in sorted(by_run.items())
    }


def _findings(diagnosis: Diagnosis) -> list[Diagnosis]:
    return [finding for finding in diagnosis.get("findings", []) if not finding["rule"].startswith("GD9")]


def _loud(diagnosis: Diagnosis) -> list[str]:
    return [finding["rule"] for finding in _findings(diagnosis) if finding["severity"] != "INFO"]


def _limiter(diagnosis: Diagnosis) -> str:
    """Unknown is right without stacks, where nothing shows what Python did: it is no guess."""
    return str(diagnosis.get("verdict", {}).get("limiter", ""))


def _summary(diagnosis: Diagnosis) -> str:
    verdict = diagnosis.get("verdict", {})
    first = next(iter(_findings(diagnosis)), {})
    return f"{verdict.get('limiter', '')}; {first.get('rule', '')} {first.get('title', '')}"


def _score_fault(found: Score, job: Job, said: dict[str, Diagnosis]) -> None:
    expected = job.expected
    assert expected is not None
    found.verdict = all(
        _limiter(one) in expected.limiters or (_limiter(one) == "unknown" and kind.endswith("plain"))
        for kind, one in said.items()
        if kind.startswith("before")
    )
    if expected.rules:
        _score_findings(found, expected, said)


def _score_findings(found: Score, expected: Expected, said: dict[str, Diagnosis]) -> None:
    before = _of_fault(expected, said)
    firsts = [next(iter(_findings(one)), {}) for one in before]
    found.first = all(first.get("rule") in expected.rules for first in firsts)
    found.place = _is_named(said.get("before_first/stacks", {}), expected.functions)
    if expected.rank is not None:
        found.rank = all(_names_rank(first, expected.rank) for first in firsts)
    # A finding without a saving, such as one about work that was not recorded, promises nothing.
    promising = [both for both in zip(firsts, before, strict=True) if "saving" in both[0]]
    found.promised = _all_hold([_promise(first) for first, _ in promising], found.times)
    planned = [(_promise(first)[0], _whole(one["plan"])) for first, one in promising if "plan" in one]
    found.planned = _all_hold(planned, found.times)
    after = [one for kind, one in said.items() if kind.startswith("after")]
    if found.job.gpu:
        return
    if goes := expected.rules - found.job.allowed:
        found.gone = not any(rule in goes for one in after for rule in _loud(one))


def _of_fault(expected: Expected, said: dict[str, Diagnosis]) -> list[Diagnosis]:
    """The reports of the recordings that can show the fault: a leak shows where memory was recorded."""
    kinds = "stacks" if expected.rules == {"GD401"} else ""
    return [one for kind, one in said.items() if kind.startswith("before") and kind.endswith(kinds)]


def _is_named(diagnosis: Diagnosis, functions: frozenset[str]) -> bool | None:
    """Whether the first finding names one of `functions`; None if none is expected."""
    if not functions:
        return None
    first = next(iter(_findings(diagnosis)), None)
    return first is not None and _names(first, functions)


def _names(finding: Diagnosis, functions: frozenset[str]) -> bool:
    named = {place.get("function", "").rsplit(".", 1)[-1] for place in finding.get("places", [])[:3]}
    return bool(named & functions)


def _names_rank(finding: Diagnosis, rank: int) -> bool:
    return bool(
        re.search(
            rf"\brank {rank}\b", finding.get("title", "") + " " + finding.get("summary", ""), re.IGNORECASE
        )
    )


def _promise(finding: Diagnosis) -> tuple[float, float]:
    """Lowest and highest share of the step that a fix is said to give back."""
    saving = finding.get("saving", {})
    return saving.get("low_share", 0.0), saving.get("high_share", 0.0)


def _whole(plan: Diagnosis) -> float:
    """Highest share of the step that all fixes of the plan are said to give back."""
    first, last = plan["fixes"][0], plan["fixes"][-1]
    return float(1 - last["least_us"] / (first["likely_us"] + first["saving_us"]))


def _all_hold(promises: Sequence[tuple[float, float]], times: Times) -> bool | None:
    return all(_holds(promise, times) for promise in promises) if promises else None


def _holds(promise: tuple[float, float], times: Times) -> bool:
    doubt = max(LEAST_DOUBT, times.doubt)
    return promise[0] - doubt <= times.gain <= promise[1] + doubt


def _compare(found: Score, job: Job, folder: Path) -> None:
    """Equal code is told apart by nothing; a fix is faster."""
    first, second = folder / "before_first" / "plain", folder / "before_second" / "plain"
    if second.exists():
        found.equal = [_verdict(first, second), _verdict(second, first)]
    if (fixed := folder / "after_first" / "plain").exists():
        found.changed = _verdict(first, fixed)


def _verdict(base: Path, candidate: Path) -> str:
    return str(to_dict(tb_gpudiag.compare(str(base), str(candidate)))["verdict"])


def share(values: Sequence[bool | None]) -> str:
    """How many of those that apply are right."""
    known = [value for value in values if value is not None]
    return f"{sum(known)} of {len(known)}" if known else "-"
