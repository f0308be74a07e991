"""What fixes were promised to save, and what they gave: `python -m tests.truth.promised [--fit] [FOLDER…]`.

Prints, for each pair of recordings before and after a fix, what came back and the range in which the pair's
own diagnosis, fitted without it, expected it. The pairs: recordings of an H200 and of public jobs that are at
hand, and jobs below each FOLDER, as `make truth` or a run on a GPU leaves them. What was diagnosed of them is
kept in promised.json, so that pairs whose recordings are too large to keep count as well. `--fit` fits how
much of what can come back did (tb_gpudiag/rules/given_back.json) to all of them: `make fit`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.jobs.rules.every_rule import find_any_rule
from tb_gpudiag.jobs.rules.job_registry import JOB_RULES
from tb_gpudiag.report.diagnosis import only_trace, read_facts
from tb_gpudiag.rules import given_back
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.given_back import MOST_GIVEN, UNSEEN, GivenBack, JobKind
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.savings import predicted_of, promised_range, removes_of
from tb_gpudiag.trace.files.find import find_traces
from tests.conftest import SHARED_TRACES
from tests.truth.gpu.packing import MACHINE
from tests.truth.gpu.test_recorded import RECORDED
from tests.truth.held_out import put_held_out
from tests.truth.score import LEAST_DOUBT as ON_CPU
from tests.truth.times import Times

HERE: Final = Path(__file__).parent
KEPT: Final = HERE / "promised.json"
WEIGHTS: Final = Path(given_back.__file__).with_name("given_back.json")
DEMO: Final = HERE.parents[1] / "demo" / "recorded"

INPUTS: Final = "before and after a fix, each promised by a fit without its job"
SOURCES: Final = {"H200": "H200", "public": "other GPUs", "CPU": "one process, CPU", "ranks": "ranks, CPU"}

# ms per step without the profiler, as demo/recorded/README.md has them.
ON_DEMAND: Final = {
    "input_pipeline": (51.60, 29.08),
    "allocator_in_step": (31.79, 28.51),
    "launch_bound": (6.86, 1.20),
    "pageable_copies": (40.56, 35.27),
}

# Before, after, and ms per step where their author timed them. Pairs that share a recording are left out of
# the fit together.
PUBLIC: Final = (
    ("v100_resnet50_workers0", "v100_resnet50_workers4", None),
    ("v100_resnet50_second_workers0", "v100_resnet50_second_workers4", None),
    ("rtx5080_without_cuda_graph", "rtx5080_with_cuda_graph", None),
    ("rtx5080_module_eager", "rtx5080_module_graphed", None),
    ("a100_copies_pageable", "a100_copies_pinned", (67.6, 30.75)),
    ("a100_copies_pageable_non_blocking", "a100_copies_pinned", (68.3, 30.75)),
)

# How many pairs the middle of all kinds counts for in a kind's own.
PRIOR_PAIRS: Final = 4
AROUND: Final = 0.80
"""How many pairs the range around the middle of their kind holds."""
AROUND_ALL: Final = 0.85
"""How many pairs the range around the middle of all kinds holds: a kind of which none was measured may be
further off than these."""
MOST_OFF: Final = math.log(2)
"""Nothing is further off than this, as a logarithm: a fix that gave nothing is not worse without end."""

LEAST_DOUBT: Final = 0.01
"""Share of a step by which timed steps of equal code differ at least."""


@dataclass(frozen=True)
class Pair:
    """A fix: what it gave, as a share of the step, and what can come back of it (savings.py).

    group: pairs that are not independent. error, allowed: of the replay.
    """

    name: str
    source: str
    group: str
    job: JobKind
    fix: str
    rule: str
    gain: float
    doubt: float
    least: float
    most: float
    error: float
    allowed: float

    @property
    def off(self) -> float:
        """By which factor it gave more than can come back at most, or less than at least, as a logarithm."""
        gain, low, high = (max(end, 1e-3) for end in (self.gain, self.least, self.most))
        return max(-MOST_OFF, min(MOST_OFF, math.log(_factor_of(gain, min(max(gain, low), high)))))

    def range_of(self, back: GivenBack) -> tuple[float, float, float]:
        return promised_range((self.least, self.most), back, self.error, self.allowed)

    def holds(self, low: float, high: float) -> bool:
        return low - self.doubt <= self.gain <= high + self.doubt


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--fit", action="store_true", help="write given_back.json")
    arguments = parser.parse_args()
    known = {one["name"]: Pair(**one) for one in json.loads(KEPT.read_text())} if KEPT.exists() else {}
    for pair in _at_hand(arguments.folders):
        known[pair.name] = pair
    pairs = sorted(known.values(), key=lambda pair: (pair.source, pair.name))
    KEPT.write_text(json.dumps([_rounded(pair) for pair in pairs], indent=0) + "\n")
    if arguments.fit:
        WEIGHTS.write_text(json.dumps(weights(pairs), indent=1) + "\n")
        write_held_out(pairs)
    print("\n".join(report(pairs)))


def weights(pairs: Sequence[Pair]) -> dict[str, dict[str, dict[str, float]]]:
    """Fit the table of given_back.json."""
    return {
        job: {fix: _rounded(back) for fix, back in _fitted(pairs, job).items()}
        for job in ("gpu", "cpu", "ranks")
    }


def _rounded(one: object) -> dict[str, float]:
    return {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in asdict(one).items()  # type: ignore[call-overload]
    }


def _fitted(pairs: Sequence[Pair], job: str) -> dict[str, GivenBack]:
    """Kinds with few pairs lean on all of them, with their middle and their range. Recordings of a job count
    once."""
    by_fix: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for pair in pairs:
        if pair.job == job:
            by_fix[pair.fix][pair.group].append(pair.off)
    offs = {fix: list(map(statistics.mean, groups.values())) for fix, groups in sorted(by_fix.items())}
    of_all = statistics.median([off for some in offs.values() for off in some] or [0.0])
    found = {UNSEEN: (of_all, 0)}
    for fix, some in offs.items():
        found[fix] = _leaning(statistics.median(some), of_all, len(some)), len(some)
    usual = _holds(AROUND, [abs(off - found[fix][0]) for fix, some in offs.items() for off in some])
    unseen = _holds(AROUND_ALL, [abs(off - of_all) for some in offs.values() for off in some])
    return {
        fix: _around(middle, _leaning(usual, unseen, count), count) for fix, (middle, count) in found.items()
    }


def _leaning(own: float, of_all: float, count: int) -> float:
    return (count * own + PRIOR_PAIRS * of_all) / (count + PRIOR_PAIRS)


def _holds(share: float, misses: Sequence[float]) -> float:
    """Return what this share of the misses, and of one more, is not above."""
    least = sorted(misses) or [math.log(1.2)]
    return least[min(len(least), math.ceil(share * (len(least) + 1))) - 1]


def _around(middle: float, width: float, count: int) -> GivenBack:
    return GivenBack(math.exp(middle - width), math.exp(middle), math.exp(middle + width), count)


def report(pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield a line for each pair, judged by a fit without it, and the sums."""
    kept: defaultdict[str, list[bool]] = defaultdict(list)
    widths: defaultdict[str, list[float]] = defaultdict(list)
    for pair, (low, likely, high) in promised_by_others(pairs):
        holds = pair.holds(low, high)
        kept[pair.source].append(holds)
        widths[pair.source].append(high / low if low else math.inf)
        yield (
            f"{pair.source:6} {pair.name:42} {pair.rule} {pair.fix:9} gave {pair.gain:6.1%} of "
            f"{pair.least:5.1%} to {pair.most:5.1%}: promised {likely:5.1%} ({low:5.1%} to {high:5.1%})"
            f"{'' if holds else '  MISSED'}"
        )
    for source, held in kept.items():
        yield (
            f"{source}: {sum(held)} of {len(held)} ranges hold without their own pair; "
            f"high/low in the middle {statistics.median(widths[source]):.2f}"
        )


def promised_by_others(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, tuple[float, float, float]]]:
    """Yield each pair with the range that a fit without it promises."""
    for pair in pairs:
        others = _fitted([other for other in pairs if other.group != pair.group], pair.job)
        yield pair, pair.range_of(others.get(pair.fix, others[UNSEEN]))


def write_held_out(pairs: Sequence[Pair]) -> None:
    """Write how many ranges hold into the table of docs/how-right-it-is.md."""
    held: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for pair, (low, _, high) in promised_by_others(pairs):
        held[f"range of 8 in 10 holds the real gain, {SOURCES[pair.source]}"][1] += 1
        held[f"range of 8 in 10 holds the real gain, {SOURCES[pair.source]}"][0] += pair.holds(low, high)
    jobs = len({(pair.source, pair.group) for pair in pairs})
    put_held_out(f"{len(pairs)} recordings of {jobs} jobs {INPUTS}", dict(held), instead_of=INPUTS)


def _at_hand(folders: Sequence[Path]) -> Iterator[Pair]:
    """Yield the pairs whose recordings are there."""
    for folder in sorted(RECORDED.iterdir()):
        times = json.loads((folder / "times.json").read_text()) if folder.is_dir() else {}
        if (folder / "before").is_dir() and times["before"] != times["after"]:
            yield from _pair(folder.name, "H200", "gpu", folder / "before", *_gain(times))
    for name, (slow_ms, fast_ms) in ON_DEMAND.items():
        yield from _pair(
            f"demo {name}", "H200", "gpu", DEMO / name / "before", 1 - fast_ms / slow_ms, LEAST_DOUBT
        )
    for base, fixed, timed in PUBLIC:
        sides = [SHARED_TRACES / one for one in (base, fixed)]
        if all(side.is_dir() for side in sides):
            each = [timed, timed] if timed else _recorded_ns(sides)
            gains = [1 - after_ns / before_ns for before_ns, after_ns in each]
            middle, doubt = statistics.mean(gains), max(LEAST_DOUBT, abs(gains[0] - gains[1]) / 2)
            group = base.removesuffix("_non_blocking")
            yield from _pair(base, "public", "gpu", sides[0], middle, doubt, group)
    for out in folders:
        yield from _below(out)


def _below(out: Path) -> Iterator[Pair]:
    """Yield pairs that `make truth` recorded into a folder, or that a run on a GPU brought there, each with
    and without stacks. A promise counts only if it is about the fault that was mended. Needs torch, to know
    the jobs."""
    for times_file in sorted(out.glob("*/times.json")):
        job = times_file.parent.name
        gain = _gain(json.loads(times_file.read_text()), LEAST_DOUBT if (out / MACHINE).exists() else ON_CPU)
        for folder in sorted(times_file.parent.glob("before_first/*")):
            name, ranks = f"{job} {folder.name}", len(list(folder.glob("*.json*")))
            if ranks > 1:
                found = _pair_of_ranks(name, folder, *gain, job)
            else:
                kind: tuple[str, JobKind] = ("H200", "gpu") if (out / MACHINE).exists() else ("CPU", "cpu")
                found = _pair(name, *kind, folder, *gain, job) if ranks else iter(())
            # What is within the doubt shows no fix.
            yield from (pair for pair in found if pair.rule in _faults().get(job, ()) and gain[0] > gain[1])


@cache
def _faults() -> dict[str, frozenset[str]]:
    """Rules that find what is wrong with a job, by its name."""
    for package in ("tests.truth.jobs", "tests.truth.gpu"):
        import_module(f"{package}.everything")
    jobs = import_module("tests.truth.job").JOBS.items()
    return {name: job.expected.rules for name, job in jobs if job.expected is not None}


def _gain(kept: dict[str, list[float]], least_doubt: float = LEAST_DOUBT) -> tuple[float, float]:
    times = Times(**kept)
    return times.gain, max(least_doubt, times.doubt)


def _recorded_ns(sides: Sequence[Path]) -> list[tuple[float, float]]:
    """Step times of two recordings as they are, and as estimated without the profiler. What a fix gave that
    nobody timed lies between the two."""
    facts = [read_facts(only_trace(str(side))) for side in sides]
    recorded = (facts[0].step_time.median, facts[1].step_time.median)
    return [recorded, (recorded[0] * facts[0].unprofiled_share, recorded[1] * facts[1].unprofiled_share)]


def _pair(
    name: str, source: str, job: JobKind, before: Path, gain: float, doubt: float, group: str = ""
) -> Iterator[Pair]:
    """Yield the pair if the first finding about the job promises something."""
    facts = read_facts(only_trace(str(before)))
    for found in run_rules(facts, RULES).findings:
        saving = found.finding.saving
        if found.rule.family == "recording" or (saving is None and not found.finding.cost_ns):
            continue
        if saving is not None and saving.likely_ns:
            removes = removes_of(found.finding, facts, predicted_of(facts))
            limits = (removes.error, removes.account) if removes else (0.0, saving.possible[1])
            fix, rule = found.rule.kind_of_fix, found.rule.id
            yield Pair(name, source, group or name, job, fix, rule, gain, doubt, *saving.possible, *limits)
        return


def _pair_of_ranks(name: str, before: Path, gain: float, doubt: float, group: str) -> Iterator[Pair]:
    """Yield the pair if the first finding about the job of these ranks promises something."""
    digests = [digest_file(file)[1] for file in find_traces(str(before)).files]
    for report in build_jobs(digests).reports:
        for found in report.findings:
            rule, saving = find_any_rule(found.rule), found.saving
            if rule is None or rule.family == "recording" or not (saving.high_us or found.cost_us):
                continue
            if (most := saving.possible_share) and rule in JOB_RULES:
                limits = saving.least_possible_share, most, 0.0, 1.0
                yield Pair(name, "ranks", group, "ranks", rule.kind_of_fix, rule.id, gain, doubt, *limits)
            break


def _factor_of(given: float, share: float) -> float:
    """Return the factor that makes `given` of `share`, both of a step and above 0."""
    given, share = min(given, MOST_GIVEN), min(share, MOST_GIVEN)
    return given / share * ((1 - share) / (1 - given) if given > share else 1)


if __name__ == "__main__":
    main()
