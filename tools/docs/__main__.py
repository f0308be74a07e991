"""Write the documentation's Markdown: `python -m tools.docs OUT`. `make docs` runs it, and then MkDocs.

Copy the pages of docs/, and generate the rest from the sources: rules with their examples, glossary, command
line, Python API and JSON messages. In a checkout the pages link to these sources, and on the site to what is
generated from them.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

from tb_gpudiag.jobs.rules.every_rule import EVERY_RULE
from tb_gpudiag.rules.rule import AnyRule
from tools.docs.examples import built_here
from tools.docs.glossary_page import glossary_page
from tools.docs.pages import api_page, cli_page, json_page, rule_pages
from tools.docs.recorded import HERE as RECORDED

DOCS = Path(__file__).resolve().parents[2] / "docs"
GENERATED = {
    "../tb_gpudiag/rules/": "rules/index.md",
    "../tb_gpudiag/cli/": "cli.md",
    "../tb_gpudiag/__init__.py": "api.md",
    "../tb_gpudiag/report/report.proto": "json.md",
    "../tb_gpudiag/wording/glossary.md": "glossary.md",
    "../CHANGELOG.md": "changelog.md",
}
"""What pages link to in a checkout -> the page of the site that is generated from it."""
RULE_PAGE = re.compile(r"\]\(\.\./tb_gpudiag/(?:jobs/)?rules/(?:\w+/)?(\w+\.md)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the pages; its content is replaced")
    write(parser.parse_args().out)


def write(out: Path) -> None:
    """Replace the content of `out` with all pages of the site."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS, out)
    shutil.copytree(RECORDED, out / "rules", ignore=shutil.ignore_patterns("*.md"))
    pages = {"cli.md": cli_page(), "api.md": api_page(), "json.md": json_page()}
    pages |= {"glossary.md": glossary_page(), **rule_pages()}
    for rule in EVERY_RULE:
        pages[f"rules/{rule.name}.md"] += _example(rule, out / "rules")
    pages["changelog.md"] = (DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for source, generated in GENERATED.items():
            text = text.replace(f"]({source})", f"]({generated})")
        pages[page.name] = RULE_PAGE.sub(r"](rules/\1", text)
    for name, text in pages.items():
        (out / name).write_text(text, encoding="utf-8")


def _example(rule: AnyRule, folder: Path) -> str:
    """The section with a rule's example: from a real recording, or of one that comes with the project. A new
    rule may have none yet."""
    kept = RECORDED / f"{rule.name}.md"
    if kept.exists():
        return kept.read_text(encoding="utf-8")
    if rule.id not in built_here():
        return ""
    origin, example = built_here()[rule.id]
    picture = folder / f"{rule.name}.svg"
    picture.write_text(example.picture, encoding="utf-8")
    return example.section(origin, picture.name)


if __name__ == "__main__":
    main()
