"""Makes one file to download, in a process of its own: see exports.py and processes/.

What only one format needs is imported on use, because it takes a quarter of a second.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tb_gpudiag.errors import CorruptEntry
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.report.views.html import document_html
from tb_gpudiag.report.views.markdown import document_markdown
from tb_gpudiag.report.wire import dump, from_json, to_dict
from tb_gpudiag.service.caches.cache_entry import CacheEntry, read_entry
from tb_gpudiag.service.exports import Order
from tb_gpudiag.service.processes.child import ChildMessage
from tb_gpudiag.service.processes.serving import Reply

_PIECE_BYTES: Final = 256 << 10

_Write = Callable[[bytes], object]


def answer(request: dict[str, Any], reply: Reply) -> ChildMessage:
    """Make the file of an Order. Its content is sent in pieces; the answer has the last piece."""
    order = Order.of(request)
    reply.bound_memory(order.memory_limit_bytes)
    entry = read_entry(Path(order.entry))
    if entry is None:
        raise CorruptEntry.at(order.entry)
    unsent = bytearray()

    def write(content: bytes) -> None:
        unsent.extend(content)
        while len(unsent) >= _PIECE_BYTES:
            reply.piece(bytes(unsent[:_PIECE_BYTES]))
            del unsent[:_PIECE_BYTES]

    report = from_json(gzip.decompress(entry.report_gz()).decode("utf-8"), pb.ReportState).report
    _FORMATS[order.format](order, entry, report, write)
    return ChildMessage(content=bytes(unsent))


def _trace(order: Order, entry: CacheEntry, report: pb.Report, write: _Write) -> None:
    from tb_gpudiag.report.annotate import annotate

    annotate(report, entry.arrays(), order.file.path, write, pack=True, folder=order.file.folder)


def _html(order: Order, entry: CacheEntry, report: pb.Report, write: _Write) -> None:
    from tb_gpudiag.report.slices.embedded import embedded

    content = embedded(report, entry.arrays(), order.file.size_bytes, order.file.modified_ns)
    write(document_html(compose([report]), content).encode("utf-8", "replace"))


def _markdown(_order: Order, _entry: CacheEntry, report: pb.Report, write: _Write) -> None:
    write(document_markdown(compose([report])).encode("utf-8", "replace"))


def _json(_order: Order, _entry: CacheEntry, report: pb.Report, write: _Write) -> None:
    write(dump({"reports": [to_dict(report)]}).encode("utf-8", "replace"))


def _tables(_order: Order, entry: CacheEntry, report: pb.Report, write: _Write) -> None:
    from tb_gpudiag.report.table_files import tables_zip

    write(tables_zip(report, entry.arrays()))


def _dispute(order: Order, entry: CacheEntry, report: pb.Report, write: _Write) -> None:
    from tb_gpudiag.report.dispute import dispute
    from tb_gpudiag.report.slices.prepared import read_meta

    write(dispute(report, order.file, int(read_meta(entry.arrays(), "meta")["file_start_ns"]), order.rule))


_FORMATS: Final = {
    "trace": _trace,
    "html": _html,
    "markdown": _markdown,
    "json": _json,
    "tables": _tables,
    "dispute": _dispute,
}
