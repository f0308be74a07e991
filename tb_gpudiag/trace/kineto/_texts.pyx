# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Decode the texts that the scanner found. See settle.py for how it is used."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from tb_gpudiag.trace.kineto._json cimport (
    ESCAPED, LENGTH, Text, byte_at, code_unit, is_digit, skip_number, skip_space
)

GIVEN_UP = -1

cdef enum:
    # Longer numbers may be shown in another form than they are written.
    MOST_DIGITS = 18


def read_texts(
    bytes content not None, const int64_t[::1] places, uint8_t[::1] out, int32_t[::1] offsets, bint numbers
) -> int:
    """Write texts one after the other: strings, and the JSON of other values, as fields.py shows it. Return how many
    bytes they have together; GIVEN_UP if fields.py has to read them.

    places, shape (n,): as the scanner keeps them; -1 for an empty text. out: as long as all places together.
    offsets, shape (n + 1,): where each text starts. numbers: they are numbers, in any form.
    """
    cdef Text text
    cdef Py_ssize_t found
    text.bytes = content
    text.size = len(content)
    with nogil:
        found = decode(text, places, out, offsets, numbers)
    return found


cdef Py_ssize_t decode(
    Text text, const int64_t[::1] places, uint8_t[::1] out, int32_t[::1] offsets, bint numbers
) except -2 nogil:
    cdef Py_ssize_t i, at, length, used = 0
    cdef uint8_t c
    offsets[0] = 0
    for i in range(places.shape[0]):
        if places[i] >= 0:
            at = places[i] >> 32
            length = places[i] & LENGTH
            c = byte_at(text, at)
            if c == 34 and not numbers and not places[i] & ESCAPED:
                used = copy(text, at + 1, length - 2, out, used)
            elif c == 34 and not numbers:
                used = unescape(text, at + 1, length - 2, out, used)
            elif c == 91 and not numbers and not places[i] & ESCAPED:
                used = minify(text, at, length, out, used)
            elif (is_digit(c) or c == 45) and (numbers or is_plain_integer(text, at, length)):
                used = copy(text, at, length, out, used)
            else:
                return -1
            if used < 0:
                return -1
        offsets[i + 1] = <int32_t>used
    return used


cdef Py_ssize_t copy(
    Text text, Py_ssize_t at, Py_ssize_t length, uint8_t[::1] out, Py_ssize_t used
) except -2 nogil:
    """Write the text as it is. Return the place after it; -1 to give up, where there is no room."""
    if at < 0 or length < 0 or at > text.size - length or used > out.shape[0] - length:
        return -1
    if length:
        memcpy(&out[used], text.bytes + at, length)
    return used + length


cdef bint is_plain_integer(Text text, Py_ssize_t at, Py_ssize_t length) noexcept nogil:
    """Return whether a number is shown as it is written."""
    cdef Py_ssize_t i
    if byte_at(text, at) == 45:
        at += 1
        length -= 1
        if byte_at(text, at) == 48:
            return False
    if length > MOST_DIGITS:
        return False
    for i in range(length):
        if not is_digit(byte_at(text, at + i)):
            return False
    return True


cdef Py_ssize_t unescape(
    Text text, Py_ssize_t at, Py_ssize_t length, uint8_t[::1] out, Py_ssize_t used
) except -2 nogil:
    """Write a string without its escapes. Return the place after it; -1 to give up."""
    cdef Py_ssize_t end = at + length
    cdef uint8_t c
    cdef int unit
    while at < end:
        c = byte_at(text, at)
        if c != 92:
            out[used] = c
            used += 1
            at += 1
            continue
        c = byte_at(text, at + 1)
        at += 2
        if c == 117:
            unit = code_unit(text, at)
            at += 4
            if unit <= 0 or 0xD800 <= unit <= 0xDFFF:
                return -1
            if unit < 0x80:
                out[used] = unit
            elif unit < 0x800:
                out[used] = 0xC0 | unit >> 6
                used += 1
                out[used] = 0x80 | (unit & 0x3F)
            else:
                out[used] = 0xE0 | unit >> 12
                out[used + 1] = 0x80 | (unit >> 6 & 0x3F)
                used += 2
                out[used] = 0x80 | (unit & 0x3F)
            used += 1
            continue
        if c == 98:
            c = 8
        elif c == 102:
            c = 12
        elif c == 110:
            c = 10
        elif c == 114:
            c = 13
        elif c == 116:
            c = 9
        out[used] = c
        used += 1
    return used


cdef Py_ssize_t minify(
    Text text, Py_ssize_t at, Py_ssize_t length, uint8_t[::1] out, Py_ssize_t used
) except -2 nogil:
    """Write a list without escapes and without its white space. Return the place after it; -1 to give up on numbers
    that are shown in another form, and on objects, whose keys may come twice."""
    cdef Py_ssize_t end = at + length, begin
    cdef uint8_t c
    while at < end:
        c = byte_at(text, at)
        if c == 34:
            while True:
                out[used] = c
                used += 1
                at += 1
                c = byte_at(text, at)
                if c == 34 or at >= end:
                    break
        elif c == 32 or c == 10 or c == 13 or c == 9:
            at = skip_space(text, at)
            continue
        elif c == 123:
            return -1
        elif is_digit(c) or c == 45:
            begin = at
            at = skip_number(text, at)
            if at < 0 or not is_plain_integer(text, begin, at - begin):
                return -1
            while begin < at:
                out[used] = byte_at(text, begin)
                used += 1
                begin += 1
            continue
        out[used] = c
        used += 1
        at += 1
    return used
