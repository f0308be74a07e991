"""CompileLogBuilder: logs of torch.compile in code, entry by entry, as torch 2.13 writes them.

log = CompileLogBuilder()
log.artifact("recompile_reasons", "3/1", "3/0: tensor 'x' size mismatch at index 0. expected 8, actual 9")
log.metrics("3/1", "step", "train.py", 12, start_ns=EPOCH_NS + 1_000_000, us=500)
path = log.write(folder)
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

NAME = "dedicated_log_torch_trace_ab12cd34.log"


class CompileLogBuilder:
    """Entries of one process, in order."""

    def __init__(self, pid: int = 4242, *, newline: str = "\n") -> None:
        self.pid = pid
        self.newline = newline
        self.lines: list[str] = []
        self.artifact("torch_version", None, {"pytorch_version": "2.13.0+cpu"})

    def entry(
        self, kind: str, id: str | None, metadata: Any, payload: str | None = None, **more: Any
    ) -> None:
        """Add an entry of any kind. id: `function/before`."""
        entry: dict[str, Any] = {kind: metadata}
        if id is not None:
            function, before = id.split("/")
            entry |= {"frame_id": int(function), "frame_compile_id": int(before), "attempt": 0}
        entry |= more
        if payload is not None:
            entry.setdefault("has_payload", hashlib.md5(payload.encode()).hexdigest())
        self.lines.append(
            f"V1126 10:02:47.287000 {self.pid} torch/_dynamo/utils.py:2350] {json.dumps(entry)}"
        )
        self.lines += [f"\t{line}" for line in payload.split("\n")] if payload is not None else []

    def artifact(self, name: str, id: str | None, payload: Any, **more: Any) -> None:
        """Add an artifact. What is not text is written as JSON."""
        text = payload if isinstance(payload, str) else json.dumps(payload, indent=0)
        self.entry("artifact", id, {"name": name, "encoding": "json"}, text, **more)

    def metrics(
        self, id: str, function: str, file: str, line: int, *, start_ns: int = 0, us: int = 0, **more: Any
    ) -> None:
        """Add what torch writes at the end of a compilation."""
        found = {
            "compile_id": id,
            "co_name": function,
            "co_filename": file,
            "co_firstlineno": line,
            "start_time_us": start_ns // 1_000,
            "duration_us": us,
            **more,
        }
        self.entry("compilation_metrics", id, found)

    def bytes(self) -> bytes:
        """Return the log's content."""
        return "".join(line + self.newline for line in self.lines).encode()

    def write(self, folder: Path, name: str = NAME) -> Path:
        """Write the log into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        path.write_bytes(self.bytes())
        return path
