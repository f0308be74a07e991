# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Nest spans, and pass values down a tree of spans, in one pass each. See nesting.py for how it is used."""

from libc.stdint cimport int32_t, int64_t, uint8_t


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
    const int64_t[::1] events,
    const int32_t[::1] thread,
    int64_t[::1] borders_ns,
    int64_t[::1] innermost,
    int64_t[::1] of_thread,
):
    """Fill in the arrays of nesting.Segments. borders_ns and innermost: shape (2 k,), of which the first are used.

    starts, closes, opened_by, parents: as in nesting.Nesting, shape (k,). starts_ns, closes_ns: their times.
    """
    cdef Py_ssize_t count = starts.shape[0], opening = 0, close = 0, borders = 0, found = 0
    cdef int64_t inner = -1, span, now, reached = 0
    cdef int32_t here = -1  # the thread
    cdef bint opens
    while close < count:
        opens = opening < count and starts[opening] < closes[close]
        span = opening if opens else opened_by[close]
        now = starts_ns[opening] if opens else closes_ns[close]
        if thread[span] != here:
            here = thread[span]
            borders_ns[borders] = reached = now
            borders += 1
        elif now > reached:
            borders_ns[borders] = reached = now
            innermost[found] = events[inner] if inner != -1 else -1
            of_thread[here] += 1
            borders += 1
            found += 1
        inner = span if opens else parents[span]
        opening += opens
        close += not opens


def inside(const int64_t[::1] spans, const int64_t[::1] parent, uint8_t[::1] found):
    """Set what has a set parent. spans: parents before their children."""
    cdef Py_ssize_t i
    cdef int64_t span
    for i in range(spans.shape[0]):
        span = spans[i]
        if parent[span] != -1 and found[parent[span]]:
            found[span] = True
