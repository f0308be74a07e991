"""Small answers about the traces of a directory, for coding assistants: each one says how to ask for more."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tb_gpudiag.errors import GpudiagError, UsageError
from tb_gpudiag.jobs.rules.job_registry import find_any_rule
from tb_gpudiag.report.wire import dump
from tb_gpudiag.service.pending import Pending
from tb_gpudiag.service.service import Service, UnknownTrace
from tb_gpudiag.wording.format import NAME_LIMIT, one_line

ANSWER_BYTES: Final = 4_000
"""Most bytes of an answer. Rows that do not fit are counted, with where to go on."""

FIRST_SCAN_S: Final = 10.0
# Clients give up after a minute or more. A longer analysis goes on, and the next question gets its result.
WAIT_S: Final = 40.0
_ASK_AGAIN_S: Final = 0.1

_PAGE_CHARACTERS: Final = 3_000
_LONGEST_TEXT: Final = 600
_LONGEST_NAME: Final = 120
_TIMELINE_PIXELS: Final = 2_000
_MOST_ROWS: Final = 200

Row = dict[str, Any]
Answer = dict[str, Any]


class Assistant:
    """Answers as plain data. Traces are named by ids of `list_runs`, never by paths.

    Raises GpudiagError where a question cannot be answered.
    """

    def __init__(self, service: Service, wait_s: float = WAIT_S) -> None:
        self._service = service
        self._wait_s = wait_s

    def list_runs(self, first: int = 0) -> Answer:
        """List the traces, with the verdicts of those that were diagnosed."""
        self._service.has_traces(FIRST_SCAN_S)
        rows = [
            _short(
                {
                    "trace": entry.id,
                    "run": entry.run,
                    "worker": entry.worker,
                    "kind": entry.kind,
                    "state": entry.state,
                    "verdict": entry.sentence,
                    "problem": entry.error.what,
                }
            )
            for entry in self._service.traces().traces
        ]
        return _fitted({"next": "diagnose(trace)"}, "traces", rows, first)

    def diagnose(self, trace: str, first: int = 0) -> Answer:
        """Return verdict, idle time by cause and the findings, most worthwhile first."""
        report = self._report(trace)
        if "state" in report:
            return report
        rows = [
            _short(
                {
                    "finding": number,
                    "rule": finding["rule"],
                    "severity": finding["severity"],
                    "title": finding["title"],
                    "cost_us": _round(finding["cost_us"]),
                    "cost_bytes": finding["cost_bytes"],
                    "place": _place(finding["places"][0]) if finding["places"] else "",
                }
            )
            for number, finding in enumerate(report["findings"])
        ]
        answer = {
            "verdict": one_line(report["verdict"]["sentence"], _LONGEST_TEXT),
            "limiter": report["verdict"]["limiter"],
            "gpus": [_device(device) for device in report["devices"][:4]],
            "steps": len(report["steps"]),
            "unchecked": [rule["rule"] for rule in report["unchecked"]],
            "next": "explain_finding(trace, finding), gaps(trace), kernels(trace), memory(trace)",
        }
        return _fitted(answer, "findings", rows, first)

    def explain_finding(self, trace: str, finding: int) -> Answer:
        """Return a finding with its evidence, places, fix and time ranges."""
        report = self._report(trace)
        if "state" in report:
            return report
        if not 0 <= finding < len(report["findings"]):
            raise UsageError("there is no such finding", remedy="diagnose(trace) numbers them")
        one = report["findings"][finding]
        answer = {
            "rule": one["rule"],
            "title": one["title"],
            "severity": one["severity"],
            "summary": one_line(one["summary"], 2 * _LONGEST_TEXT),
            "fix": {"text": one_line(one["fix"]["text"], _LONGEST_TEXT), "code": one["fix"]["code"][:1_000]},
            "saving": one.get("saving", {}),
            "evidence": {e["label"]: one_line(e["value"], _LONGEST_NAME) for e in one["evidence"][:12]},
            "ranges_us": [[_round(r["start_us"]), _round(r["end_us"])] for r in one["ranges"][:3]],
            "next": "explain_rule(rule), gaps(trace, start_us, end_us)",
        }
        return _fitted(answer, "places", [{"place": _place(place)} for place in one["places"]])

    def explain_rule(self, rule: str, first: int = 0) -> Answer:
        """Return a part of the rule's page: what it means, how it is measured, and the fix."""
        found = find_any_rule(rule)
        if found is None:
            raise UsageError("no rule has this id or name", where=one_line(rule))
        first = max(0, first)
        page = found.page[first : first + _PAGE_CHARACTERS]
        end = first + len(page)
        more = {"next_first": end} if end < len(found.page) else {}
        return {"rule": found.id, "name": found.name, "page": page, **more}

    def gaps(
        self,
        trace: str,
        start_us: float | None = None,
        end_us: float | None = None,
        device: int | None = None,
        first: int = 0,
    ) -> Answer:
        """Return the GPU's idle gaps in a time range, longest first."""
        found = self._ready(lambda: self._service.timeline(trace, start_us, end_us, _TIMELINE_PIXELS))
        if "lanes" not in found:
            return found
        rows, merged = [], 0
        for lane in found["lanes"]:
            if lane["kind"] != "gaps" or device not in (None, lane["device"]):
                continue
            boxes = zip(
                lane["box_start_us"],
                lane["box_duration_us"],
                lane["box_name"],
                lane["box_count"],
                lane["box_gap"],
                strict=True,
            )
            for start, duration, name, count, gap in boxes:
                if count > 1:
                    merged += count
                    continue
                rows.append(
                    {
                        "gap": gap,
                        "device": lane["device"],
                        "start_us": _round(start),
                        "us": _round(duration),
                        "cause": found["names"][name],
                    }
                )
        rows.sort(key=lambda row: -row["us"])
        answer = {"too_short_to_list": merged, "next": "gap(trace, device, gap)"}
        return _fitted(answer, "gaps", rows, first)

    def gap(self, trace: str, device: int, gap: int) -> Answer:
        """Return why the GPU was idle in one gap: the work around it, and what the host did."""
        found = self._ready(lambda: self._service.gap(trace, device, gap))
        if "host" not in found:
            return found
        answer: Answer = {
            "start_us": _round(found["start_us"]),
            "us": _round(found["end_us"] - found["start_us"]),
            "trigger": found["trigger"],
            "by_cause_us": _causes(found["by_cause"]),
        }
        for key in ("before", "after", "launch"):
            if key in found:
                answer[key] = _short({name: found[key][name] for name in ("name", "operator")})
        rows = [
            _short(
                {
                    "cause": segment["cause"],
                    "us": _round(segment["duration_us"]),
                    "name": segment["name"],
                    "place": segment["place"],
                }
            )
            for segment in sorted(found["host"], key=lambda one: -float(one["duration_us"]))
        ]
        return _fitted(answer, "host", rows)

    def kernels(self, trace: str, name: str = "", first: int = 0) -> Answer:
        """Return GPU work whose name contains a text, most time first."""
        found = self._ready(
            lambda: self._service.calls(
                "kernels", trace, "kernel", "total", name[:_LONGEST_NAME], _MOST_ROWS, None, None
            )
        )
        if "rows" not in found:
            return found
        rows = [
            _short(
                {
                    "kernel": row["name"],
                    "family": row["family"],
                    "count": row["count"],
                    "total_us": _round(row["total_us"]),
                    "mean_us": _round(row["mean_us"]),
                    "operators": ", ".join(row["operators"]),
                }
            )
            for row in found["rows"]
        ]
        return _fitted({"all": found["total_rows"]}, "kernels", rows, first)

    def launches(self, trace: str, name: str = "", first: int = 0) -> Answer:
        """Return launch hotspots (operators, modules, lines, kernels) whose name contains a text."""
        report = self._report(trace)
        if "state" in report:
            return report
        rows = [
            _short(
                {
                    "kind": hotspot["kind"],
                    "name": hotspot["key"],
                    "launches": hotspot["launches"],
                    "host_us": _round(hotspot["host_us"]),
                    "kernel_us": _round(hotspot["kernel_us"]),
                    "idle_us": _round(hotspot["idle_us"]),
                    "empty_queue_share": round(hotspot["empty_queue_share"], 3),
                }
            )
            for hotspot in report["launch_hotspots"]
            if name.lower() in hotspot["key"].lower()
        ]
        return _fitted({}, "launches", rows, first)

    def memory(self, trace: str, first: int = 0) -> Answer:
        """Return the memory of each device: its peak, and the places that grow or hold the peak."""
        report = self._report(trace)
        if "state" in report:
            return report
        devices, rows = [], []
        for memory in report["memory"]:
            figures = ("peak_allocated_bytes", "peak_reserved_bytes", "capacity_bytes")
            devices.append({"device": memory["name"], **{key: memory[key] for key in figures}})
            for what, key in (("grows", "sites"), ("at the peak", "peak_owners")):
                rows += [
                    _short(
                        {
                            "device": memory["name"],
                            "what": what,
                            "bytes": site["bytes"],
                            "bytes_per_step": site.get("bytes_per_step", 0),
                            "kind": site.get("kind", ""),
                            "operator": site["operator"],
                            "place": _place(site.get("place", {})),
                        }
                    )
                    for site in memory[key]
                ]
        return _fitted({"devices": devices[:8]}, "sites", rows, first)

    def compare(self, base: str, candidate: str, first: int = 0) -> Answer:
        """Compare two traces: which is faster, and where the difference went."""
        found = self._ready(lambda: self._service.compare(base, candidate))
        if "comparison" not in found:
            return found
        comparison = found["comparison"]
        findings = comparison.get("findings", {"new": [], "gone": []})
        answer = {
            "verdict": comparison["verdict"],
            "sentence": one_line(comparison["sentence"], _LONGEST_TEXT),
            "per_step_us": comparison.get("step_us", {}),
            "new_findings": [one_line(f"{f['rule']} {f['title']}") for f in findings["new"][:5]],
            "gone_findings": [one_line(f"{f['rule']} {f['title']}") for f in findings["gone"][:5]],
        }
        return _fitted(answer, "causes", comparison["causes"], first)

    def job(self, trace: str, first: int = 0) -> Answer:
        """Return the job that a trace is a rank of: who waits for whom, and a row for each rank."""
        found = self._ready(lambda: self._service.job(trace))
        if "job" not in found:
            return found
        job = found["job"]
        answer = {
            "verdict": one_line(job.get("verdict", {}).get("sentence", ""), _LONGEST_TEXT),
            "world_size": job["world_size"],
            "parallelism": job["parallelism"],
            "findings": [one_line(f"{f['rule']} {f['title']}") for f in job["findings"][:6]],
            "notes": [one_line(note) for note in job["notes"][:4]],
        }
        figures = ("step_us", "busy_us", "waiting_us", "transfer_us", "exposed_communication_us")
        rows = [
            {"rank": rank["rank"], "trace": rank["id"], **{key: _round(rank[key]) for key in figures}}
            for rank in job["ranks"]
        ]
        return _fitted(answer, "ranks", rows, first)

    def _report(self, trace: str) -> Answer:
        """Return the report, or the state of the analysis."""
        found = self._ready(lambda: self._service.report(trace))
        report: Answer = found.get("report", found)
        return report

    def _ready(self, ask: Callable[[], bytes | Pending]) -> Answer:
        """Ask until the answer is there, or for as long as a client waits. Then return the state."""
        self._service.has_traces(FIRST_SCAN_S)
        until = time.monotonic() + self._wait_s
        while True:
            found = _asked(ask)
            if isinstance(found, bytes):
                return _read(found)
            if found.error is not None:
                raise found.error
            if time.monotonic() > until:
                return {"state": found.state, "progress": round(found.progress, 2), "next": "ask again"}
            time.sleep(_ASK_AGAIN_S)


def _asked(ask: Callable[[], bytes | Pending]) -> bytes | Pending:
    try:
        return ask()
    except UnknownTrace as error:
        raise UsageError(
            "the directory has no such trace", where=one_line(str(error)), remedy="list_runs() lists ids"
        ) from None


def _read(content: bytes) -> Answer:
    """Read what the service returns. Raises GpudiagError if that is an error."""
    answer: Answer = json.loads(gzip.decompress(content))
    if answer.get("error", {}).get("what"):
        raise GpudiagError(answer["error"]["what"], remedy=answer["error"]["remedy"])
    return {key: value for key, value in answer.items() if key != "state"}


def _fitted(answer: Mapping[str, Any], key: str, rows: Sequence[Row], first: int = 0) -> Answer:
    """Add as many rows as fit, from the one with index `first`, and where to go on."""
    first = max(0, first)
    size = len(dump(answer).encode()) + 100
    taken: list[Row] = []
    for row in rows[first:]:
        size += len(dump(row).encode()) + 1
        if size > ANSWER_BYTES:
            break
        taken.append(row)
    end = first + len(taken)
    more = {"next_first": end, "of": len(rows)} if end < len(rows) else {}
    return {**answer, key: taken, **more}


def _short(row: Row) -> Row:
    """Leave out what is empty, and shorten texts: names in traces have thousands of characters."""
    shown = {
        key: one_line(value, NAME_LIMIT if key in ("title", "verdict") else _LONGEST_NAME)
        if isinstance(value, str)
        else value
        for key, value in row.items()
    }
    return {key: value for key, value in shown.items() if value not in ("", 0, None)} | {
        key: row[key] for key in ("finding", "gap") if key in row
    }


def _device(device: Mapping[str, Any]) -> Row:
    window = device["window_us"]
    return {
        "device": device["id"],
        "name": one_line(device["name"], _LONGEST_NAME),
        "window_us": _round(window),
        "idle_us": _round(device["window_idle_us"]),
        "idle_by_cause_us": _causes(device["window_idle_by_cause"]),
    }


def _causes(causes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    largest = sorted(causes, key=lambda one: -float(one["us"]))[:6]
    return {one["cause"]: _round(one["us"]) for one in largest}


def _place(place: Mapping[str, Any]) -> str:
    if not place:
        return ""
    where = f"{place['file']}:{place['line']}" if place.get("file") else ""
    parts = (where, f"in {place['function']}" if place.get("function") else "", place.get("operator", ""))
    return one_line(" ".join(part for part in parts if part), _LONGEST_NAME)


def _round(number: float) -> float:
    return round(number, 1)
