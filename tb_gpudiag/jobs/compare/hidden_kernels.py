"""Sides whose CUDA graphs were recorded as one event each, so that their kernels are not known."""

from __future__ import annotations

from typing import Final

from tb_gpudiag.digest.digest import numbers, texts
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.vocabulary.kernel_names import WHOLE_GRAPH
from tb_gpudiag.wording.format import share, time_ns

# As for the rules about kernels: see rules/shared/recording_advice.py.
HIDING_SHARE: Final = 0.10

ABOUT_KERNELS: Final = "GD5"
"""First characters of the ids of the rules about kernels."""


def _in_graphs(side: Side) -> tuple[float, float]:
    """Return the GPU time in such graphs and all GPU time, per step."""
    graphs = total = 0.0
    for digest in side.digests:
        factor = side.per_step(digest)
        times = numbers(digest.kernels, "time_ns").tolist()
        for name, duration in zip(texts(digest.kernels, "name"), times, strict=True):
            total += duration * factor
            graphs += duration * factor if WHOLE_GRAPH.fullmatch(name) else 0.0
    return graphs, total


def hides_kernels(side: Side) -> bool:
    """Return whether such graphs take so much time that nothing is known about the side's kernels."""
    graphs, total = _in_graphs(side)
    return graphs > 0 and graphs >= HIDING_SHARE * total


def graph_notes(base: Side, candidate: Side) -> list[str]:
    """Say which side runs in such graphs, and what that hides."""
    if hides_kernels(base) == hides_kernels(candidate):
        return []
    name, side = ("candidate", candidate) if hides_kernels(candidate) else ("base", base)
    graphs, total = _in_graphs(side)
    other = _in_graphs(base if side is candidate else candidate)[1]
    return [
        f"The {name} runs {share(graphs, total)} of its GPU time, {time_ns(graphs)} per step, in CUDA graphs "
        f"that were recorded as one event each. The other side takes {time_ns(other)} for its kernels. "
        "Compare these totals: which kernels changed, and findings about kernels, cannot be told."
    ]
