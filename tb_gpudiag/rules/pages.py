"""Pages of rules: Markdown next to their modules, and the one home of the code in their fixes.

A block of code with a name, as in "```python workers", is what findings show. Readers of the page do not see
the name.
"""

from __future__ import annotations

import re
from importlib import resources

_NAMED = re.compile(r"^(```\w+) (\w+)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def read_page(module: str) -> str:
    """Return the page next to a rule's module."""
    return _NAMED.sub(r"\1\n\3\n```", _text(module))


def fix_code(module: str) -> dict[str, str]:
    """Return the code of the fixes on the page next to a rule's module, by the names of the blocks."""
    return {name: code for _, name, code in _NAMED.findall(_text(module))}


def _text(module: str) -> str:
    package, _, name = module.rpartition(".")
    return (resources.files(package) / f"{name}.md").read_text(encoding="utf-8")
