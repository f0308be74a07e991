"""The code of fixes, which stands on the rules' pages alone."""

from __future__ import annotations

import re
from importlib import resources

_BLOCK = re.compile(r"^```\w+ (\w+)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def fix_code(module: str) -> dict[str, str]:
    """Return the named blocks of code, such as "```python workers", on the page next to a rule's module."""
    package, _, name = module.rpartition(".")
    page = (resources.files(package) / f"{name}.md").read_text(encoding="utf-8")
    return dict(_BLOCK.findall(page))
