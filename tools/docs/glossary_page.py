"""The glossary: its terms, each linked to those to read next, and what ids stand for."""

from __future__ import annotations

from tb_gpudiag.wording.vocabulary import KINDS_OF_TERMS, concepts, key


def glossary_page() -> str:
    lines = ["# Glossary", "", "`gpudiag explain TERM` prints an entry.", ""]
    for entry in sorted(concepts(), key=lambda entry: entry.name.lower()):
        also = f" Also called: {', '.join(entry.also)}." if entry.also else ""
        see = ", ".join(f"[{name}](#{key(name).replace(' ', '-')})" for name in entry.see_also)
        lines += [f"## {entry.name}", "", f"{entry.text}{also}" + (f" See also: {see}." if see else ""), ""]
    for what, table in KINDS_OF_TERMS.items():
        lines += [f"## Ids: {what}", "", "| id | word | meaning |", "| --- | --- | --- |"]
        lines += [f"| `{each.id}` | {each.word} | {each.explanation} |" for each in table.values()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
