"""The whole content of a file that cannot be read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

from tb_gpudiag.errors import TooLarge


def whole_file(blocks: Iterator[bytes], most_bytes: int, path: str, remedy: str) -> bytes:
    """Join the blocks of a file. Raises TooLarge, with this remedy: they have more bytes than that."""
    whole = BytesIO()  # holds no block beside the whole, and hands it out as it is
    for block in blocks:
        whole.write(block)
        if whole.tell() > most_bytes:
            raise TooLarge(f"it has more than {most_bytes:,} bytes", where=path, remedy=remedy)
    return whole.getvalue()
