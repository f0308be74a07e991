# The types with which simulation.py is compiled.
cimport cython

ctypedef long long[:] Column

@cython.locals(
    between=Column, inside=Column, target=Column, waits_for=Column, full_target=Column, full_call=Column,
    order=Column, launched=Column, previous=Column, turnaround=Column, issued=Column, latency=Column,
    other=Column, handshake=Column, duration=Column,
    begun=Column, returned=Column, of_calls=Column, ends=Column,
    first=Py_ssize_t, low=Py_ssize_t, high=Py_ssize_t, end=Py_ssize_t, one=Py_ssize_t, place=Py_ssize_t,
    alone=bint, changed=bint, waits=bint,
    begin=cython.longlong, ended=cython.longlong,
)
cdef _run(long long now, host, work, times)
