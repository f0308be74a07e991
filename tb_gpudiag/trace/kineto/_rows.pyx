# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Take rows of the columns that the scanner fills. See settle.py for how it is used.

values, shape (n,): a column. present, shape (n,): which columns each event has, as bits. rows, shape (m,): the events
that are taken.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


def take(
    const int64_t[::1] values,
    const uint64_t[::1] present,
    int column,
    const int64_t[::1] rows,
    int64_t missing,
    int64_t[::1] out,
) -> None:
    """Write the values of the rows to `out`, shape (m,), or `missing`."""
    cdef Py_ssize_t i, row
    with nogil:
        for i in range(rows.shape[0]):
            row = rows[i]
            out[i] = values[row] if present[row] >> column & 1 else missing


def number(
    const int64_t[::1] values,
    const uint64_t[::1] present,
    int column,
    const int64_t[::1] rows,
    const uint8_t[::1] where,
    const int64_t[::1] places,
    int32_t[::1] numbers,
    int64_t[::1] found,
    int32_t[::1] codes,
) -> int:
    """Number the different values of the rows in order of first appearance. Return how many there are.

    values: 0 and more, below len(places). where, shape (m,) or (0,) for all: the other rows have nothing. places: of
    each value. numbers, shape (len(places) + 1,): filled with -1. found, of the same shape: the place of each different value;
    -1 for nothing. codes, shape (m,): the number of each row's value.
    """
    cdef Py_ssize_t i, row
    cdef int64_t value
    cdef int32_t count = 0
    cdef bint some = where.shape[0] > 0
    with nogil:
        for i in range(rows.shape[0]):
            row = rows[i]
            value = -1
            if present[row] >> column & 1 and not (some and not where[i]):
                value = values[row]
            if numbers[value + 1] < 0:
                numbers[value + 1] = count
                found[count] = -1 if value < 0 else places[value]
                count += 1
            codes[i] = numbers[value + 1]
    return count
