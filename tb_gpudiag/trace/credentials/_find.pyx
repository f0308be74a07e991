# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Find texts that may belong to a credential. See credential_places.py for how it is used."""

from libc.stdint cimport int16_t, uint8_t, uint64_t

from tb_gpudiag.trace.kineto._json cimport Text, byte_at, skip_space, word_at

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
    MOST_TEXTS = 120
    LONGEST = 16
    # Characters of a name before and after the text in it: the 64 of credential_text.SITE, and the rest of the
    # word that starts with the text.
    LONGEST_PART = 72


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


cdef bint ends_as_name(Text text, Py_ssize_t at) noexcept nogil:
    """Return whether what follows ends like a name that a value follows: with `=`, or a quote and `:` or `,`."""
    cdef int i
    cdef uint8_t c
    cdef bint word = True
    for i in range(LONGEST_PART):
        c = byte_at(text, at)
        if c == 61:
            return word
        if c == 92:
            while byte_at(text, at) == 92:
                at += 1
            if byte_at(text, at) == 117:  # a character as a number
                at += 5
                word = False
                continue
            c = byte_at(text, at)
        if c == 34:
            c = byte_at(text, skip_space(text, at + 1))
            return c == 58 or c == 44
        if not in_name(c):
            if c != 32 and c != 47 and c != 58:
                return False
            word = False
        at += 1
    return False


cdef bint is_option(Text text, Py_ssize_t at) noexcept nogil:
    """Return whether the text at `at` is in the name of an option, after `--`."""
    cdef int i
    for i in range(LONGEST_PART):
        at -= 1
        if not in_name(byte_at(text, at)):
            return False
        if byte_at(text, at) == 45 and byte_at(text, at - 1) == 45:
            return True
    return False


cdef inline int triple(uint8_t a, uint8_t b, uint8_t c) noexcept nogil:
    return (a & 31) << 10 | (b & 31) << 5 | (c & 31)


cdef inline bint is_one(Text text, const Texts* texts, Py_ssize_t at) noexcept nogil:
    """Return whether one of the texts starts here, and what follows it fits."""
    cdef int i = texts.first[triple(byte_at(text, at), byte_at(text, at + 1), byte_at(text, at + 2))]
    cdef int j
    while i >= 0:
        j = 0
        while j < texts.length[i] and texts.text[i][j] == lower(byte_at(text, at + j)):
            j += 1
        if j == texts.length[i] and (
            not texts.is_name[i] or ends_as_name(text, at + j) or is_option(text, at)
        ):
            return True
        i = texts.next[i]
    return False


cdef Py_ssize_t find(Text text, const Texts* texts, Py_ssize_t at) noexcept nogil:
    cdef Py_ssize_t begin = at
    cdef uint64_t word
    cdef int i
    while at < text.size:
        # A text has three bytes or more: one of its pairs is at an even distance.
        while word_at(text, at, &word) and not (
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
    """Finds the first place of one of several texts, ignoring case."""

    cdef Texts texts

    def __init__(self, names not None, values not None):
        """names, values: texts of 3 bytes or more. One of `names` is found only in the name of a JSON entry, a
        variable or an option, or in a string that a comma follows."""
        cdef bytes text
        cdef int i, place
        for i in range(PAIRS):
            self.texts.starts[i] = 0
        for i in range(TRIPLES):
            self.texts.first[i] = -1
        for i, text in enumerate([*names, *values]):
            if i == MOST_TEXTS or not 3 <= len(text) <= LONGEST:
                raise ValueError("too many texts, or one of a wrong length")
            for j, c in enumerate(text.lower()):
                self.texts.text[i][j] = c
            self.texts.length[i] = len(text)
            self.texts.is_name[i] = i < len(names)
            place = triple(text[0], text[1], text[2])
            self.texts.next[i] = self.texts.first[place]
            self.texts.first[place] = i
            for pair in (text[:2], text[1:3]):
                for a in {pair[:1].lower(), pair[:1].upper()}:
                    for b in {pair[1:].lower(), pair[1:].upper()}:
                        self.texts.starts[a[0] | b[0] << 8] = 1

    def first(self, bytes content not None, Py_ssize_t at) -> int:
        """Return the first place from `at`, or -1."""
        cdef Text text
        cdef Py_ssize_t found
        text.bytes = content
        text.size = len(content)
        with nogil:
            found = find(text, &self.texts, max(at, 0))
        return found
