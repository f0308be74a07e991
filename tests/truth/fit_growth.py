"""Fit what is a leak: `make fit` reads growth.tsv, and writes the weights in rules/shared/growth.json.

Logistic regression with a ridge penalty, by Newton's method. What is published is scored on loops that a fit
had not seen: those of a writer are left out in turns, also for how often each probability was right.
The command also leaves out fields of work and mechanisms.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tb_gpudiag.arrays import Bool, Float64
from tb_gpudiag.rules.shared import growth as model
from tb_gpudiag.rules.shared.growth import FEATURES
from tb_gpudiag.rules.shared.leak import LIKELY, SURE, UNLIKELY
from tests.truth.growth import read
from tests.truth.held_out import put_held_out

RIDGE: Final = 0.05
"""Penalty on squared weights: a mechanism that few loops have moves its weight by little."""

ROUNDS: Final = 40

WEIGHTS: Final = Path(model.__file__).with_name("growth.json")

Row = Mapping[str, str]

SAID: Final = (
    ("9 in 10 or more", SURE, 1.1),
    ("5 to 8 in 10", LIKELY, SURE),
    ("1 to 4 in 10", UNLIKELY, LIKELY),
    ("less", -1.0, UNLIKELY),
)

MADE_UP: Final = "made up"

INPUTS: Final = "recorded in nine ways, each with the weights of other writers' loops"


def main() -> None:
    rows = read()
    WEIGHTS.write_text(json.dumps(fit_each(rows), indent=1) + "\n", encoding="utf-8")
    for left_out in ("writer", "field", "mechanism"):
        _print(rows, left_out, _held_out(rows, left_out))
    _publish(rows, _held_out(rows, "writer"))


def fit_each(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the model of each kind of recording: see growth.json."""
    found = {}
    for shows in (model.TENSORS, model.ALL_FREES, model.NEWER_FREES):
        own = [row for row in rows if row["shows"] == shows]
        figures, leaks = columns(own)
        weights = fit(figures, leaks)
        usual = figures[leaks].mean(axis=0)
        found[shows] = {
            "bias": round(float(weights[0]), 3),
            "weights": {name: round(float(w), 3) for name, w in zip(FEATURES, weights[1:], strict=True)},
            "usual": {name: round(float(value), 3) for name, value in zip(FEATURES, usual, strict=True)},
        }
    return found


def columns(rows: Sequence[Row]) -> tuple[Float64, Bool]:
    """Figures, shape (n, f), and which are leaks, shape (n,)."""
    figures = np.array([[float(row[name]) for name in FEATURES] for row in rows]).reshape(-1, len(FEATURES))
    return figures, np.array([row["leak"] == "1" for row in rows], np.bool_)


def fit(figures: Float64, leaks: Bool) -> Float64:
    """Return the bias and the weights, shape (1 + f,)."""
    known = np.c_[np.ones(len(figures)), figures]
    penalty = RIDGE * np.diag(np.r_[1e-6, np.ones(figures.shape[1])])
    weights = np.zeros(known.shape[1])
    for _ in range(ROUNDS):
        likely = _likely(known @ weights)
        slope = known.T @ (likely - leaks) + penalty @ weights
        bend = (known * np.maximum(likely * (1 - likely), 1e-6)[:, None]).T @ known + penalty
        step = np.linalg.solve(bend, slope)
        weights -= step * min(1.0, 5 / float(np.abs(step).max()))
    return weights


def _likely(value: Float64) -> Float64:
    return 1 / (1 + np.exp(-np.clip(value, -30, 30)))


def _held_out(rows: Sequence[Row], key: str) -> Float64:
    """Return the probability of each, of a fit without those that share this column; shape (n,)."""
    found = np.zeros(len(rows))
    for shows, group in {(row["shows"], row[key]) for row in rows}:
        of_kind = np.array([row["shows"] == shows for row in rows])
        apart = np.array([row[key] == group for row in rows])
        weights = fit(
            *columns([row for row, kind, own in zip(rows, of_kind, apart, strict=True) if kind and not own])
        )
        chosen = np.flatnonzero(of_kind & apart)
        found[chosen] = _likely(weights[0] + columns([rows[i] for i in chosen.tolist()])[0] @ weights[1:])
    return found


def _print(rows: Sequence[Row], left_out: str, likely: Float64) -> None:
    leaks, found = columns(rows)[1], likely >= LIKELY
    print(f"{len(rows)} recordings, each {left_out} left out of the fit in turns")
    for way in dict.fromkeys(row["way"] for row in rows):
        own = np.array([row["way"] == way for row in rows])
        said = {"leaks found": _of(found, own & leaks), "findings that are leaks": _of(leaks, own & found)}
        said["of the sure ones"] = _of(leaks, own & (likely >= SURE))
        print(f"  {way}: {'; '.join(f'{what} {right} of {of}' for what, (right, of) in said.items())}")
    for name, low, high in SAID:
        print("  said {}: {} of {} are leaks".format(name, *_of(leaks, (likely >= low) & (likely < high))))


def _of(right: Bool, among: Bool) -> list[int]:
    return [int((right & among).sum()), int(among.sum())]


def _publish(rows: Sequence[Row], likely: Float64) -> None:
    """Write how often each probability was right into the figures of docs/how-right-it-is.md."""
    real, leaks = np.array([row["way"] != MADE_UP for row in rows]), columns(rows)[1]
    loops = len({row["loop"] for row in rows if row["way"] != MADE_UP})
    figures = {
        f"leaks, where it said {name}": _of(leaks, real & (likely >= low) & (likely < high))
        for name, low, high in SAID
    }
    put_held_out(f"{loops} loops whose memory grows, {INPUTS}", figures, instead_of=INPUTS)


if __name__ == "__main__":
    main()
