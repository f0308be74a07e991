"""`python -m tests.benchmarks.truth`: prints the tables and every wrong diagnosis."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from tests.benchmarks.truth.cases import HEALTHY_KIND, cases
from tests.benchmarks.truth.fixes import REPLAYED, TOLERANCE, fixed_steps
from tests.benchmarks.truth.labels import MUST, MUST_NOT
from tests.benchmarks.truth.memory import memory_cases, memory_table, score_memory
from tests.benchmarks.truth.pairs import compared
from tests.benchmarks.truth.score import BUSY, PRECISION, RECALL, Score, score_cases
from tests.benchmarks.truth.traps import score_traps, trap_table

FIX_SETTINGS = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.truth", description=__doc__)
    parser.add_argument("--settings", type=int, default=20, help="cases of each kind of fault (default 20)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print_all(arguments.settings, arguments.seed)


def print_all(settings: int, seed: int) -> Score:
    """Print each table as soon as it is computed."""
    score = score_cases(cases(settings, seed))
    memory = score_memory(memory_cases(settings, seed))
    for lines in (
        rule_table(score),
        cause_table(score),
        trap_table(score_traps(settings // 2, seed)),
        memory_table(memory),
        fix_table(seed),
        pair_table(),
    ):
        print("\n".join(lines) + "\n", flush=True)
    return score


def rule_table(score: Score) -> Iterable[str]:
    yield f"{score.cases.total()} simulated cases of {len(score.cases)} kinds. A rule must report a cost of"
    yield f"{MUST:g} times its threshold or more, and must not report one below {MUST_NOT:g} times it."
    counts = f"{'right':>7}{'false':>7}{'missed':>8}"
    yield f"{'rule':8}{counts}{'precision':>11}{'recall':>9}{'ranked':>8}{'rank 1':>9}{'saving in range':>19}"
    for rule, one in score.rules.items():
        ranked = f"{one.ranked:8}{one.rank_1:9.3f}" if one.ranked else f"{'-':>8}{'-':>9}"
        counts = f"{one.right:7}{one.false:7}{one.missed:8}"
        kept = f"{one.kept} of {one.promised}" if one.promised else "-"
        yield f"{rule:8}{counts}{one.precision:11.3f}{one.recall:9.3f}{ranked}{kept:>19}"
    healthy = f"healthy jobs with a false alarm: {score.healthy_alarms} of {score.cases[HEALTHY_KIND]}"
    yield f"aims: precision {PRECISION:g}, recall {RECALL:g}; {healthy} (aim: 0)"
    yield from score.wrong


def cause_table(score: Score) -> Iterable[str]:
    """Rows are planted causes, columns the causes found at the same instants."""
    columns = [*sorted({found for row in score.confusion.values() for found in row} - {BUSY}), BUSY]
    yield "idle time in ms, planted by row, found by column (generations with exact timestamps)"
    yield " " * 11 + "".join(f"{name:>11}" for name in columns)
    for cause in sorted(score.confusion):
        yield f"{cause:11}" + "".join(f"{score.confusion[cause][name] / 1e6:11.2f}" for name in columns)


def fix_table(seed: int) -> Iterable[str]:
    yield f"ms per step with the fix, replayed and simulated (aim: within {TOLERANCE:.0%})"
    yield f"{'fault':26}{'rule':7}{'before':>9}{'replayed':>10}{'true':>9}{'error':>9}{'worst of':>10}"
    for fault in REPLAYED:
        rows = list(fixed_steps(fault, FIX_SETTINGS, seed))
        if not rows:
            yield f"{fault.name:26}{fault.rule:7} no finding to replay"
            continue
        worst = max(rows, key=lambda row: abs(row.error))
        times = f"{worst.before_ns / 1e6:9.2f}{worst.predicted_ns / 1e6:10.2f}{worst.true_ns / 1e6:9.2f}"
        yield f"{fault.name:26}{fault.rule:7}{times}{worst.error:+9.1%}{len(rows):10}"


def pair_table() -> Iterable[str]:
    yield "real jobs before and after their fix, ms per step"
    yield f"{'':36}{'before':>9}{'replayed':>18}{'measured':>10}"
    for row in compared():
        least, most = f"{row.least_ms:.2f}", f"{row.most_ms:.2f}"
        replayed = least if least == most else f"{least} to {most}"
        yield f"{row.pair.name:36}{row.before_ms:9.2f}{replayed:>18}{row.measured_ms:10.2f}"
        yield f"    why they differ: {row.pair.why}"


if __name__ == "__main__":
    main()
