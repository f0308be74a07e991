"""Writes records and figures of recordings into TensorBoard's event files."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

PLUGIN: Final = "gpudiag"
TAG: Final = "gpudiag/recording"

SCHEMA: Final = json.dumps({"message": "tb_gpudiag.Report", "schema_version": 1}).encode("ascii")
"""Content of the plugin's metadata: what a record is."""


def summary_of(record: bytes, figures: Mapping[str, float]) -> Any:
    """Return the Summary of one recording: a rank-0 tensor with the record, and a scalar per figure."""
    from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_TENSOR, Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    # The fast data server drops data of unknown plugins that has no data class.
    metadata = SummaryMetadata(
        plugin_data=SummaryMetadata.PluginData(plugin_name=PLUGIN, content=SCHEMA),
        data_class=DATA_CLASS_TENSOR,
    )
    tensor = TensorProto(dtype=DT_STRING, tensor_shape=TensorShapeProto(), string_val=[record])
    return Summary(
        value=[
            Summary.Value(tag=TAG, metadata=metadata, tensor=tensor),
            *(Summary.Value(tag=tag, simple_value=value) for tag, value in sorted(figures.items())),
        ]
    )


def write_with(writer: Any, record: bytes, figures: Mapping[str, float], step: int) -> None:
    """Write through torch's SummaryWriter: a second file in its directory would hide the user's scalars."""
    writer._get_file_writer().add_summary(summary_of(record, figures), step)
    writer.flush()


def append_to(path: str, record: bytes, figures: Mapping[str, float], step: int) -> None:
    """Append to an event file of our own, which is created if it is missing. Raises OSError: the file
    cannot be written. It still ends with a whole event."""
    from tensorboard.compat.proto.event_pb2 import Event

    _append(path, [Event(wall_time=time.time(), step=step, summary=summary_of(record, figures))])


def append_scalars(path: str, lines: Iterable[tuple[int, float, Mapping[str, float]]]) -> None:
    """Append scalars in the same way. lines: step, Unix time and values by tag. Raises OSError, as above."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    def summary(values: Mapping[str, float]) -> Any:
        return Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])

    _append(
        path, [Event(wall_time=time_s, step=step, summary=summary(values)) for step, time_s, values in lines]
    )


def _append(path: str, events: Sequence[Any]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event

    os.makedirs(os.path.dirname(path), exist_ok=True)
    content = b"".join(_framed(event.SerializeToString()) for event in events)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            first = Event(wall_time=time.time(), file_version="brain.Event:2")
            content = _framed(first.SerializeToString()) + content
        # In one call, so that a killed process leaves no half event.
        if os.write(descriptor, content) < len(content):
            os.ftruncate(descriptor, size)
            raise OSError(f"the disk is full: {path}")
    finally:
        os.close(descriptor)


def _framed(content: bytes) -> bytes:
    """Return a record of the TFRecord format."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    length = struct.pack("<Q", len(content))
    checksums = (struct.pack("<I", masked_crc32c(part)) for part in (length, content))
    return length + next(checksums) + content + next(checksums)
