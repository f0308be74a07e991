"""Findings for programs that show them next to the code: GitHub's workflow commands and SARIF 2.1.0."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from tb_gpudiag.jobs.rules.every_rule import find_any_rule
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import dump
from tb_gpudiag.version import __version__
from tb_gpudiag.wording.format import one_line

# GitHub shows at most 10 annotations of each level per step, and cuts long messages.
LONGEST_MESSAGE = 4_000
LONGEST_TITLE = 250
LONGEST_PATH = 1_000

_INSTALLED = ("site-packages", "dist-packages")

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_GITHUB_LEVELS = {
    pb.Finding.Severity.ERROR: "error",
    pb.Finding.Severity.WARNING: "warning",
    pb.Finding.Severity.INFO: "notice",
}
_SARIF_LEVELS = {**_GITHUB_LEVELS, pb.Finding.Severity.INFO: "note"}


def github_annotations(findings: Iterable[pb.Finding]) -> str:
    """Return a workflow command for each finding: its level, place if it has one, title and message."""
    return "".join(f"{_github(finding)}\n" for finding in findings)


def _github(finding: pb.Finding) -> str:
    place = _place(finding)
    properties = {}
    if place is not None:
        properties["file"] = _below_here(place.file)
        if place.line:
            properties["line"] = str(place.line)
    properties["title"] = one_line(f"{finding.rule}: {finding.title}", LONGEST_TITLE)
    listed = ",".join(f"{name}={_escaped(text, ':,')}" for name, text in properties.items())
    return f"::{_GITHUB_LEVELS[finding.severity]} {listed}::{_escaped(_message(finding))}"


def _escaped(text: str, more: str = "") -> str:
    """Escape what ends a command or a line. more: what separates properties."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    for character in more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def sarif(findings: Iterable[pb.Finding]) -> str:
    """Return a SARIF log of the findings that have places."""
    placed = [finding for finding in findings if _place(finding) is not None]
    ids = sorted({finding.rule for finding in placed})
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "gpudiag",
                        "version": __version__,
                        "rules": [_sarif_rule(id_) for id_ in ids],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(finding, ids.index(finding.rule)) for finding in placed],
            }
        ],
    }
    return dump(log) + "\n"


def _sarif_rule(id_: str) -> dict[str, Any]:
    rule = find_any_rule(id_)
    if rule is None:
        return {"id": id_}
    return {
        "id": id_,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "help": {"text": rule.page, "markdown": rule.page},
    }


def _sarif_result(finding: pb.Finding, index: int) -> dict[str, Any]:
    places = [place for place in finding.places if place.file]
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": f"{one_line(finding.title, LONGEST_TITLE)}\n{_message(finding)}"},
        "locations": [_location(places[0])],
        "relatedLocations": [{"id": i, **_location(place)} for i, place in enumerate(places[1:], 1)],
        "partialFingerprints": {"gpudiag/v1": _fingerprint(finding, places[0])},
        "properties": {"cost_us": finding.cost_us, "cost_bytes": finding.cost_bytes},
    }


def _location(place: pb.Place) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(_below_here(place.file))}}
    if place.line:
        physical["region"] = {"startLine": place.line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if place.function:
        location["logicalLocations"] = [{"name": one_line(place.function), "kind": "function"}]
    return location


def _fingerprint(finding: pb.Finding, place: pb.Place) -> str:
    """Recognize the finding when lines have moved."""
    text = "\0".join((finding.rule, PurePosixPath(place.file).name, place.function, place.operator))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _uri(path: str) -> str:
    path = path.replace("\\", "/")
    if len(path) > 1 and path[1] == ":":  # a drive
        path = f"/{path}"
    quoted = quote(path, safe="/-_.~:@+", errors="replace")
    return f"file://{quoted}" if path.startswith("/") else quote(path, safe="/-_.~@+", errors="replace")


def _place(finding: pb.Finding) -> pb.Place | None:
    return next((place for place in finding.places if place.file), None)


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
