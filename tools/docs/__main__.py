"""Write the documentation's Markdown: `python -m tools.docs OUT`. `make docs` runs it, and then MkDocs.

Copy the pages of docs/, and generate the rest from the sources: rules, command line, Python API, JSON
messages, and the output of commands that a page shows.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

from tools.docs.pages import api_page, cli_page, command_output, json_page, rule_pages

DOCS = Path(__file__).resolve().parents[2] / "docs"
OUTPUT = re.compile(r"<!-- output: (\w+) -->")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the pages; its content is replaced")
    write(parser.parse_args().out)


def write(out: Path) -> None:
    """Replace the content of `out` with all pages of the site."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS, out)
    pages = {"cli.md": cli_page(), "api.md": api_page(), "json.md": json_page(), **rule_pages()}
    for page in DOCS.glob("*.md"):
        pages[page.name] = OUTPUT.sub(
            lambda found: command_output(found[1]), page.read_text(encoding="utf-8")
        )
    for name, text in pages.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
