# cython: language_level=3
"""Pass over the tokens of JSON text. Every function takes a place in the text and returns the place after what
it passes, or -1 to give up.

The text is read through `byte_at` and `word_at` only, which check the place.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && defined(__GNUC__)
    #define first_marked(mask) (__builtin_ctzll(mask) >> 3)
    #else
    #define first_marked(mask) 0
    #endif
    #define ONES 0x0101010101010101ULL
    #define HIGH 0x8080808080808080ULL
    #define SPACES 0x2020202020202020ULL
    /* Of the place of a text: whether it has escapes, and its length. */
    #define ESCAPED (1LL << 31)
    #define LENGTH (ESCAPED - 1)
    """
    int first_marked(uint64_t mask) nogil
    const uint64_t ONES, HIGH, SPACES
    const int64_t ESCAPED, LENGTH


cdef enum:
    # Bits of a word: one for each open bracket.
    DEEPEST = 60


cdef struct Text:
    const uint8_t* bytes
    Py_ssize_t size


cdef inline uint8_t byte_at(Text text, Py_ssize_t at) noexcept nogil:
    """Return a byte; 0, which no JSON contains, outside the text."""
    return text.bytes[at] if 0 <= at < text.size else 0


cdef inline bint word_at(Text text, Py_ssize_t at, uint64_t* word) noexcept nogil:
    """Read eight bytes. Return False if the text has fewer."""
    if at < 0 or at > text.size - 8:
        return False
    memcpy(word, text.bytes + at, 8)
    return True


cdef inline bint is_digit(uint8_t c) noexcept nogil:
    return 48 <= c <= 57


cdef inline Py_ssize_t skip_space(Text text, Py_ssize_t at) noexcept nogil:
    cdef uint64_t word
    cdef uint8_t c
    while True:
        c = byte_at(text, at)
        if c > 32:
            return at
        if c == 10 or c == 13 or c == 9 or c == 32:
            at += 1
            while word_at(text, at, &word) and word == SPACES:
                at += 8
        else:
            return at


cdef inline int utf8_length(Text text, Py_ssize_t at) noexcept nogil:
    """Return how many bytes the character at `at` has, which is not ASCII; 0 if it is not UTF-8."""
    cdef uint8_t a = byte_at(text, at), b = byte_at(text, at + 1)
    cdef uint8_t c, d
    if (b & 0xC0) != 0x80:
        return 0
    if 0xC2 <= a <= 0xDF:
        return 2
    c = byte_at(text, at + 2)
    if (c & 0xC0) != 0x80:
        return 0
    if 0xE0 <= a <= 0xEF:
        if (a == 0xE0 and b < 0xA0) or (a == 0xED and b > 0x9F):
            return 0
        return 3
    d = byte_at(text, at + 3)
    if (d & 0xC0) != 0x80 or a < 0xF0 or a > 0xF4 or (a == 0xF0 and b < 0x90) or (a == 0xF4 and b > 0x8F):
        return 0
    return 4


cdef inline int hex_value(uint8_t c) noexcept nogil:
    if 48 <= c <= 57:
        return c - 48
    c |= 32
    return c - 87 if 97 <= c <= 102 else -1


cdef inline int code_unit(Text text, Py_ssize_t at) noexcept nogil:
    """Return the number of four hexadecimal digits, or -1."""
    cdef int value = 0, digit
    cdef int i
    for i in range(4):
        digit = hex_value(byte_at(text, at + i))
        if digit < 0:
            return -1
        value = value << 4 | digit
    return value


cdef inline Py_ssize_t skip_escape(Text text, Py_ssize_t at) noexcept nogil:
    """Return the place after an escape, whose backslash is at `at`; -1 to give up."""
    cdef uint8_t c = byte_at(text, at + 1)
    cdef int unit
    if c == 34 or c == 92 or c == 47 or c == 98 or c == 102 or c == 110 or c == 114 or c == 116:
        return at + 2
    if c != 117:
        return -1
    unit = code_unit(text, at + 2)
    # Surrogates belong in pairs; 0 ends a string elsewhere.
    return -1 if unit <= 0 or 0xD800 <= unit <= 0xDFFF else at + 6


cdef inline Py_ssize_t skip_string(Text text, Py_ssize_t at, bint* escaped) noexcept nogil:
    """Return the place after the string that starts after its quote at `at`; -1 to give up."""
    cdef uint64_t word, marked, other
    cdef uint8_t c
    cdef int length
    while True:
        while word_at(text, at, &word):
            other = word ^ (ONES * 34)
            marked = (other - ONES) & ~other
            other = word ^ (ONES * 92)
            marked |= (other - ONES) & ~other
            marked |= (word - ONES * 32) & ~word
            marked = (marked | word) & HIGH
            if marked:
                at += first_marked(marked)
                break
            at += 8
        c = byte_at(text, at)
        if c == 34:
            return at + 1
        if c == 92:
            escaped[0] = True
            at = skip_escape(text, at)
            if at < 0:
                return -1
        elif c >= 128:
            length = utf8_length(text, at)
            if not length:
                return -1
            at += length
        elif c < 32:
            return -1
        else:
            at += 1


cdef inline Py_ssize_t skip_number(Text text, Py_ssize_t at) noexcept nogil:
    """Return the place after a number; -1 to give up."""
    cdef Py_ssize_t begin
    if byte_at(text, at) == 45:
        at += 1
    begin = at
    while is_digit(byte_at(text, at)):
        at += 1
    if at == begin or (byte_at(text, begin) == 48 and at > begin + 1):
        return -1
    if byte_at(text, at) == 46:
        at += 1
        begin = at
        while is_digit(byte_at(text, at)):
            at += 1
        if at == begin:
            return -1
    if (byte_at(text, at) | 32) == 101:
        at += 1
        if byte_at(text, at) == 43 or byte_at(text, at) == 45:
            at += 1
        begin = at
        while is_digit(byte_at(text, at)):
            at += 1
        if at == begin or at > begin + 2:  # it may be beyond a double
            return -1
    return at


cdef inline Py_ssize_t skip_word(Text text, Py_ssize_t at) noexcept nogil:
    """Return the place after `true`, `false` or `null`; -1 to give up."""
    cdef uint8_t c = byte_at(text, at)
    if c == 116 and byte_at(text, at + 1) == 114 and byte_at(text, at + 2) == 117 and byte_at(text, at + 3) == 101:
        return at + 4
    if c == 110 and byte_at(text, at + 1) == 117 and byte_at(text, at + 2) == 108 and byte_at(text, at + 3) == 108:
        return at + 4
    if (
        c == 102 and byte_at(text, at + 1) == 97 and byte_at(text, at + 2) == 108
        and byte_at(text, at + 3) == 115 and byte_at(text, at + 4) == 101
    ):
        return at + 5
    return -1


cdef inline Py_ssize_t skip_entry_key(Text text, Py_ssize_t at) noexcept nogil:
    """Return the place of the value of an entry whose key starts at `at`; -1 to give up."""
    cdef bint escaped = False
    if byte_at(text, at) != 34:
        return -1
    at = skip_string(text, at + 1, &escaped)
    if at < 0:
        return -1
    at = skip_space(text, at)
    return skip_space(text, at + 1) if byte_at(text, at) == 58 else -1


cdef inline Py_ssize_t skip_value(Text text, Py_ssize_t at, bint* escaped) noexcept nogil:
    """Return the place after the value that starts at `at`; -1 to give up."""
    cdef int depth = 0
    cdef uint64_t objects = 0  # the lowest bit: the innermost open bracket is a brace
    cdef uint8_t c
    while True:
        c = byte_at(text, at)
        if c == 123 or c == 91:
            if depth == DEEPEST:
                return -1
            depth += 1
            objects = objects << 1 | (c == 123)
            at = skip_space(text, at + 1)
            if byte_at(text, at) != c + 2:
                if c == 123:
                    at = skip_entry_key(text, at)
                    if at < 0:
                        return -1
                continue
            at += 1
            depth -= 1
            objects >>= 1
        elif c == 34:
            at = skip_string(text, at + 1, escaped)
        elif is_digit(c) or c == 45:
            at = skip_number(text, at)
        else:
            at = skip_word(text, at)
        if at < 0:
            return -1
        while True:
            if not depth:
                return at
            at = skip_space(text, at)
            c = byte_at(text, at)
            at += 1
            if c == 44:
                at = skip_space(text, at)
                if objects & 1:
                    at = skip_entry_key(text, at)
                    if at < 0:
                        return -1
                break
            if c != (125 if objects & 1 else 93):
                return -1
            depth -= 1
            objects >>= 1
