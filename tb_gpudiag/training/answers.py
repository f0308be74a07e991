"""What the helper process answers: a line of JSON, and the bytes of report and record after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final

# Longer than any answer of our helper. The report is not part of it.
_LINE_BYTES: Final = 1 << 20
_MOST_BYTES: Final = 256 << 20


@dataclass(frozen=True)
class Answer:
    """Outcome of a diagnosis.

    text: for the log; the verdict, or why there is none.
    found: there is a finding that is worth a look.
    report, record: serialized Reports, whole and compact, if they were asked for.
    figures: by tag, for the event file.
    note: what went wrong and did not keep the diagnosis from being made.
    """

    ok: bool
    text: str
    found: bool = False
    report: bytes = b""
    record: bytes = b""
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    def write(self, out: IO[bytes]) -> None:
        """Send the answer."""
        head = {
            "ok": self.ok,
            "text": self.text,
            "found": self.found,
            "report": len(self.report),
            "record": len(self.record),
            "figures": dict(self.figures),
            "note": self.note,
        }
        out.write(json.dumps(head).encode("ascii") + b"\n" + self.report + self.record)
        out.flush()

    @classmethod
    def read(cls, source: IO[bytes]) -> Answer | None:
        """Receive an answer; None if the other side ended."""
        line = source.readline(_LINE_BYTES)
        try:
            head: dict[str, Any] = json.loads(line)
            report, record = (source.read(min(int(head[name]), _MOST_BYTES)) for name in ("report", "record"))
            return cls(head["ok"], head["text"], head["found"], report, record, head["figures"], head["note"])
        except (ValueError, KeyError, TypeError):
            return None
