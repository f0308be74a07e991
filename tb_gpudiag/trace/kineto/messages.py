"""What collectives send: the arguments of `record_param_comms` and of communication kernels."""

from __future__ import annotations

import functools
import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.trace.events import Message
from tb_gpudiag.trace.kineto import kineto
from tb_gpudiag.trace.kineto.fields import Fields, all_empty, indices
from tb_gpudiag.vocabulary.kernel_names import communicates
from tb_gpudiag.vocabulary.operators import COLLECTIVE_PARAMETERS

_SEPARATOR: Final = "\x1f"
# Kineto writes at most 30 ranks of a group, and names are shorter.
_LONGEST: Final = 1_000
_NAMES_REMEMBERED: Final = 10_000
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_RANK: Final = re.compile(r"[0-9]{1,9}")


def message_texts(fields: Fields, rows: Int64, name: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the fields of each event's message, joined to one text; "" for events without one.

    name: of each of `rows`, shape (n,).
    """
    has = np.array([_has_message(n) for n in name.dictionary.to_pylist()] or [False], np.bool_)
    if not has.any():
        return all_empty(len(name))
    own = np.flatnonzero(has[name.indices.to_numpy()])
    columns = [fields.texts(key, rows[own]).dictionary_decode() for key in kineto.MESSAGE]
    joined = pc.binary_join_element_wise(*columns, _SEPARATOR)
    # Where all fields are empty, the text consists of separators.
    said = pc.less(pc.binary_length(joined), _LONGEST)
    said = pc.and_(said, pc.greater(pc.binary_length(joined), len(columns) - 1))
    different = pc.if_else(said, joined, "").dictionary_encode()
    place = np.zeros(len(name), np.int64)
    place[own] = 1 + different.indices.to_numpy()
    texts = pa.concat_arrays([pa.array([""]), different.dictionary])
    return texts.take(indices(place)).dictionary_encode()


def message_of(text: str) -> Message:
    """Return the message whose fields `message_texts` has joined to this text."""
    fields = text.split(_SEPARATOR)
    if len(fields) != len(Message._fields):  # a name with a separator in it
        fields = [""] * len(Message._fields)
    collective, group, ranks, size, sequence, inputs, outputs, kind, source, destination = fields
    return Message(
        collective=collective,
        group=group,
        ranks=tuple(int(rank) for rank in _RANK.findall(ranks)),
        group_size=_number(size),
        sequence=_number(sequence),
        elements_in=_number(inputs),
        elements_out=_number(outputs),
        element_type=kind,
        source=_number(source),
        destination=_number(destination),
    )


@functools.lru_cache(_NAMES_REMEMBERED)
def _has_message(name: str) -> bool:
    return name == COLLECTIVE_PARAMETERS or communicates(name)


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else NONE
