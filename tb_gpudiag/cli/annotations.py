"""Findings next to the code, as GitHub's workflow commands."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import one_line

# GitHub shows at most 10 annotations of each level per step, and cuts long messages.
LONGEST_MESSAGE = 4_000
LONGEST_TITLE = 250
LONGEST_PATH = 1_000

_INSTALLED = ("site-packages", "dist-packages")

_LEVELS = {
    pb.Finding.Severity.ERROR: "error",
    pb.Finding.Severity.WARNING: "warning",
    pb.Finding.Severity.INFO: "notice",
}


def github_annotations(findings: Iterable[pb.Finding]) -> str:
    """Return a workflow command for each finding: its level, place if it has one, title and message."""
    return "".join(f"{_github(finding)}\n" for finding in findings)


def _github(finding: pb.Finding) -> str:
    place = next((place for place in finding.places if place.file), None)
    properties = {}
    if place is not None:
        properties["file"] = _below_here(place.file)
        if place.line:
            properties["line"] = str(place.line)
    properties["title"] = one_line(f"{finding.rule}: {finding.title}", LONGEST_TITLE)
    listed = ",".join(f"{name}={_escaped(text, ':,')}" for name, text in properties.items())
    return f"::{_LEVELS[finding.severity]} {listed}::{_escaped(_message(finding))}"


def _escaped(text: str, more: str = "") -> str:
    """Escape what ends a command or a line. more: what separates properties."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    for character in more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _message(finding: pb.Finding) -> str:
    parts = (finding.summary, f"Fix: {finding.fix.text}" if finding.fix.text else "")
    return one_line(" ".join(part for part in parts if part), LONGEST_MESSAGE)


def _below_here(file: str) -> str:
    """Return the path relative to the working directory.

    The trace may come from another machine. Then the longest end of its path that exists below the working
    directory is meant; without one, the path stays as it is.
    """
    file = one_line(file, LONGEST_PATH)
    return next((end for end in _ends(file) if os.path.isfile(end)), file)


def _ends(file: str) -> Iterator[str]:
    """Yield relative paths: that of a file below the working directory, then ever shorter ends."""
    here = os.path.join(os.getcwd(), "")
    if file.startswith(here):
        yield file[len(here) :].replace(os.sep, "/")
    parts = [part for part in file.replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in file:
        return
    if any(part in _INSTALLED for part in parts):  # `utils.py` of a package is not the user's
        return
    for first in range(len(parts)):
        yield "/".join(parts[first:])
