from tb_gpudiag.arrays import Bool, Int32, Int64

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
    events: Int64,
    thread: Int32,
    borders_ns: Int64,
    innermost: Int64,
    of_thread: Int64,
) -> None: ...
def inside(spans: Int64, parent: Int64, found: Bool) -> None: ...
def nearest(spans: Int64, parent: Int64, found: Int64) -> None: ...
def outermost(spans: Int64, parent: Int64, found: Int64) -> None: ...
def least(spans: Int64, parent: Int64, found: Int64) -> None: ...
