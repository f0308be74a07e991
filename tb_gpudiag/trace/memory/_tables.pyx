# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Read a pickle of plain data into tables of numbers, in one pass.

A strict recognizer: it follows the instructions that build numbers, text, lists and dicts with keys of text, in the
order in which Python's own pickler writes them, and gives up on everything else. Its caller then has
snapshot_pickle.py read the file, which also says what is wrong with it.

The bytes come from a stranger: every place in them and in the arrays is checked, and nothing recurses or is called.
"""

import struct

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t

INTEGER, TEXT, DICT, LIST, CONSTANT, OTHER, PAIR = range(7)
"""Kinds of values, in the lowest bits of each. The other bits are a number, or the place in `texts`, `dict_at`,
`list_last`, NONE_FALSE_TRUE or `others`. A PAIR has two numbers of 30 bits, both moved up by HALF_PAIR."""

KIND_BITS = 3
PAIR_BITS = 30
HALF_PAIR = 1 << 29
NONE_FALSE_TRUE = (None, False, True)

cdef enum:
    K_INTEGER = 0
    K_TEXT = 1
    K_DICT = 2
    K_LIST = 3
    K_CONSTANT = 4
    K_OTHER = 5
    K_PAIR = 6
    SHIFT = 3
    SHIFTED = 8  # C does not say what becomes of a negative number that is shifted
    KIND = 7
    SEALED = 0x80  # a list or dict that others may have as a part: nothing is added any more
    DEEPEST = 16
    MOST_KEYS = 64
    MOST_SHAPES = 4096
    MOST_OTHERS = 1 << 20
    LONGEST_KNOWN_LIST = 256
    MOST_KNOWN_LISTS = 200000
    # A small number of 32 bits, and one that the value itself can have.
    PAIR_HALF = 1 << 29
    INLINE_BYTES = 7


LIKELY_SPARE = 1.05
"""So much more room than is likely needed, that a guess which is hardly too small copies nothing."""


class GivenUp(Exception):
    """The pickle has something else, or something in another order."""


cdef class Tables:
    """What a pickle of plain data has.

    root: the value of the whole. texts, others: by number. shapes: the texts of the keys of dicts, by number.
    dict_shape, dict_at: of each dict, its shape, NONE if it is empty, and the place of its first value, shape (d,).
    values: of dicts, one after the other. list_last: the last chunk of each list, NONE if it is empty, shape (l,).
    chunk_before: the chunk before it in the same list, or NONE; chunk_at, chunk_size: its place in `items`, shape (c,).
    """

    cdef readonly int64_t root
    cdef readonly list texts, others, shapes
    cdef readonly object dict_shape, dict_at, values, list_last, chunk_before, chunk_at, chunk_size, items
    cdef dict text_numbers, shape_numbers, known_lists
    cdef int64_t[::1] stack, marks, memo, v_values, v_items, v_dict_at, v_before, v_chunk_at, v_chunk_size, v_last
    cdef int32_t[::1] v_shape
    cdef uint8_t[::1] dict_level, list_level
    cdef Py_ssize_t on_stack, marked, remembered, valued, itemed, dicts, lists, chunks, fence
    cdef Py_ssize_t bytes_read, bytes_in_all
    cdef int64_t last_keys[MOST_KEYS]
    cdef int32_t last_shape
    cdef Py_ssize_t last_count

    def __init__(self, bytes content not None):
        """Raises GivenUp, or IndexError if it is cut off."""
        self.bytes_in_all = len(content)
        self.texts, self.others, self.shapes = [], [], []
        self.text_numbers, self.shape_numbers, self.known_lists = {}, {}, {}
        self.dict_shape, self.dict_at = np.zeros(0, np.int32), np.zeros(0, np.int64)
        self.list_last = self.dict_at
        self.dict_level = self.list_level = np.zeros(0, np.uint8)
        self.v_shape, self.v_dict_at, self.v_last = self.dict_shape, self.dict_at, self.list_last
        self.values = self.items = np.zeros(0, np.int64)
        self.chunk_before = self.chunk_at = self.chunk_size = np.zeros(0, np.int64)
        self.v_values = self.v_items = self.v_before = self.v_chunk_at = self.v_chunk_size = self.values
        self.stack = self.marks = self.memo = self.values
        self.last_shape = -1
        self.last_count = -1
        self.follow(content)
        # What only reading needs takes as much memory as what is read.
        self.text_numbers = self.shape_numbers = self.known_lists = None
        self.stack = self.marks = self.memo = None
        self.dict_level = self.list_level = None
        self.list_last = self.list_last[:self.lists]
        self.dict_shape, self.dict_at = self.dict_shape[:self.dicts], self.dict_at[:self.dicts]

    cdef int follow(self, bytes content) except -1:
        cdef const uint8_t[::1] data = content
        cdef Py_ssize_t at = 2, length
        cdef int64_t value, top
        cdef int small = 0  # numbers of at most 32 bits right before this instruction, without a gap
        cdef uint8_t op
        while True:
            op = data[at]
            at += 1
            if op == 0x68:  # h: from the memo
                self.recall(data[at])
                at += 1
            elif op == 0x6A:  # j
                self.recall(number_at(data, at, 4))
                at += 4
            elif op == 0x94:  # into the memo
                self.remember(self.remembered)
            elif op == 0x71:  # q
                self.remember(data[at])
                at += 1
            elif op == 0x72:  # r
                self.remember(number_at(data, at, 4))
                at += 4
            elif op == 0x4B:  # K
                self.push(<int64_t>data[at] << SHIFT)
                at += 1
            elif op == 0x4D:  # M
                self.push(number_at(data, at, 2) << SHIFT)
                at += 2
            elif op == 0x4A:  # J
                self.push(<int64_t><int32_t>number_at(data, at, 4) * SHIFTED)
                at += 4
            elif op == 0x8A:  # a number of so many bytes
                length = data[at]
                at += 1
                if length <= INLINE_BYTES:
                    value = number_at(data, at, length)
                    if length and data[at + length - 1] & 0x80:
                        value -= <int64_t>1 << (8 * length)
                    self.push(value * SHIFTED)
                elif length <= 9:
                    # Every byte is read, so the file has them.
                    number_at(data, at, 4)
                    number_at(data, at + 4, length - 4)
                    self.push_other(int.from_bytes(content[at:at + length], "little", signed=True))
                else:
                    raise GivenUp
                at += length
            elif op == 0x86:  # a pair of small numbers
                if small < 2 or self.on_stack - 2 < self.fence:
                    raise GivenUp
                value, top = self.stack[self.on_stack - 2] >> SHIFT, self.stack[self.on_stack - 1] >> SHIFT
                self.on_stack -= 2
                if -PAIR_HALF <= value < PAIR_HALF and -PAIR_HALF <= top < PAIR_HALF:
                    self.push((((value + PAIR_HALF) << 30) | (top + PAIR_HALF)) << SHIFT | K_PAIR)
                else:
                    self.push_other((value, top))
            elif op == 0x28:  # (
                if self.marked == self.marks.shape[0]:
                    self.marks = self.larger(np.asarray(self.marks), self.marked)
                self.marks[self.marked] = self.on_stack
                self.marked += 1
                self.fence = self.on_stack
            elif op == 0x7D:  # }
                self.bytes_read = at
                self.push(self.new_dict() << SHIFT | K_DICT)
            elif op == 0x5D:  # ]
                self.push(self.new_list() << SHIFT | K_LIST)
            elif op == 0x75:  # u: pairs since the mark into the dict before it
                length = self.since_mark()
                self.fill_dict(self.on_stack - length, length)
            elif op == 0x73:  # s
                self.fill_dict(self.on_stack - 2, 2)
            elif op == 0x65:  # e
                length = self.since_mark()
                self.fill_list(self.on_stack - length, length)
            elif op == 0x61:  # a
                self.fill_list(self.on_stack - 1, 1)
            elif op == 0x4E:
                self.push(K_CONSTANT)
            elif op == 0x89 or op == 0x88:
                self.push((<int64_t>1 if op == 0x89 else <int64_t>2) << SHIFT | K_CONSTANT)
            elif op == 0x8C or op == 0x58:  # text: its length in one byte, or in four
                length = data[at] if op == 0x8C else number_at(data, at, 4)
                at += 1 if op == 0x8C else 4
                if length > data.shape[0] - at:
                    raise GivenUp
                self.push(<int64_t>self.number_of(content[at:at + length]) << SHIFT | K_TEXT)
                at += length
            elif op == 0x47:  # G
                data[at + 7]  # the file has them
                self.push_other(struct.unpack(">d", content[at:at + 8])[0])
                at += 8
            elif op == 0x95:  # a frame: its length in eight bytes
                length = number_at(data, at, 7)
                if data[at + 7] or length > data.shape[0] - at - 8:
                    raise GivenUp
                at += 8
            elif op == 0x2E:  # the end
                if self.on_stack != 1 or self.marked:
                    raise GivenUp
                self.root = self.stack[0]
                return 0
            else:
                raise GivenUp
            small = min(small + 1, 2) if op == 0x4B or op == 0x4D or op == 0x4A else 0

    cdef object larger(self, array, Py_ssize_t used, Py_ssize_t more=1):
        """Return a larger array with the same first elements, and room for that many more: for all, if the rest
        of the file is like what was read."""
        cdef Py_ssize_t least = used + more
        likely = least * (self.bytes_in_all / <double>max(self.bytes_read, 1)) * LIKELY_SPARE
        found = np.empty(int(min(max(likely, 1.5 * least), 8.0 * least)) + 1024, array.dtype)
        found[:used] = array[:used]
        return found

    cdef Py_ssize_t new_dict(self) except -1:
        cdef Py_ssize_t number = self.dicts
        if number == self.v_shape.shape[0]:
            self.v_shape = self.v_dict_at = None
            self.dict_shape, self.dict_at = self.larger(self.dict_shape, number), self.larger(self.dict_at, number)
            self.v_shape, self.v_dict_at = self.dict_shape, self.dict_at
            self.dict_level = self.larger(np.asarray(self.dict_level), number)
        self.v_shape[number] = -1
        self.v_dict_at[number] = self.dict_level[number] = 0
        self.dicts += 1
        return number

    cdef Py_ssize_t new_list(self) except -1:
        cdef Py_ssize_t number = self.lists
        if number == self.v_last.shape[0]:
            self.v_last = None
            self.list_last = self.larger(self.list_last, number)
            self.v_last = self.list_last
            self.list_level = self.larger(np.asarray(self.list_level), number)
        self.v_last[number] = -1
        self.list_level[number] = 0
        self.lists += 1
        return number

    cdef inline int push(self, int64_t value) except -1:
        if self.on_stack == self.stack.shape[0]:
            self.make_room()
        self.stack[self.on_stack] = value
        self.on_stack += 1
        return 0

    cdef int make_room(self) except -1:  # not in push, which would save more registers
        self.stack = self.larger(np.asarray(self.stack), self.on_stack)
        return 0

    cdef int push_other(self, value) except -1:
        if len(self.others) == MOST_OTHERS:
            raise GivenUp
        self.others.append(value)
        return self.push(<int64_t>(len(self.others) - 1) << SHIFT | K_OTHER)

    cdef inline int recall(self, Py_ssize_t index) except -1:
        cdef int64_t value
        if index >= self.remembered:
            raise GivenUp
        value = self.memo[index]
        # Whatever is there twice is complete, so nothing becomes a part of itself.
        if (value & KIND) == K_DICT:
            self.dict_level[value >> SHIFT] |= SEALED
        elif (value & KIND) == K_LIST:
            self.list_level[value >> SHIFT] |= SEALED
        return self.push(value)

    cdef inline int remember(self, Py_ssize_t index) except -1:
        if index != self.remembered or self.on_stack <= self.fence:
            raise GivenUp
        if index == self.memo.shape[0]:
            self.memo = self.larger(np.asarray(self.memo), index)
        self.memo[index] = self.stack[self.on_stack - 1]
        self.remembered += 1
        return 0

    cdef inline Py_ssize_t since_mark(self) except -1:
        """Take the last mark. Return how many values there are since."""
        cdef Py_ssize_t mark
        if not self.marked:
            raise GivenUp
        self.marked -= 1
        mark = self.marks[self.marked]
        self.fence = self.marks[self.marked - 1] if self.marked else 0
        return self.on_stack - mark

    cdef inline int seal(self, int64_t value, uint8_t* level) except -1:
        """Take a value as a part of a list or dict of this level, which is above those of all of its parts."""
        cdef uint8_t own
        if (value & KIND) == K_DICT:
            own = self.dict_level[value >> SHIFT] | SEALED
            self.dict_level[value >> SHIFT] = own
        elif (value & KIND) == K_LIST:
            own = self.list_level[value >> SHIFT] | SEALED
            self.list_level[value >> SHIFT] = own
        else:
            return 0
        own = (own & ~SEALED) + 1
        if own > DEEPEST:
            raise GivenUp
        level[0] = max(level[0], own)
        return 0

    cdef int fill_dict(self, Py_ssize_t first, Py_ssize_t length) except -1:
        """Put the pairs from there on into the dict before them."""
        cdef Py_ssize_t i, dict_, count = length // 2
        cdef int64_t container
        cdef uint8_t level = 0
        if first - 1 < self.fence or length & 1 or not 0 < count <= MOST_KEYS:
            raise GivenUp
        container = self.stack[first - 1]
        dict_ = container >> SHIFT
        if (container & KIND) != K_DICT or self.dict_level[dict_] & SEALED or self.v_shape[dict_] >= 0:
            raise GivenUp
        if self.valued + count > self.v_values.shape[0]:
            self.v_values = None
            self.values = self.larger(self.values, self.valued, count)
            self.v_values = self.values
        self.v_dict_at[dict_] = self.valued
        for i in range(count):
            container = self.stack[first + 2 * i + 1]
            self.seal(container, &level)
            self.v_values[self.valued + i] = container
        self.v_shape[dict_] = self.shape_of(first, count)
        self.dict_level[dict_] = level
        self.valued += count
        self.on_stack = first
        return 0

    cdef int32_t shape_of(self, Py_ssize_t first, Py_ssize_t count) except -1:
        cdef Py_ssize_t i
        cdef bint same = count == self.last_count
        cdef int64_t key
        for i in range(count):
            key = self.stack[first + 2 * i]
            if not same or key != self.last_keys[i]:
                same = False
                if (key & KIND) != K_TEXT:
                    raise GivenUp
                self.last_keys[i] = key
        if same:
            return self.last_shape
        self.last_count = count
        keys = tuple([self.last_keys[i] >> SHIFT for i in range(count)])
        number = self.shape_numbers.get(keys)
        if number is None:
            if len(set(keys)) != count or len(self.shapes) == MOST_SHAPES:
                raise GivenUp
            number = self.shape_numbers[keys] = len(self.shapes)
            self.shapes.append(tuple([self.texts[key] for key in keys]))
        self.last_shape = number
        return self.last_shape

    cdef int fill_list(self, Py_ssize_t first, Py_ssize_t length) except -1:
        """Add the values from there on to the list before them."""
        cdef Py_ssize_t i, list_, at
        cdef int64_t container
        cdef uint8_t level
        if first - 1 < self.fence or length <= 0:
            raise GivenUp
        container = self.stack[first - 1]
        list_ = container >> SHIFT
        if (container & KIND) != K_LIST or self.list_level[list_] & SEALED:
            raise GivenUp
        level = self.list_level[list_]
        for i in range(first, self.on_stack):
            self.seal(self.stack[i], &level)
        at = self.place_of(first, length)
        if self.chunks == self.v_before.shape[0]:
            self.v_before = self.v_chunk_at = self.v_chunk_size = None
            self.chunk_before, self.chunk_at, self.chunk_size = (
                self.larger(self.chunk_before, self.chunks),
                self.larger(self.chunk_at, self.chunks),
                self.larger(self.chunk_size, self.chunks),
            )
            self.v_before, self.v_chunk_at = self.chunk_before, self.chunk_at
            self.v_chunk_size = self.chunk_size
        self.v_before[self.chunks] = self.v_last[list_]
        self.v_chunk_at[self.chunks] = at
        self.v_chunk_size[self.chunks] = length
        self.v_last[list_] = self.chunks
        self.list_level[list_] = level
        self.chunks += 1
        self.on_stack = first
        return 0

    cdef Py_ssize_t place_of(self, Py_ssize_t first, Py_ssize_t length) except -1:
        """Return where these values are in `items`. Stacks are there many times: each is kept once."""
        cdef Py_ssize_t i, at = self.itemed
        cdef bytes content = None
        if length <= LONGEST_KNOWN_LIST and first + length <= self.stack.shape[0]:
            content = (<char*>&self.stack[first])[:length * sizeof(int64_t)]
            found = self.known_lists.get(content)
            if found is not None:
                return found
        if at + length > self.v_items.shape[0]:
            self.v_items = None
            self.items = self.larger(self.items, at, length)
            self.v_items = self.items
        for i in range(length):
            self.v_items[at + i] = self.stack[first + i]
        self.itemed += length
        if content is not None and len(self.known_lists) < MOST_KNOWN_LISTS:
            self.known_lists[content] = at
        return at

    cdef Py_ssize_t number_of(self, bytes text) except -1:
        number = self.text_numbers.get(text)
        if number is None:
            number = self.text_numbers[text] = len(self.texts)
            self.texts.append(text.decode("utf-8", "surrogatepass"))
        return number


cdef inline int64_t number_at(const uint8_t[::1] data, Py_ssize_t at, Py_ssize_t length) except -1:
    """Return an unsigned number of at most seven bytes, the lowest first."""
    cdef int64_t value = 0
    cdef Py_ssize_t i
    for i in range(length):
        value |= <int64_t>data[at + i] << (8 * i)
    return value
