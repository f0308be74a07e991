"""What the helper process answers: a line of JSON, and the report's bytes after it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import IO, Any, Final

# Longer than any answer of our helper. The report is not part of it.
_LINE_BYTES: Final = 1 << 20
_MOST_REPORT_BYTES: Final = 256 << 20


@dataclass(frozen=True)
class Answer:
    """Outcome of a diagnosis.

    text: for the log; the verdict, or why there is none.
    found: there is a finding that is worth a look.
    """

    ok: bool
    text: str
    found: bool = False
    report: bytes = b""

    def write(self, out: IO[bytes]) -> None:
        """Send the answer."""
        head = {"ok": self.ok, "text": self.text, "found": self.found, "report": len(self.report)}
        out.write(json.dumps(head).encode("ascii") + b"\n" + self.report)
        out.flush()

    @classmethod
    def read(cls, source: IO[bytes]) -> Answer | None:
        """Receive an answer; None if the other side ended."""
        line = source.readline(_LINE_BYTES)
        try:
            head: dict[str, Any] = json.loads(line)
            size = min(int(head["report"]), _MOST_REPORT_BYTES)
            report = source.read(size)
            return cls(bool(head["ok"]), str(head["text"]), bool(head["found"]), report)
        except (ValueError, KeyError, TypeError):
            return None
