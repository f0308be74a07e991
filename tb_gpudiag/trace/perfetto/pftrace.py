"""Read a `.pftrace` file that torch wrote into a Trace, so that all else works as for JSON.

torch's CUPTI backend writes it where `export_chrome_trace` gets a name ending in `.pftrace` (pytorch
#187898). It has no allocations and no properties of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.assemble import Assembly
from tb_gpudiag.trace.credentials.credential_search import CredentialSearch
from tb_gpudiag.trace.events import Metadata, Trace
from tb_gpudiag.trace.files.whole_file import whole_file
from tb_gpudiag.trace.kineto.columns import part_of
from tb_gpudiag.trace.perfetto.gpu_stages import read_counters, read_stages
from tb_gpudiag.trace.perfetto.packet_columns import SYNC_KEY, ArgumentColumn, Arguments, codes_of, replaced
from tb_gpudiag.trace.perfetto.packets import Packets
from tb_gpudiag.trace.perfetto.perfetto_fields import PerfettoFields
from tb_gpudiag.trace.perfetto.track_slices import read_slices
from tb_gpudiag.vocabulary.recorded import GPU_WORK_CATEGORIES, HOST_CATEGORIES

NOTE: Final = "a binary trace of Perfetto: torch writes no allocations and no GPU's name into it"
# It is read as a whole, and takes 16 times its size in memory. JSON of the same events is four times as long.
MOST_BYTES: Final = 512 << 20
# The track of what the tracer itself did.
_OVERHEAD: Final = "Overhead"
_OF_TORCH: Final = (*GPU_WORK_CATEGORIES, *HOST_CATEGORIES)
_IN_PIECES: Final = "export it to a name ending in .json.gz, which is read piece by piece"
_REMEDY: Final = (
    "record with torch.profiler and export_chrome_trace, or with rocprofv3 --output-format json: traces of "
    "other programs have no operators and launches"
)


def read_pftrace(blocks: Iterator[bytes], path: str, report: Callable[[float, str], None]) -> Trace:
    """Read the blocks of a file, unpacked. Raises NotATrace, TooLarge."""
    with CredentialSearch() as search:
        text = whole_file(search.through(blocks), MOST_BYTES, path, _IN_PIECES)
        searched = search.finish()
    report(0.3, "reading")
    packets = Packets(text, path)
    fields = _fields(packets)
    broken, status = packets.wire.broken, packets.status
    del text, packets
    assembly = Assembly()
    assembly.add(part_of(fields))
    report(0.9, "sorting")
    damaged = [f"{broken:,} damaged packets read in part"] if broken else []
    trace = assembly.trace(Metadata(), searched, [NOTE, *damaged], status)
    if not trace.events.among(*_OF_TORCH).any():
        raise NotATrace(
            "it is a trace of Perfetto without operators, launches and kernels", where=path, remedy=_REMEDY
        )
    report(1.0, "read")
    return trace


def _fields(packets: Packets) -> PerfettoFields:
    """Return operators, calls and other slices, then GPU work. Raises NotATrace."""
    arguments = Arguments()
    slices = read_slices(packets, arguments)
    spans = slices.followed_by(read_stages(packets, len(slices.start_ns), arguments))
    sync = arguments.pop(SYNC_KEY, ArgumentColumn()).rows()
    category = replaced(spans.category, sync, "cuda_sync")
    tracks = packets.tracks.values()
    overhead = {track.pid for track in tracks if track.name == _OVERHEAD}
    own = np.array([pid in overhead for pid in spans.pid.dictionary.to_pylist()] or [False])
    category = replaced(category, np.flatnonzero(own[codes_of(spans.pid)]), "overhead")
    threads = [track for track in tracks if track.tid]
    return PerfettoFields(spans._replace(category=category), arguments, threads, read_counters(packets))
