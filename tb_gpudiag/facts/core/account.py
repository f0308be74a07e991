"""Account: the time of each step on one device as computing, communicating, copying, and idle by cause. The
parts add up to the step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.core.busy import Busy
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.idle import Ledger
from tb_gpudiag.facts.core.intervals import Intervals, coverage
from tb_gpudiag.facts.core.steps import Steps, Window


@dataclass(frozen=True)
class Account:
    """Slices of the step window, one per step. Shape (k,) each; idle_ns has shape (k, causes).

    A slice runs from its step's start to the next one's. The last one ends with the window and so includes
    the GPU work that the steps launched. computing + communicating + copying + idle = end - start, exactly.
    """

    names: list[str]
    start_ns: Int64
    end_ns: Int64
    computing_ns: Int64
    communicating_ns: Int64
    copying_ns: Int64
    idle_ns: Int64


def step_account(busy: Busy, ledger: Ledger, steps: Steps, window: Window) -> Account:
    """Split the window into its steps; no slices without steps."""
    order = np.argsort(steps.start_ns, kind="stable")
    start = steps.start_ns[order]
    end = np.r_[start[1:], np.int64(window.end_ns)][: len(start)]
    return account_of([steps.names[i] for i in order], start, end, busy, ledger)


def window_account(busy: Busy, ledger: Ledger, window: Window) -> Account:
    """Return the window as one slice."""
    return account_of([""], np.array([window.start_ns]), np.array([window.end_ns]), busy, ledger)


def account_of(names: list[str], start: Int64, end: Int64, busy: Busy, ledger: Ledger) -> Account:
    """Account for any stretches [start, end) of the step window, each with its name."""
    idle = np.zeros((len(start), len(Cause)), np.int64)
    for cause in Cause:
        some = ledger.cause == cause
        idle[:, cause] = coverage(Intervals(ledger.start_ns[some], ledger.end_ns[some]), start, end)
    return Account(
        names,
        start,
        end,
        coverage(busy.computing, start, end),
        coverage(busy.communicating, start, end),
        coverage(busy.copying, start, end),
        idle,
    )
