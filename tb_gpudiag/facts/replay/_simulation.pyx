# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Run the replay's calls and streams. See simulation.py for the model and for how it is used."""

from libc.stdint cimport int64_t, uint8_t


def simulate(
    int64_t now,
    int64_t never,
    int most_passes,
    const int64_t[::1] between,
    const int64_t[::1] inside,
    const int64_t[::1] target,
    const int64_t[::1] waits_for,
    const int64_t[::1] full_queue_target,
    const int64_t[::1] full_queue_call,
    const int64_t[::1] call,
    const int64_t[::1] duration,
    const int64_t[::1] latency,
    const uint8_t[::1] from_return,
    const int64_t[::1] turnaround,
    const int64_t[::1] other,
    const int64_t[::1] handshake,
    const int64_t[::1] work,
    const int64_t[::1] line,
    const int64_t[::1] borders,
    int64_t[::1] low,
    int64_t[::1] high,
    int64_t[::1] begun,
    int64_t[::1] returned,
    int64_t[::1] ends,
):
    """Fill in when calls begin and return, and when work ends (`never` before).

    work, line: the work of all streams and its calls, one stream after the other; borders: where each begins.
    low, high, shape of the streams: places in `work`. low: the beginnings.
    """
    cdef Py_ssize_t count = between.shape[0], streams = low.shape[0], a = 0, b, i, s, one
    cdef int64_t least, reached, started, found
    cdef int used, passes
    cdef bint alone, crossing, changed
    while a < count:
        # Calls up to the first one that waits for work of the same stretch.
        alone = waits_for[a] == a
        b = a + 1
        while not alone and b < count and waits_for[b] < a and full_queue_call[b] < a:
            b += 1
        reached = now
        for i in range(a, b):
            least = never
            if not alone:
                if target[i] != -1:
                    least = ends[target[i]]
                if full_queue_target[i] != -1:
                    least = max(least, ends[full_queue_target[i]])
            begun[i] = reached + between[i]
            reached = max(begun[i] + inside[i], least + inside[i])
            returned[i] = reached
        # Their work, stream by stream, until the times of all streams are consistent.
        used, crossing = 0, False
        for s in range(streams):
            i = low[s]
            while i < borders[s + 1] and line[i] < b:
                crossing = crossing or other[work[i]] != -1
                i += 1
            used += i > low[s]
            high[s] = i
        passes = most_passes if crossing and used > 1 else 1
        changed = True
        while changed and passes > 0:
            changed = False
            passes -= 1
            for s in range(streams):
                reached = ends[work[low[s] - 1]] if low[s] > borders[s] else never
                for i in range(low[s], high[s]):
                    one = work[i]
                    started = returned[call[one]] if from_return[one] else begun[call[one]]
                    least = started + latency[one]
                    if other[one] != -1:
                        least = max(least, ends[other[one]] + handshake[one])
                    found = max(reached + turnaround[one], least) + duration[one]
                    changed = changed or found != ends[one]
                    ends[one] = reached = found
        for s in range(streams):
            low[s] = high[s]
        if alone:
            returned[a] = max(begun[a], ends[target[a]]) + inside[a]
        now = returned[b - 1]
        a = b
