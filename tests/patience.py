"""How long a test waits. This is no expectation: a busy machine may take minutes for a second of work."""

from __future__ import annotations

HANGS_S = 600.0
"""What takes this long hangs. Shorter than pytest's own limit, which says less."""
