"""Dumps of the flight recorder, as NCCL's and gloo's process groups write them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WORLD = "0"


def entry(
    kind: str,
    sequence: int,
    *,
    group: str = WORLD,
    state: str = "completed",
    size: int = 1_000,
    line: int = 10,
    back_end: str = "nccl",
) -> dict[str, Any]:
    """An operation, as a dump has it. record_id is set by `write`.

    back_end: the states of gloo's operations stay "scheduled": whether they have ended is in `retired` alone.
    """
    called_ns = 1_795_702_698_095_429_375
    times = {"scheduled": (None, None), "started": (called_ns, None), "completed": (called_ns, called_ns)}
    shown = "scheduled" if back_end == "gloo" else state
    started_ns, completed_ns = times[shown]
    return {
        "record_id": 0,
        "pg_id": int(group),
        "process_group": (group, "default_pg" if group == WORLD else f"group {group}"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": f"{back_end}:{kind}",
        "time_created_ns": called_ns,
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "output_sizes": [[size]],
        "output_dtypes": ["Float"],
        "state": shown,
        "time_discovered_started_ns": started_ns,
        "time_discovered_completed_ns": completed_ns,
        "retired": state == "completed",
        "timeout_ms": 1_800_000,
        "thread_id": "140010231520128",
        "thread_name": "python",
        "is_p2p": "->" in kind or "<-" in kind,
        "frames": [
            {
                "name": "all_reduce",
                "filename": "/site-packages/torch/distributed/distributed_c10d.py",
                "line": 1,
            },
            {"name": "step", "filename": "/job/train.py", "line": line},
        ],
    }


def write(
    folder: Path,
    rank: int,
    entries: Sequence[dict[str, Any]],
    groups: Mapping[str, Sequence[int]],
    *,
    as_json: bool = False,
) -> Path:
    """Write the dump of a rank: a pickle as torch writes it, or JSON."""
    document = {
        "version": "2.10",
        "comm_lib_version": "2.27.5",
        "pg_config": {
            name: {"name": name, "desc": "default_pg", "ranks": str(list(ranks))}
            for name, ranks in groups.items()
        },
        "pg_status": {},
        "entries": [{**one, "record_id": number} for number, one in enumerate(entries)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    if as_json:
        path = folder / f"fr_trace_{rank}.json"
        path.write_text(json.dumps(document))
    else:
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(document, protocol=2))
    return path
