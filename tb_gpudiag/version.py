"""The one place of the version."""

from __future__ import annotations

__version__ = "0.1.0"
