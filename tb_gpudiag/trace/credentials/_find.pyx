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
    # Texts that overlap in six characters.
    MOST_HITS = 64
    # The same bounds as in FOLLOWED of credential_text.py.
    LONGEST_NAME = 80
    LONGEST_REST = 64
    MOST_SLASHES = 16
    MOST_BLANKS = 8
    MOST_SPACES = 16


cdef struct Texts:
    # Of two bytes: whether they are the first or the last two of the three rarest of one of the texts.
    uint8_t pairs[PAIRS]
    # Where these three are in a text.
    int skew[MOST_TEXTS]
    # Of the lower five bits of three bytes: the first text of which they are the rarest, and the next ones.
    int16_t first[TRIPLES]
    int16_t next[MOST_TEXTS]
    uint8_t text[MOST_TEXTS][LONGEST]
    int length[MOST_TEXTS]
    bint is_name[MOST_TEXTS]
    bint starts_word[MOST_TEXTS]


cdef struct Hits:
    # What starts before `low`, or from `stop` on, is left out.
    Py_ssize_t low
    Py_ssize_t stop
    Py_ssize_t begin[MOST_HITS]
    int count


cdef inline uint8_t lower(uint8_t c) noexcept nogil:
    return c | 32 if 65 <= c <= 90 else c


cdef inline bint in_name(uint8_t c) noexcept nogil:
    return 97 <= (c | 32) <= 122 or 48 <= c <= 57 or c == 95 or c == 46 or c == 45


cdef inline bint is_hex(uint8_t c) noexcept nogil:
    return 97 <= (c | 32) <= 102 or 48 <= c <= 57


cdef inline bint is_upper_hex(uint8_t c) noexcept nogil:
    return 65 <= c <= 70 or 48 <= c <= 57


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


cdef Py_ssize_t after_blanks(Text text, Py_ssize_t at) noexcept nogil:
    cdef Py_ssize_t end = at + MOST_BLANKS
    while at < end and (byte_at(text, at) == 32 or byte_at(text, at) == 9):
        at += 1
    return at


cdef bint at_separator(Text text, Py_ssize_t at) noexcept nogil:
    """Return whether a name that ends here is followed by `=` or `:`."""
    cdef int i
    cdef uint8_t c
    at = after_blanks(text, after_coded_quote(text, at))
    if has(text, at, b"string"):
        at = after_blanks(text, at + 6)
    for i in range(4):
        c = byte_at(text, at + i)
        if c == 61:
            return True
        if c != 58 and c != 46 and c != 63 and c != 43 and c != 124:
            break
    c = byte_at(text, at)
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


cdef bint at_start_of_word(Text text, Py_ssize_t at) noexcept nogil:
    """Return whether no word goes on here. An escaped character, or one that is coded in a URL, ends one."""
    cdef uint8_t before = byte_at(text, at - 1)
    if not (97 <= (before | 32) <= 122 or 48 <= before <= 57 or before == 95):
        return True
    if byte_at(text, at - 2) == 92:
        return before == 110 or before == 114 or before == 116
    if byte_at(text, at - 3) == 37:
        return is_upper_hex(before) and is_upper_hex(byte_at(text, at - 2))
    return is_escaped(text, at - 6)


cdef inline int triple(uint8_t a, uint8_t b, uint8_t c) noexcept nogil:
    return (a & 31) << 10 | (b & 31) << 5 | (c & 31)


cdef inline bint is_text(Text text, const Texts* texts, int i, Py_ssize_t at) noexcept nogil:
    """Return whether one of the texts starts here, and what is around it fits."""
    cdef int j
    cdef uint8_t c
    for j in range(texts.length[i]):
        c = byte_at(text, at + j)
        if texts.text[i][j] != (lower(c) if texts.is_name[i] else c):
            return False
    if texts.is_name[i]:
        return is_followed(text, at)
    return not texts.starts_word[i] or at_start_of_word(text, at)


cdef void look_at(Text text, const Texts* texts, Py_ssize_t at, Hits* hits) noexcept nogil:
    """Add the texts whose rare part is here."""
    cdef int i = texts.first[triple(byte_at(text, at), byte_at(text, at + 1), byte_at(text, at + 2))]
    cdef Py_ssize_t begin
    while i >= 0 and hits.count < MOST_HITS:
        begin = at - texts.skew[i]
        if hits.low <= begin < hits.stop and is_text(text, texts, i, begin):
            hits.begin[hits.count] = begin
            hits.count += 1
        i = texts.next[i]


cdef Py_ssize_t find(Text text, const Texts* texts, Py_ssize_t at, Py_ssize_t end, Hits* hits) noexcept nogil:
    """Look from `at` to `end` for texts, and return where to go on after the first ones; -1 if there are none."""
    cdef uint64_t word
    cdef int i
    hits.count = 0
    while at < end:
        # Of the two pairs of a text that are looked for, one is at an even distance.
        while at < end and word_at(text, at, &word) and not (
            texts.pairs[pair_of(word, 0)]
            | texts.pairs[pair_of(word, 2)]
            | texts.pairs[pair_of(word, 4)]
            | texts.pairs[pair_of(word, 6)]
        ):
            at += 8
        for i in range(4):
            if texts.pairs[byte_at(text, at) | byte_at(text, at + 1) << 8]:
                look_at(text, texts, at - 1, hits)
                look_at(text, texts, at, hits)
                if hits.count:
                    return at + 2
            at += 2
    return -1


cdef int commonness(uint8_t c):
    """Return about how many in a thousand characters of traces are this one."""
    if c in b"taendirpcosu ":
        return 20
    if c in b"0123456789lm_h":
        return 10
    return 5 if c in b"IyxgEv./f" else 1


cdef int rarest(bytes text):
    """Return where the three characters start that make the rarest pairs."""
    cdef int i, cost, least = 1 << 30, found = 0
    for i in range(len(text) - 2):
        cost = commonness(text[i + 1]) * (commonness(text[i]) + commonness(text[i + 2]))
        if cost < least:
            least, found = cost, i
    return found


cdef class Finder:
    """Finds the places of texts."""

    cdef Texts texts

    def __init__(self, names not None, values not None, anywhere not None):
        """names: lower-case texts of 3 bytes or more, found in any case where a value may follow the name that
        they are in. values: texts that are found as they are, at the start of a word. anywhere: such texts that
        are found within words, too."""
        cdef bytes text
        cdef int i, place, skew
        cdef bint is_name
        for i in range(PAIRS):
            self.texts.pairs[i] = 0
        for i in range(TRIPLES):
            self.texts.first[i] = -1
        for i, text in enumerate([*names, *values, *anywhere]):
            if i == MOST_TEXTS or not 3 <= len(text) <= LONGEST:
                raise ValueError("too many texts, or one of a wrong length")
            is_name = i < len(names)
            for j, c in enumerate(text):
                self.texts.text[i][j] = c
            self.texts.length[i] = len(text)
            self.texts.is_name[i] = is_name
            self.texts.starts_word[i] = len(names) <= i < len(names) + len(values)
            skew = rarest(text)
            rare = text[skew : skew + 3]
            place = triple(rare[0], rare[1], rare[2])
            self.texts.skew[i] = skew
            self.texts.next[i] = self.texts.first[place]
            self.texts.first[place] = i
            for pair in (rare[:2], rare[1:]):
                for a in {pair[:1], pair[:1].upper() if is_name else pair[:1]}:
                    for b in {pair[1:], pair[1:].upper() if is_name else pair[1:]}:
                        self.texts.pairs[a[0] | b[0] << 8] = 1

    def places(self, bytes content not None, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t most) -> list:
        """Return the places from `at` to before `stop`, in order and at most so many of them."""
        cdef Text text
        cdef Hits hits
        cdef Py_ssize_t end
        cdef int i
        cdef list places = []
        text.bytes = content
        text.size = len(content)
        hits.low, hits.stop = max(at, 0), min(stop, text.size)
        at, end = hits.low, hits.stop + LONGEST
        while at >= 0:
            with nogil:
                at = find(text, &self.texts, at, end, &hits)
            for i in range(hits.count):
                places.append(hits.begin[i])
            if len(places) >= most:  # what starts before the last of these may be found after it
                end = min(end, max(places) + LONGEST)
        return sorted(set(places))[:most]
