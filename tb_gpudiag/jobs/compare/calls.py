"""How often operators are called: what does not vary from one recording of equal code to the next."""

from __future__ import annotations

from collections import defaultdict

from tb_gpudiag.digest.digest import numbers, texts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.wording.format import figures, in_quotes, time_ns

Calls = dict[tuple[str, str], tuple[float, float]]
"""Calls, and their own time, per step and rank by path and operator."""

ROUNDING = 0.005
"""Counts per step of recordings with other numbers of steps differ by less than this."""


@dataclass(frozen=True)
class MoreCalls:
    """moved_ns: time per step of the calls that the candidate makes more (or less, if negative) than the
    base, each at the mean time of such a call on both sides. operator, counts: what moved most, and how often
    a step of each side calls it."""

    moved_ns: float
    operator: str
    counts: tuple[float, float]

    @property
    def sentence(self) -> str:
        """What the counts show."""
        if not self.operator:
            return "Both sides call the same operators equally often."
        more = "more" if self.moved_ns > 0 else "less"
        base, candidate = (figures(count) for count in self.counts)
        return (
            f"A step of the candidate calls operators that take {time_ns(abs(self.moved_ns))} {more}: "
            f"{in_quotes(self.operator, 60)} {candidate} instead of {base} times."
        )


def more_calls(base: Side, candidate: Side) -> MoreCalls:
    """Compare how often the sides call each operator."""
    one, other = _calls(base), _calls(candidate)
    moved: dict[tuple[str, str], float] = {}
    for key in dict.fromkeys((*one, *other)):
        (before, before_ns), (after, after_ns) = one.get(key, (0.0, 0.0)), other.get(key, (0.0, 0.0))
        if abs(after - before) > ROUNDING * max(after, before):
            moved[key] = (after - before) * (before_ns + after_ns) / (before + after)
    most = max(moved, key=lambda key: abs(moved[key]), default=("", ""))
    counts = one.get(most, (0.0, 0.0))[0], other.get(most, (0.0, 0.0))[0]
    return MoreCalls(sum(moved.values()), most[1], counts)


def _calls(side: Side) -> Calls:
    found: defaultdict[tuple[str, str], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for digest in side.digests:
        table, factor = digest.operators, side.per_step(digest)
        columns = (
            *(texts(table, column) for column in ("path", "operator")),
            *(numbers(table, column).tolist() for column in ("count", "host_ns")),
        )
        for path, operator, count, host_ns in zip(*columns, strict=True):
            if operator:
                known = found[path, operator]
                found[path, operator] = known[0] + count * factor, known[1] + host_ns * factor
    return dict(found)
