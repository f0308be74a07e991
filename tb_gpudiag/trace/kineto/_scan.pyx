# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Find the fields of events in JSON text, in one pass.

A strict recognizer: it accepts a part of what JSON allows, and gives up on everything else. Its caller then
has fields.py read that text. See settle.py for how it is used.

The bytes come from a stranger: every place in the text and in the arrays is checked, and nothing recurses.
"""

import os

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from tb_gpudiag.trace.kineto._json cimport (
    ESCAPED, LENGTH, Text, byte_at, is_digit, skip_space, skip_string, skip_value, skip_word, word_at
)

INTEGER, MICROSECONDS, TEXT, SELDOM_TEXT, ARGUMENTS = range(5)
"""Kinds of fields. A time in µs is kept in ns, a TEXT as its number among the different ones, and a SELDOM_TEXT as
its place: start << 32 | escaped << 31 | length. A text is the JSON of a value."""

GIVEN_UP = -1

cdef enum:
    K_INTEGER = 0
    K_MICROSECONDS = 1
    K_TEXT = 2
    K_SELDOM_TEXT = 3
    K_ARGUMENTS = 4
    SLOTS = 256
    MOST_KEYS = 64
    LONGEST_KEY = 40
    # So many digits fit 64 bits.
    MOST_DIGITS = 18
    MOST_DIGITS_US = 16
    # At most half of the table is in use: chance leads to a hundred steps. Whoever knew how texts are hashed could
    # have each one compared with all before it.
    MOST_PROBES = 512


cdef struct Keys:
    int slot[SLOTS]
    uint8_t name[MOST_KEYS][LONGEST_KEY]
    int length[MOST_KEYS]
    int kind[MOST_KEYS]
    int column[MOST_KEYS]
    uint64_t seed


cdef Py_ssize_t read_integer(Text text, Py_ssize_t at, int64_t* value) noexcept nogil:
    """Return the place after an integer that fits 64 bits; -1 to give up."""
    cdef bint negative = byte_at(text, at) == 45
    cdef Py_ssize_t begin
    cdef int64_t number = 0
    cdef uint8_t c
    at += negative
    begin = at
    c = byte_at(text, at)
    while is_digit(c):
        if at - begin == MOST_DIGITS:
            return -1
        number = number * 10 + (c - 48)
        at += 1
        c = byte_at(text, at)
    if at == begin or (byte_at(text, begin) == 48 and at > begin + 1) or c == 46 or (c | 32) == 101:
        return -1
    value[0] = -number if negative else number
    return at


cdef Py_ssize_t read_microseconds(Text text, Py_ssize_t at, int64_t* value) noexcept nogil:
    """Read a decimal of µs as ns. Return the place after it; -1 to give up."""
    cdef bint negative = byte_at(text, at) == 45
    cdef Py_ssize_t begin
    cdef int64_t number = 0
    cdef int decimals = 0
    cdef bint up = False  # rounded half up, by the first digit after the ns
    cdef uint8_t c
    at += negative
    begin = at
    c = byte_at(text, at)
    while is_digit(c):
        if at - begin == MOST_DIGITS_US:
            return -1
        number = number * 10 + (c - 48)
        at += 1
        c = byte_at(text, at)
    if at == begin or (byte_at(text, begin) == 48 and at > begin + 1) or number >> 53:
        return -1  # with more bits, it may not fit as ns
    if c == 46:
        at += 1
        c = byte_at(text, at)
        if not is_digit(c):
            return -1
        while is_digit(c):
            if decimals < 3:
                number = number * 10 + (c - 48)
            elif decimals == 3:
                up = c >= 53
            decimals += 1
            at += 1
            c = byte_at(text, at)
    if (c | 32) == 101:
        return -1
    while decimals < 3:
        number *= 10
        decimals += 1
    number += up
    value[0] = -number if negative else number
    return at


cdef inline uint64_t key_hash(Text text, Py_ssize_t begin, Py_ssize_t length, uint64_t seed) noexcept nogil:
    cdef uint64_t mixed = (
        <uint64_t>length
        | <uint64_t>byte_at(text, begin) << 8
        | <uint64_t>byte_at(text, begin + length - 1) << 16
        | <uint64_t>byte_at(text, begin + length // 2) << 24
    )
    return (mixed * seed) >> 56


cdef inline int find_key(Keys* keys, Text text, Py_ssize_t begin, Py_ssize_t length) noexcept nogil:
    """Return the number of a key, or -1."""
    cdef int key, i
    if length <= 0 or length > LONGEST_KEY:
        return -1
    key = keys.slot[key_hash(text, begin, length, keys.seed) & (SLOTS - 1)]
    if key < 0 or keys.length[key] != length:
        return -1
    for i in range(<int>length):
        if keys.name[key][i] != byte_at(text, begin + i):
            return -1
    return key


cdef bint set_keys(Keys* keys, list fields, uint64_t seed) except -1:
    """Fill the table. Return False if two keys share a slot."""
    cdef int number = 0, i, slot
    cdef bytes name
    cdef Text text
    for i in range(SLOTS):
        keys.slot[i] = -1
    keys.seed = seed
    for name, kind, column in fields:
        if number == MOST_KEYS or not 0 < len(name) <= LONGEST_KEY:
            raise ValueError("too many keys, or too long a key")
        text.bytes = name
        text.size = len(name)
        slot = key_hash(text, 0, text.size, seed) & (SLOTS - 1)
        if keys.slot[slot] >= 0:
            return False
        keys.slot[slot] = number
        keys.length[number] = <int>text.size
        keys.kind[number] = kind
        keys.column[number] = column
        for i in range(<int>text.size):
            keys.name[number][i] = byte_at(text, i)
        number += 1
    return True


cdef inline uint64_t hash_of(Text text, Py_ssize_t at, Py_ssize_t length, uint64_t seed) noexcept nogil:
    cdef uint64_t hashed = seed ^ <uint64_t>length * 0x9E3779B97F4A7C15ULL, word
    cdef Py_ssize_t end = at + length
    while at + 8 <= end and word_at(text, at, &word):
        hashed = (hashed ^ word) * 0xFF51AFD7ED558CCDULL
        # Rotated, the highest bits change the others as well: two texts collide for few seeds only.
        hashed = (hashed << 31 | hashed >> 33) * 0xC4CEB9FE1A85EC53ULL
        hashed ^= hashed >> 32
        at += 8
    while at < end:
        hashed = (hashed ^ byte_at(text, at)) * 0xC4CEB9FE1A85EC53ULL
        hashed ^= hashed >> 29
        at += 1
    return hashed


cdef inline bint same(Text text, int64_t place, Py_ssize_t at, Py_ssize_t length) noexcept nogil:
    """Return whether the text at `place` is the one at `at`."""
    cdef Py_ssize_t other = place >> 32, i = 0
    cdef uint64_t one, two
    if (place & LENGTH) != length:
        return False
    while i + 8 <= length and word_at(text, at + i, &one) and word_at(text, other + i, &two):
        if one != two:
            return False
        i += 8
    while i < length:
        if byte_at(text, at + i) != byte_at(text, other + i):
            return False
        i += 1
    return True


cdef class Scanner:
    """Scans one text after the other, in one thread.

    values: shape (columns, rows), what the last text's events have in each column. present: shape (rows,), the
    columns that each of them has, as bits. places: of each different text, shape (most texts,). texts: how many
    there are.
    """

    cdef Keys event
    cdef Keys arguments
    cdef object values
    cdef object present
    cdef object places
    cdef readonly Py_ssize_t texts
    cdef object hashes
    cdef object table
    cdef uint64_t seed

    def __init__(
        self, list event not None, list arguments not None, values, present, places, hashes, table
    ):
        """event, arguments: keys with their kind and column. hashes: shape (most texts,). table: its size is a power of
        2 and more than there may be texts."""
        seed = 0x9E3779B97F4A7C15
        while not (set_keys(&self.event, event, seed) and set_keys(&self.arguments, arguments, seed)):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        self.values, self.present, self.places, self.hashes = values, present, places, hashes
        self.table = table
        self.seed = int.from_bytes(os.urandom(8), "little")

    def scan(self, bytes content not None) -> int:
        """Scan an array of events. Return how many it has; GIVEN_UP if fields.py has to read it."""
        cdef int64_t[:, ::1] values = self.values
        cdef uint64_t[::1] present = self.present
        cdef int64_t[::1] places = self.places
        cdef uint64_t[::1] hashes = self.hashes
        cdef int32_t[::1] table = self.table
        cdef Text text
        cdef Py_ssize_t found
        text.bytes = content
        text.size = len(content)
        with nogil:
            found = scan(text, &self.event, &self.arguments, values, present, places, hashes, table, self.seed,
                         &self.texts)
        return found


cdef Py_ssize_t scan(
    Text text,
    Keys* event,
    Keys* arguments,
    int64_t[:, ::1] values,
    uint64_t[::1] present,
    int64_t[::1] places,
    uint64_t[::1] hashes,
    int32_t[::1] table,
    uint64_t seed,
    Py_ssize_t* texts,
) except -2 nogil:
    cdef Py_ssize_t at = skip_space(text, 0), row = 0, begin, end
    cdef Py_ssize_t most = present.shape[0]
    cdef Keys* keys
    cdef uint64_t seen, has, bit
    cdef int key, kind
    cdef bint escaped
    cdef uint8_t c
    cdef int64_t value = 0
    cdef int64_t place, last[MOST_KEYS]  # numbers of the last text of each key of an event
    cdef Py_ssize_t slot, mask = table.shape[0] - 1
    cdef int probes
    cdef uint64_t hashed
    texts[0] = 0
    table[:] = -1
    for key in range(MOST_KEYS):
        last[key] = -1
    if byte_at(text, at) != 91:
        return -1
    at = skip_space(text, at + 1)
    if byte_at(text, at) == 93:
        return 0 if skip_space(text, at + 1) == text.size else -1
    while True:
        if byte_at(text, at) != 123 or row == most:
            return -1
        seen = has = 0
        keys = event
        at = skip_space(text, at + 1)
        if byte_at(text, at) == 125:
            at += 1
        else:
            while True:  # an entry of the event or of its arguments
                if byte_at(text, at) != 34:
                    return -1
                begin = at + 1
                escaped = False
                at = skip_string(text, begin, &escaped)
                if at < 0 or escaped:
                    return -1
                key = find_key(keys, text, begin, at - 1 - begin)
                at = skip_space(text, at)
                if byte_at(text, at) != 58:
                    return -1
                at = skip_space(text, at + 1)
                begin = at
                c = byte_at(text, at)
                if key < 0:
                    at = skip_value(text, at, &escaped)
                    if at < 0:
                        return -1
                else:
                    bit = <uint64_t>1 << keys.column[key]
                    if seen & bit:  # twice
                        return -1
                    seen |= bit
                    kind = keys.kind[key]
                    if c == 110:  # null
                        at = skip_word(text, at)
                    elif kind == K_ARGUMENTS:
                        if c != 123:
                            return -1
                        at = skip_space(text, at + 1)
                        if byte_at(text, at) != 125:
                            keys = arguments
                            continue
                        at += 1
                    else:
                        if kind == K_TEXT or kind == K_SELDOM_TEXT:
                            at = skip_value(text, at, &escaped)
                            value = begin << 32 | (ESCAPED if escaped else 0) | (at - begin)
                            if at >= 0 and kind == K_TEXT:
                                place = value
                                value = last[key]
                                if value < 0 or not same(text, places[value], begin, at - begin):
                                    hashed = hash_of(text, begin, at - begin, seed)
                                    slot = <Py_ssize_t>(hashed >> 20) & mask
                                    probes = 0
                                    while True:
                                        value = table[slot]
                                        if value < 0:
                                            break
                                        probes += 1
                                        if probes > MOST_PROBES:
                                            return -1
                                        if hashes[value] == hashed and same(
                                            text, places[value], begin, at - begin
                                        ):
                                            break
                                        slot = (slot + 1) & mask
                                    if value < 0:
                                        if texts[0] == places.shape[0]:
                                            return -1
                                        value = texts[0]
                                        table[slot] = <int32_t>value
                                        hashes[value] = hashed
                                        places[value] = place
                                        texts[0] += 1
                                    last[key] = value
                        elif kind == K_INTEGER:
                            at = read_integer(text, at + (c == 34), &value)
                        else:
                            at = read_microseconds(text, at + (c == 34), &value)
                        if kind < K_TEXT and c == 34 and at >= 0:  # ROCm and Ascend quote some numbers
                            at = at + 1 if byte_at(text, at) == 34 else -1
                        has |= bit
                        if at >= 0:
                            values[keys.column[key], row] = value
                    if at < 0:
                        return -1
                at = skip_space(text, at)
                c = byte_at(text, at)
                at += 1
                if c == 125 and keys == arguments:
                    keys = event
                    at = skip_space(text, at)
                    c = byte_at(text, at)
                    at += 1
                if c == 125:
                    break
                if c != 44:
                    return -1
                at = skip_space(text, at)
        present[row] = has
        row += 1
        at = skip_space(text, at)
        c = byte_at(text, at)
        if c == 93:
            return row if skip_space(text, at + 1) == text.size else -1
        if c != 44:
            return -1
        at = skip_space(text, at + 1)
