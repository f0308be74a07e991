"""Make one file in its own process: `python -m tb_gpudiag.service.exporter`, with an Order on stdin.

Imports what only one format needs on use: it takes a quarter of a second.
It writes a line, READY or an error, and after READY the file's content. It exits when its parent does.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tb_gpudiag.errors import Defect, GpudiagError, LimitReached, is_out_of_memory
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.report.views.html import document_html
from tb_gpudiag.report.views.markdown import document_markdown
from tb_gpudiag.report.wire import dump, from_json, to_dict
from tb_gpudiag.service.analyses.protocol import line_of_error
from tb_gpudiag.service.analyses.worker import end_with_parent, first_line
from tb_gpudiag.service.caches.cache_entry import CorruptEntry, Entry, read_entry
from tb_gpudiag.service.exports import CORRUPT, READY, Order
from tb_gpudiag.service.processes.child_process import lower_priority
from tb_gpudiag.service.processes.memory_limit import limit_memory
from tb_gpudiag.service.settings import MIB

Write = Callable[[bytes], object]

_BUFFER_BYTES: Final = 256 << 10


def main() -> None:
    """Read the order, and write the file."""
    # Libraries may print: that must not get into the file.
    out = Output(os.dup(1))
    os.dup2(2, 1)
    order = Order.from_line(first_line(0))
    end_with_parent(order.parent)
    lower_priority()
    limit_memory(order.memory_limit_bytes, lambda: out.fail(_out_of_memory(order)))
    try:
        _export(order, out.write)
        out.close()
    except (CorruptEntry, FileNotFoundError):
        out.end_with(CORRUPT)
    except GpudiagError as error:
        out.fail(error)
    except Exception as error:
        found = _out_of_memory(order) if is_out_of_memory(error) else Defect.of(error, where=order.file.path)
        out.fail(found)
    # Not sys.exit: the watching threads never end, and there is nothing to clean up.
    os._exit(0)


class Output:
    """Writes READY before the first content, or an error instead."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb", buffering=_BUFFER_BYTES)
        self._begun = False

    def write(self, content: bytes) -> None:
        """Write content. Exit if nobody reads it any more."""
        try:
            if not self._begun:
                self._begun = True
                self._file.write(READY)
                self._file.flush()
            self._file.write(content)
        except OSError:
            os._exit(1)

    def close(self) -> None:
        """Write what is buffered."""
        self.write(b"")
        self._file.flush()

    def fail(self, error: GpudiagError) -> None:
        """Say why there is no file, or that it is not whole, and exit."""
        self.end_with(line_of_error(error))

    def end_with(self, line: bytes) -> None:
        """Write this line unless content was written, and exit."""
        if not self._begun:
            self._file.write(line)
            self._file.flush()
        os._exit(1)


def _export(order: Order, write: Write) -> None:
    entry = read_entry(Path(order.entry))
    if entry is None:
        raise CorruptEntry(order.entry)
    _FORMATS[order.format](order, entry, _report(entry), write)


def _report(entry: Entry) -> pb.Report:
    return from_json(gzip.decompress(entry.report_gz()).decode("utf-8"), pb.ReportState).report


def _trace(order: Order, entry: Entry, report: pb.Report, write: Write) -> None:
    from tb_gpudiag.report.annotate import annotate

    annotate(report, entry.arrays(), order.file.path, write, pack=True, folder=order.file.folder)


def _html(order: Order, entry: Entry, report: pb.Report, write: Write) -> None:
    from tb_gpudiag.report.slices.embedded import embedded

    content = embedded(report, entry.arrays(), order.file.size_bytes, order.file.modified_ns)
    write(document_html(compose([report]), content).encode("utf-8", "replace"))


def _markdown(_order: Order, _entry: Entry, report: pb.Report, write: Write) -> None:
    write(document_markdown(compose([report])).encode("utf-8", "replace"))


def _json(_order: Order, _entry: Entry, report: pb.Report, write: Write) -> None:
    write(dump({"reports": [to_dict(report)]}).encode("utf-8", "replace"))


_FORMATS: Final = {"trace": _trace, "html": _html, "markdown": _markdown, "json": _json}


def _out_of_memory(order: Order) -> LimitReached:
    return LimitReached.of_memory(order.memory_limit_bytes // MIB, where=order.file.path)


if __name__ == "__main__":
    main()
