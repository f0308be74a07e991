"""Step curves: a slice has the exact extremes of each pixel, and few points."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.report.slices.prepared import (
    BLOCK,
    POINTS_PER_PIXEL,
    CurveSlice,
    Pyramid,
    build_pyramid,
    pack,
    slice_curve,
    unpack,
)
from tests.with_each import with_each

points = st.lists(st.tuples(st.integers(0, 2_000), st.integers(-50, 50)), min_size=1, max_size=300)


def curve_of(some: list[tuple[int, int]]) -> Pyramid:
    times, values = (np.array(column, np.int64) for column in zip(*some, strict=True))
    order = np.argsort(times, kind="stable")
    return build_pyramid(times[order], values[order])


def values_in(curve: Pyramid, start: int, end: int) -> list[int]:
    """Every value of the curve in [start, end)."""
    pairs = list(zip(curve.time_ns.tolist(), curve.value.tolist(), strict=True))
    before = [value for time, value in pairs if time < start][-1:]
    inside = [value for time, value in pairs if start <= time < end]
    return inside if any(time == start for time, _ in pairs) else before + inside


def shown(found: CurveSlice, at: int) -> tuple[int, int]:
    """(low, high) of the last point at or before this time."""
    index = int(np.searchsorted(found.time_ns, at, side="right")) - 1
    return int(found.low[index]), int(found.high[index])


@given(points, st.integers(-100, 2_100), st.integers(1, 2_500), st.integers(1, 60))
def test_a_slice_has_the_extremes_of_every_pixel(
    some: list[tuple[int, int]], start: int, length: int, width: int
) -> None:
    curve, end = curve_of(some), start + length
    found = slice_curve(curve, start, end, width)
    begin = max(start, int(curve.time_ns[0]))
    if begin >= end:
        assert not len(found.time_ns)
        return
    assert found.time_ns[0] == begin
    assert (np.diff(found.time_ns) >= 0).all()
    assert len(found.time_ns) <= POINTS_PER_PIXEL * width
    if found.exact:
        assert found.low.tolist() == found.high.tolist() == values_in(curve, begin, end)
        return
    assert found.time_ns[-1] < end
    pixels = min(width, end - begin)
    for pixel in range(pixels):
        low, high = (begin + (end - begin) * k // pixels for k in (pixel, pixel + 1))
        values = values_in(curve, low, high)
        assert shown(found, low) == shown(found, high - 1) == (min(values), max(values))


@with_each("count", [1, BLOCK, BLOCK + 1, BLOCK**2, 5 * BLOCK**2 + 7])
def test_long_curves_have_their_extremes_on_every_level(count: int) -> None:
    random = np.random.default_rng(count)
    time, value = np.cumsum(random.integers(0, 4, count)), random.integers(-(10**12), 10**12, count)
    curve = build_pyramid(time, value)
    start, end = int(time[0]), int(time[-1]) + 1
    for low, high in [(start, end), (start + (end - start) // 3, end - (end - start) // 5)]:
        for width in (1, 2, 7):
            found = slice_curve(curve, low, high, width)
            values = values_in(curve, low, high)
            assert (found.low.min(), found.high.max()) == (min(values), max(values))
            assert len(found.time_ns) <= POINTS_PER_PIXEL * width


def test_zoomed_in_a_slice_is_the_curve_itself() -> None:
    curve = build_pyramid(np.array([0, 10, 20, 30]), np.array([1, 5, 2, 9]))
    found = slice_curve(curve, 15, 30, 100)
    assert found.exact
    assert list(zip(found.time_ns.tolist(), found.low.tolist(), strict=True)) == [(15, 5), (20, 2)]


def test_a_curve_of_years_does_not_overflow() -> None:
    far = 1 << 61
    curve = build_pyramid(np.array([-far, 0, 1, 2, 3, far]), np.array([1, 2, 3, 4, 5, 6]))
    found = slice_curve(curve, -far, far + 1, 2)
    assert found.time_ns.tolist() == [-far, 0]
    assert (found.low.tolist(), found.high.tolist()) == ([1, 2], [1, 6])


def test_curves_are_packed_and_unpacked() -> None:
    random = np.random.default_rng(3)
    curves = [
        build_pyramid(np.arange(count), random.integers(0, 99, count)) for count in (0, 5, 3_000, 1, BLOCK)
    ]
    arrays = pack("queue", curves)
    for index, curve in enumerate(curves):
        for part, kept in zip(curve, unpack(arrays, "queue", index), strict=True):
            assert part.tolist() == kept.tolist()


def test_an_empty_list_of_curves_is_packed() -> None:
    assert all(not len(array) for name, array in pack("queue", []).items() if name != "queue_first")
