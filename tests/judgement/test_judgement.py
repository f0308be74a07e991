from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.wording.vocabulary import LIMITERS
from tests.judgement.agreement import Judged, agreement, first_agreement, judge_all, labels

# Two of the labelled recordings may differ: some verdicts are a matter of taste.
AGREEMENT = 0.95

# Recordings with advice that their label forbids.
MOST_WRONG = 0

# The labels give two digits, and count overlapping or unlinked work in their own way.
BUSY_TOLERANCE = 0.05
MOST_OTHER_WINDOWS = 6
"""Recordings whose steady window the label cuts in another way, such as one warm pass in a cold run."""


@pytest.fixture(scope="module")
def judged(shared_traces: Path) -> list[Judged]:
    return list(judge_all(shared_traces))


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first test diagnoses all recordings
def test_verdicts_agree_with_independent_readings(judged: list[Judged]) -> None:
    print()
    for one in sorted(judged, key=lambda one: (not one.label.held_out, one.agrees)):
        print(one.row)
    for name, some in (("held out", [one for one in judged if one.label.held_out]), ("all", judged)):
        wrong = sum(bool(one.wrong_advice) for one in some)
        print(f"{name}: {len(some)} recordings, {wrong} with wrong advice")
        print(f"    agreement: verdict {agreement(some):.0%}, first finding {first_agreement(some):.0%}")
    assert agreement(judged) >= AGREEMENT
    assert first_agreement(judged) >= AGREEMENT
    assert sum(bool(one.wrong_advice) for one in judged) <= MOST_WRONG


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_steady_window_is_as_busy_as_independent_readings_say(judged: list[Judged]) -> None:
    with_gpu = [one for one in judged if one.label.busy_share is not None and one.report.devices]
    other = [
        (one.label.folder, one.report.verdict.busy_share, one.label.busy_share)
        for one in with_gpu
        if abs(one.report.verdict.busy_share - (one.label.busy_share or 0)) > BUSY_TOLERANCE
    ]
    assert len(other) <= MOST_OTHER_WINDOWS, other


def test_every_label_is_a_limiter() -> None:
    for label in labels():
        assert set(label.verdicts) <= LIMITERS.keys(), label.folder


def test_a_third_is_held_out() -> None:
    assert sum(label.held_out for label in labels()) == len(labels()) // 3
