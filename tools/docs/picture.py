"""Pictures of examples: a piece of the timeline as SVG, drawn from what the page would draw it from.

All colors are those of the light theme: the site's dark theme inverts them with the rest of the page.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import size_bytes, time_us
from tb_gpudiag.wording.palette import EVENT_COLORS, MEMORY_LINE_COLORS, PALETTE, TIME_COLORS

WIDTH: Final = 720
ROW: Final = 15
CURVE: Final = 60
CHARACTER: Final = 6.2  # width of one, on average
LEAST: Final = 0.6  # what is closer together, or narrower, cannot be seen apart
MOST_ROWS: Final = 5  # of a thread
MOST_STREAMS, MOST_THREADS, MOST_RANKS = 3, 2, 8
KINDS: Final = tuple(EVENT_COLORS)  # by their number on the wire

Span = tuple[float, float]


class Box(NamedTuple):
    start_us: float
    end_us: float
    color: str
    name: str = ""


@dataclass
class Rows:
    """A lane: its title, and the boxes of each of its rows, or a curve."""

    title: str
    rows: list[list[Box]] = field(default_factory=list)
    curve: list[tuple[float, float]] = field(default_factory=list)  # (µs, value)


def timeline_picture(timeline: pb.Timeline, marks: Iterable[Span], memory: pb.MemorySlice | None) -> str:
    """A slice of one trace. marks: what the finding is about. memory: the same range, to draw its curve."""
    lanes = [lane for lane in timeline.lanes if lane.box_start_us]
    kind = pb.Timeline
    shown = [lane for lane in lanes if lane.kind == kind.gaps]
    shown += [lane for lane in lanes if lane.kind == kind.stream][:MOST_STREAMS]
    shown += [lane for lane in lanes if lane.kind == kind.thread][:MOST_THREADS]
    rows = [_rows(lane, timeline.names) for lane in shown]
    if memory:
        curve = list(zip(memory.allocated.time_us, memory.allocated.high, strict=True))
        most = size_bytes(max((value for _, value in curve), default=0.0))
        rows.append(Rows(f"allocated memory, at most {most}", curve=curve))
    return _svg(rows, (timeline.start_us, timeline.end_us), marks)


def _rows(lane: pb.Lane, names: Sequence[str]) -> Rows:
    made: dict[int, list[Box]] = {}
    columns = zip(
        lane.box_start_us,
        lane.box_duration_us,
        lane.box_name,
        lane.box_depth,
        lane.box_kind,
        lane.box_count,
        strict=True,
    )
    for start, duration, name, depth, kind, count in columns:
        word = names[name]
        gap = lane.kind == pb.Timeline.gaps
        color = TIME_COLORS[word].light if gap else EVENT_COLORS[KINDS[kind]].light
        made.setdefault(depth, []).append(Box(start, start + duration, color, word if count == 1 else ""))
    rows = [made[depth] for depth in sorted(made)]
    while len(rows) > MOST_ROWS and len(rows[0]) == 1:  # a call that encloses all of it
        del rows[0]
    return Rows(lane.title, rows[:MOST_ROWS])


def ranks_picture(report: pb.JobReport, span: Span) -> str:
    """What each rank of a job does between two times."""
    timeline, made = report.timeline, []
    for lane in timeline.lanes[:MOST_RANKS]:
        boxes, at, part = [], lane.start_us, 0
        for end, parts in zip(lane.end_us, lane.parts, strict=True):
            for index in range(part, part + parts):
                word = timeline.parts[lane.part[index]]
                boxes.append(Box(at, at + lane.part_us[index], TIME_COLORS[word].light, word))
                at += lane.part_us[index]
            at, part = end, part + parts
        calls = lane.collectives
        waiting = TIME_COLORS["collective"].light
        waits = [
            Box(start, start + us, waiting, "waits")
            for start, us in zip(calls.start_us, calls.waiting_us, strict=True)
            if us > 0
        ]
        rank = report.ranks[lane.at].rank
        made.append(Rows(f"rank {rank}: its work, and where it waits for others", [boxes, waits]))
    return _svg(made, span, ())


def _svg(lanes: Iterable[Rows], span: Span, marks: Iterable[Span]) -> str:
    start, end = span
    scale = WIDTH / (end - start)
    body: list[str] = []
    at = 4
    for lane in lanes:
        at += 14
        title = html.escape(lane.title[:100])
        body.append(f'<text class="t" x="2" y="{at - 4}">{title}</text>')
        for row in lane.rows:
            body += _row(row, span, scale, at)
            at += ROW + 1
        if lane.curve:
            body.append(_curve(lane.curve, span, scale, at))
            at += CURVE
        at += 4
    bands = [
        f'<rect class="m" x="{_n(left)}" width="{_n(max(1.5, right - left))}" height="{at}"/>'
        for left, right in _joined((_x(a, span, scale), _x(b, span, scale)) for a, b in marks)
    ]
    ticks = _ticks(span, scale, at)
    style = (
        f"text{{font:10.5px system-ui,sans-serif;fill:#fff}}.t{{fill:{PALETTE['muted'].light}}}"
        f".m{{fill:{PALETTE['accent'].light};opacity:.13}}"
    )
    height = at + 16
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f'<style>{style}</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *body,
            *bands,
            *ticks,
            "</svg>\n",
        ]
    )


def _row(row: Iterable[Box], span: Span, scale: float, at: int) -> Iterator[str]:
    """Boxes of one color are one path. Neighbors that cannot be seen apart are one box."""
    paths: dict[str, list[Span]] = {}
    labels = []
    for box in sorted(row):
        left, right = _x(box.start_us, span, scale), _x(box.end_us, span, scale)
        if right <= 0 or left >= WIDTH or right <= left:
            continue
        paths.setdefault(box.color, []).append((left, right))
        fits = int((right - left - 6) / CHARACTER)
        if fits >= 4 and box.name:
            name = box.name if len(box.name) <= fits else f"{box.name[: fits - 1]}…"
            labels.append(f'<text x="{_n(left + 3)}" y="{at + 11}">{html.escape(name)}</text>')
    for color, parts in paths.items():
        widths = [(_n(left), _n(max(LEAST, right - left - 0.3))) for left, right in _joined(parts)]
        drawn = "".join(f"M{left} {at}h{width}v{ROW}h-{width}z" for left, width in widths)
        yield f'<path fill="{color}" d="{drawn}"/>'
    yield from labels


def _curve(points: Sequence[tuple[float, float]], span: Span, scale: float, at: int) -> str:
    most = max(value for _, value in points) or 1
    drawn, height, last = [], 0.0, -1.0
    for us, value in points:
        x = min(WIDTH, max(0.0, _x(us, span, scale)))
        height = CURVE * (1 - value / most)
        if x - last >= LEAST:
            drawn.append(f"H{_n(x)}V{_n(at + height)}")
            last = x
    color = MEMORY_LINE_COLORS["allocated"].light
    return f'<path fill="none" stroke="{color}" d="M0 {at + CURVE}{"".join(drawn)}H{WIDTH}"/>'


def _ticks(span: Span, scale: float, at: int) -> Iterator[str]:
    for part in range(5):
        us = (span[1] - span[0]) * part / 4
        anchor = ("start", "middle", "middle", "middle", "end")[part]
        words = html.escape(time_us(us)) if part else "0"
        yield f'<text class="t" x="{_n(us * scale)}" y="{at + 12}" text-anchor="{anchor}">{words}</text>'


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Spans in order, without the gaps between them that cannot be seen."""
    found: list[Span] = []
    for left, right in sorted(spans):
        if found and left - found[-1][1] < LEAST:
            found[-1] = (found[-1][0], max(found[-1][1], right))
        else:
            found.append((max(0.0, left), min(float(WIDTH), right)))
    return (one for one in found if one[1] > 0 and one[0] < WIDTH)


def _x(us: float, span: Span, scale: float) -> float:
    return min(float(WIDTH), max(0.0, (us - span[0]) * scale))


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
