from tb_gpudiag.trace.events import Int32, Int64

def nest(
    starts: Int64, closes: Int64, depth: Int64, parents: Int64, opened_by: Int64, last: Int64
) -> None: ...
def segments(
    starts: Int64,
    closes: Int64,
    starts_ns: Int64,
    closes_ns: Int64,
    opened_by: Int64,
    parents: Int64,
    thread: Int32,
    begins: Int64,
    ends: Int64,
    inner: Int64,
    of_thread: Int64,
) -> int: ...
def nearest(spans: Int64, parent: Int64, found: Int64) -> None: ...
def outermost(spans: Int64, parent: Int64, found: Int64) -> None: ...
def least(spans: Int64, parent: Int64, found: Int64) -> None: ...
