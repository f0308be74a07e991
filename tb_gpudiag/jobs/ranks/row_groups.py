"""Rows with the same values in several columns, numbered."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Int64


def row_groups(*columns: Int64) -> tuple[Int64, Int64]:
    """Number the rows by their values, in the order of the values: first column first.

    Returns:
        The first row of each group, shape (groups,), and the group of each row, shape (n,). This is what
        np.unique does with axis=0, without comparing rows byte by byte.
    """
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        # Numbers stay dense, so that the product does not overflow.
        _, group = np.unique(group * max(1, len(values)) + code.reshape(-1), return_inverse=True)
        group = group.reshape(-1).astype(np.int64)
    _, first = np.unique(group, return_index=True)
    return first.astype(np.int64), group
