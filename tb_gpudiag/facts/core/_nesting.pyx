# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Nest spans, and pass values down a tree of spans, in one pass each. See nesting.py for how it is used."""

from libc.stdint cimport int32_t, int64_t


def nest(
    const int64_t[::1] starts,
    const int64_t[::1] closes,
    int64_t[::1] depth,
    int64_t[::1] parents,
    int64_t[::1] opened_by,
    int64_t[::1] last,
):
    """Fill in the arrays of nesting.Nesting, shape (k,) each."""
    cdef Py_ssize_t count = starts.shape[0], i, close = 0
    cdef int64_t inner = -1, level = 0
    for i in range(count + 1):
        while close < count and (i == count or closes[close] <= starts[i]):
            opened_by[close] = inner
            last[inner] = i
            inner = parents[inner]
            level -= 1
            close += 1
        if i < count:
            parents[i] = inner
            depth[i] = level
            inner = i
            level += 1


def nearest(const int64_t[::1] spans, const int64_t[::1] parent, int64_t[::1] found):
    """Fill in what is -1 from the parent. spans: parents before their children."""
    cdef Py_ssize_t i
    cdef int64_t span
    for i in range(spans.shape[0]):
        span = spans[i]
        if found[span] == -1 and parent[span] != -1:
            found[span] = found[parent[span]]


def outermost(const int64_t[::1] spans, const int64_t[::1] parent, int64_t[::1] found):
    """Replace values by the parent's, unless that is -1."""
    cdef Py_ssize_t i
    cdef int64_t span
    for i in range(spans.shape[0]):
        span = spans[i]
        if parent[span] != -1 and found[parent[span]] != -1:
            found[span] = found[parent[span]]


def least(const int64_t[::1] spans, const int64_t[::1] parent, int64_t[::1] found):
    """Replace values by the parent's where that is less."""
    cdef Py_ssize_t i
    cdef int64_t span
    for i in range(spans.shape[0]):
        span = spans[i]
        if parent[span] != -1 and found[parent[span]] < found[span]:
            found[span] = found[parent[span]]


def segments(
    const int64_t[::1] starts,
    const int64_t[::1] closes,
    const int64_t[::1] starts_ns,
    const int64_t[::1] closes_ns,
    const int64_t[::1] opened_by,
    const int64_t[::1] parents,
    const int32_t[::1] thread,
    int64_t[::1] begins,
    int64_t[::1] ends,
    int64_t[::1] inner,
    int64_t[::1] of_thread,
) -> int:
    """Write the stretches between one start or end and the next on the same thread, with the innermost span of
    each, and count them by thread. Return how many there are, at most 2 k.

    starts, closes, opened_by, parents: as in nesting.Nesting, shape (k,). starts_ns, closes_ns: their times.
    """
    cdef Py_ssize_t count = starts.shape[0], opening = 0, close = 0, found = 0
    cdef int64_t innermost = -1, span, now, reached = 0
    cdef int32_t here = -1  # the thread
    cdef bint opens
    while close < count:
        opens = opening < count and starts[opening] < closes[close]
        if opens:
            span = opening
            now = starts_ns[opening]
        else:
            span = opened_by[close]
            now = closes_ns[close]
        if thread[span] != here:
            here = thread[span]
        elif now > reached:
            begins[found], ends[found], inner[found] = reached, now, innermost
            of_thread[here] += 1
            found += 1
        reached = now
        if opens:
            innermost = span
            opening += 1
        else:
            innermost = parents[span]
            close += 1
    return found
