"""Read a `.pftrace` file that torch wrote into a Trace, so that all else works as for JSON.

torch's CUPTI backend writes it where `export_chrome_trace` gets a name ending in `.pftrace` (pytorch
#187898). It has no allocations and no properties of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tb_gpudiag.errors import NotATrace, TooLarge
from tb_gpudiag.trace.assemble import Assembly
from tb_gpudiag.trace.credentials.credential_search import CredentialSearch
from tb_gpudiag.trace.events import Metadata, Trace
from tb_gpudiag.trace.kineto.columns import part_of
from tb_gpudiag.trace.perfetto.packets import read_packets
from tb_gpudiag.trace.perfetto.perfetto_fields import PerfettoFields
from tb_gpudiag.vocabulary.recorded import GPU_WORK_CATEGORIES, HOST_CATEGORIES

NOTE: Final = "a binary trace of Perfetto: torch writes no allocations and no GPU's name into it"
# It is read as a whole, and takes 16 times its size in memory. JSON of the same events is four times as long.
MOST_BYTES: Final = 512 << 20
_OF_TORCH: Final = (*GPU_WORK_CATEGORIES, *HOST_CATEGORIES)
_REMEDY: Final = (
    "record with torch.profiler and export_chrome_trace, or with rocprofv3 --output-format json: traces of "
    "other programs have no operators and launches"
)


def read_pftrace(blocks: Iterator[bytes], path: str, report: Callable[[float, str], None]) -> Trace:
    """Read the blocks of a file, unpacked. Raises NotATrace, TooLarge."""
    search = CredentialSearch()
    try:
        text = bytearray()
        for block in search.through(blocks):
            text += block
            if len(text) > MOST_BYTES:
                raise TooLarge(
                    f"it has more than {MOST_BYTES:,} bytes",
                    where=path,
                    remedy="export it to a name ending in .json.gz, which is read piece by piece",
                )
        searched = search.finish()
    finally:
        search.close()
    report(0.3, "reading")
    recorded, is_whole = read_packets(bytes(text), path)
    del text
    assembly = Assembly()
    assembly.add(part_of(PerfettoFields(recorded)))
    report(0.9, "sorting")
    events, memory, counters, start_ns = assembly.finish()
    if not events.among(*_OF_TORCH).any():
        raise NotATrace(
            "it is a trace of Perfetto without operators, launches and kernels", where=path, remedy=_REMEDY
        )
    damaged = [f"{recorded.broken:,} damaged packets read in part"] if recorded.broken else []
    report(1.0, "read")
    return Trace(
        events=events,
        memory=memory,
        metadata=Metadata(),
        status="COMPLETE" if is_whole else "PARTIAL",
        events_read=assembly.events_read,
        malformed_events=assembly.malformed,
        start_ns=start_ns,
        notes=[NOTE, *damaged, *assembly.notes],
        credentials=searched.found,
        unsearched_bytes=searched.skipped_bytes,
        counters=counters,
    )
