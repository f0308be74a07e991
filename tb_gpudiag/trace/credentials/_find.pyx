# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Find texts that may belong to a credential. See credential_places.py, which says what a place is."""

from libc.stdint cimport int16_t, uint8_t, uint64_t

from tb_gpudiag.trace.kineto._json cimport Text, byte_at, word_at

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define pair_of(word, place) ((unsigned)((word) >> (8 * (place))) & 0xFFFF)
    #else
    #define pair_of(word, place) \\
        ((unsigned)((word) >> (56 - 8 * (place))) & 0xFF | ((unsigned)((word) >> (48 - 8 * (place))) & 0xFF) << 8)
    #endif
    """
    unsigned pair_of(uint64_t word, int place) nogil

cdef enum:
    PAIRS = 1 << 16
    TRIPLES = 1 << 15
    MOST_TEXTS = 400
    LONGEST = 24
    # The same bounds as in FOLLOWED of credential_text.py.
    LONGEST_NAME = 80
    LONGEST_REST = 64
    MOST_SLASHES = 16
    MOST_BLANKS = 8
    MOST_SPACES = 16


cdef struct Texts:
    # Of two bytes: whether one of the texts starts with them, or has them after its first byte.
    uint8_t starts[PAIRS]
    # Of the lower five bits of three bytes: the first text that starts with such, and the next one after each.
    int16_t first[TRIPLES]
    int16_t next[MOST_TEXTS]
    uint8_t text[MOST_TEXTS][LONGEST]
    int length[MOST_TEXTS]
    bint is_name[MOST_TEXTS]


cdef inline uint8_t lower(uint8_t c) noexcept nogil:
    return c | 32 if 65 <= c <= 90 else c


cdef inline bint in_name(uint8_t c) noexcept nogil:
    return 97 <= (c | 32) <= 122 or 48 <= c <= 57 or c == 95 or c == 46 or c == 45


cdef inline bint is_hex(uint8_t c) noexcept nogil:
    return 97 <= (c | 32) <= 102 or 48 <= c <= 57


cdef inline bint is_space(uint8_t c) noexcept nogil:
    return c == 32 or c == 9 or c == 10 or c == 13


cdef bint is_escaped(Text text, Py_ssize_t at) noexcept nogil:
    r"""Return whether a character is written as `\u00XX` here."""
    return (
        byte_at(text, at) == 92
        and byte_at(text, at + 1) == 117
        and byte_at(text, at + 2) == 48
        and byte_at(text, at + 3) == 48
        and is_hex(byte_at(text, at + 4))
        and is_hex(byte_at(text, at + 5))
    )


cdef bint has(Text text, Py_ssize_t at, const char* what) noexcept nogil:
    cdef int i = 0
    while what[i]:
        if byte_at(text, at + i) != <uint8_t>what[i]:
            return False
        i += 1
    return True


cdef Py_ssize_t after_slashes(Text text, Py_ssize_t at, int most) noexcept nogil:
    cdef Py_ssize_t end = at + most
    while at < end and byte_at(text, at) == 92:
        at += 1
    return at


cdef Py_ssize_t after_coded_quote(Text text, Py_ssize_t at) noexcept nogil:
    """Pass over a quote that is written as a code, if there is one."""
    cdef uint8_t c = byte_at(text, at)
    cdef Py_ssize_t end
    if c == 92:
        end = after_slashes(text, at, 4)
        if has(text, end, b"u002") and (byte_at(text, end + 4) == 50 or byte_at(text, end + 4) == 55):
            return end + 5
    elif c == 37:
        if byte_at(text, at + 1) == 50 and (byte_at(text, at + 2) == 50 or byte_at(text, at + 2) == 55):
            return at + 3
    elif c == 38:
        if has(text, at, b"&quot;"):
            return at + 6
        if has(text, at, b"&#34;") or has(text, at, b"&#39;"):
            return at + 5
    return at


cdef bint at_separator(Text text, Py_ssize_t at) noexcept nogil:
    """Return whether a name that ends here is followed by `=` or `:`."""
    cdef int i = 0
    cdef uint8_t c
    at = after_coded_quote(text, at)
    while i < MOST_BLANKS and (byte_at(text, at) == 32 or byte_at(text, at) == 9):
        at += 1
        i += 1
    c = byte_at(text, at)
    if c == 61:
        return True
    if c == 58:
        return byte_at(text, at + 1) != 58 and byte_at(text, at + 1) != 47
    if c == 92:
        at = after_slashes(text, at, 4)
        return has(text, at, b"u003") and lower(byte_at(text, at + 4)) == 100
    return c == 37 and byte_at(text, at + 1) == 51 and lower(byte_at(text, at + 2)) == 100


cdef bint at_end_of_string(Text text, Py_ssize_t at) noexcept nogil:
    """Return whether the rest of a string follows that is a name: after its quote is a `:`, `,` or `=`."""
    cdef int i
    cdef uint8_t c
    for i in range(LONGEST_REST):
        c = byte_at(text, at)
        if in_name(c) or c == 32 or c == 47 or c == 58:
            at += 1
        elif is_escaped(text, at):
            at += 6
        else:
            break
    at = after_slashes(text, at, MOST_SLASHES)
    c = byte_at(text, at)
    if c != 34 and c != 39:
        return False
    at += 1
    c = byte_at(text, at)
    if c == 41 or c == 93:
        at += 1
    for i in range(MOST_SPACES):
        if not is_space(byte_at(text, at)):
            break
        at += 1
    c = byte_at(text, at)
    return c == 58 or c == 44 or c == 61


cdef bint is_bare(Text text, Py_ssize_t at, bint option) noexcept nogil:
    """Return whether the word at `at` is in the name of an option, or in a tag."""
    cdef int i
    for i in range(LONGEST_REST + 1):
        if not in_name(byte_at(text, at - 1)):
            return byte_at(text, at) == 45 if option else byte_at(text, at - 1) == 60
        at -= 1
    return False


cdef bint is_followed(Text text, Py_ssize_t begin) noexcept nogil:
    """Return whether a value may follow the name that has a word at `begin`."""
    cdef Py_ssize_t at = begin
    cdef uint8_t c
    while at < begin + LONGEST_NAME and in_name(byte_at(text, at)):
        at += 1
    c = byte_at(text, at)
    if in_name(c):
        return False
    if (c == 32 or c == 9 or c == 62) and is_bare(text, begin, c != 62):
        return True
    return at_separator(text, at) or at_end_of_string(text, at)


cdef inline int triple(uint8_t a, uint8_t b, uint8_t c) noexcept nogil:
    return (a & 31) << 10 | (b & 31) << 5 | (c & 31)


cdef inline bint is_one(Text text, const Texts* texts, Py_ssize_t at) noexcept nogil:
    """Return whether one of the texts starts here, and what follows it fits."""
    cdef int i = texts.first[triple(byte_at(text, at), byte_at(text, at + 1), byte_at(text, at + 2))]
    cdef int j
    cdef uint8_t c
    while i >= 0:
        j = 0
        while j < texts.length[i]:
            c = byte_at(text, at + j)
            if texts.text[i][j] != (lower(c) if texts.is_name[i] else c):
                break
            j += 1
        if j == texts.length[i] and (not texts.is_name[i] or is_followed(text, at)):
            return True
        i = texts.next[i]
    return False


cdef Py_ssize_t find(Text text, const Texts* texts, Py_ssize_t at, Py_ssize_t stop) noexcept nogil:
    cdef Py_ssize_t begin = at
    cdef uint64_t word
    cdef int i
    while at <= stop:
        # A text has three bytes or more: one of its pairs is at an even distance.
        while at <= stop and word_at(text, at, &word) and not (
            texts.starts[pair_of(word, 0)]
            | texts.starts[pair_of(word, 2)]
            | texts.starts[pair_of(word, 4)]
            | texts.starts[pair_of(word, 6)]
        ):
            at += 8
        for i in range(4):
            if texts.starts[byte_at(text, at) | byte_at(text, at + 1) << 8]:
                if at > begin and is_one(text, texts, at - 1):
                    return at - 1
                if is_one(text, texts, at):
                    return at
            at += 2
    return -1


cdef class Finder:
    """Finds the places of texts."""

    cdef Texts texts

    def __init__(self, names not None, values not None):
        """names: lower-case texts of 3 bytes or more, found in any case where a value may follow the name that
        they are in. values: such texts that are found as they are."""
        cdef bytes text
        cdef int i, place
        cdef bint is_name
        for i in range(PAIRS):
            self.texts.starts[i] = 0
        for i in range(TRIPLES):
            self.texts.first[i] = -1
        for i, text in enumerate([*names, *values]):
            if i == MOST_TEXTS or not 3 <= len(text) <= LONGEST:
                raise ValueError("too many texts, or one of a wrong length")
            is_name = i < len(names)
            for j, c in enumerate(text):
                self.texts.text[i][j] = c
            self.texts.length[i] = len(text)
            self.texts.is_name[i] = is_name
            place = triple(text[0], text[1], text[2])
            self.texts.next[i] = self.texts.first[place]
            self.texts.first[place] = i
            for pair in (text[:2], text[1:3]):
                for a in {pair[:1], pair[:1].upper() if is_name else pair[:1]}:
                    for b in {pair[1:], pair[1:].upper() if is_name else pair[1:]}:
                        self.texts.starts[a[0] | b[0] << 8] = 1

    def places(self, bytes content not None, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t most) -> list:
        """Return the places from `at` to before `stop`, in order and at most so many of them."""
        cdef Text text
        cdef Py_ssize_t found
        cdef list places = []
        text.bytes = content
        text.size = len(content)
        at, stop = max(at, 0), min(stop, text.size)
        while len(places) < most:
            with nogil:
                found = find(text, &self.texts, at, stop)
            if found < 0 or found >= stop:
                break
            places.append(found)
            at = found + 1
        return places
