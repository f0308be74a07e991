# The types with which caching_allocator.py is compiled. cpdef: what a subclass may follow.
cimport cython


cdef class _Block:
    cdef public long long address, size
    cdef public _Pool pool
    cdef public bint used, mapped
    cdef public _Block before, after
    cpdef bint is_whole(self)
    cpdef long long room(self)


cdef class _Pool:
    cdef public bint small
    cdef public long long part
    cdef public list free, holes


cdef class CachingAllocator:
    cdef public long long capacity_bytes, reserved_bytes, allocated_bytes
    cdef public dict _used
    cdef dict _pools, _first
    cdef _private, _addresses
    cdef long long _next
    cdef public bint expandable

    cdef _Pool _pool(self, owner, bint small)

    @cython.locals(size=cython.longlong, pool=_Pool, block=_Block)
    cpdef allocate(self, number, long long requested, owner=*)

    @cython.locals(block=_Block)
    cpdef free(self, number)

    @cython.locals(pool=_Pool, block=_Block)
    cpdef return_cached(self)

    cdef bint _splits(self, _Pool pool, long long rest)

    @cython.locals(at=Py_ssize_t, place=Py_ssize_t, block=_Block, other=_Block)
    cdef _Block _best(self, _Pool pool, long long size)

    @cython.locals(block=_Block)
    cdef _Block _new(self, _Pool pool, long long size)

    @cython.locals(wanted=cython.longlong, block=_Block)
    cpdef _Block _from_driver(self, _Pool pool, long long size)

    @cython.locals(block=_Block, hole=_Block)
    cdef _Block _grown(self, _Pool pool, long long size)

    @cython.locals(room=cython.longlong, block=_Block)
    cdef _Block _place(self, _Block first, long long size)

    @cython.locals(wanted=cython.longlong, block=_Block)
    cpdef _Block _map(self, _Block hole, long long size)

    @cython.locals(part=cython.longlong, begin=cython.longlong, end=cython.longlong, hole=_Block)
    cdef _unmap(self, _Block block)

    cpdef _release(self, _Block block)

    @cython.locals(rest=_Block)
    cdef _Block _split(self, _Block block, long long size)

    @cython.locals(other=_Block, first=_Block, second=_Block)
    cdef _Block _merged(self, _Block block)

    cdef _add_free(self, _Block block)
    cdef _take_free(self, _Block block)
    cdef _add_hole(self, _Block block)
    cdef _take_hole(self, _Block block)
