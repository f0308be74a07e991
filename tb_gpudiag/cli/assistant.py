"""Small answers about the traces of a directory, for coding assistants: each one says how to ask for more."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from typing import Final

from tb_gpudiag.cli.assistant_rows import (
    LONGEST_NAME,
    AnswerData,
    AnswerRow,
    collective_row,
    fitted,
    held_row,
    largest_causes,
    longest_gaps,
    place_text,
    rounded,
    row_of,
    short,
    site_row,
    table_rows,
)
from tb_gpudiag.errors import GpudiagError, UsageError
from tb_gpudiag.jobs.compare.promise import about_finding
from tb_gpudiag.jobs.rules.every_rule import find_any_rule
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.brief import brief_text
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.report.wire import dump, from_json, to_dict
from tb_gpudiag.service.analyses.task import Pending
from tb_gpudiag.service.service import Service, UnknownTrace
from tb_gpudiag.wording.format import one_line

FIRST_SCAN_S: Final = 10.0
# Clients give up after a minute or more. A longer analysis goes on, and the next question gets its result.
WAIT_S: Final = 40.0
_ASK_AGAIN_S: Final = 0.1

_NEXT: Final = "explain_finding(trace, finding), gaps(trace), kernels(trace), memory(trace)"
_PAGE_CHARACTERS: Final = 3_000
_LONGEST_TEXT: Final = 600
_TIMELINE_PIXELS: Final = 2_000
_MOST_ROWS: Final = 200
# Each one is a question of its own to the service.
_GAPS_LISTED: Final = 30


class StillAnalyzing(Exception):
    """The analysis takes longer than a client waits. `state` is what there is to answer."""

    def __init__(self, found: Pending) -> None:
        self.state = {"state": found.state, "progress": round(found.progress, 2), "next": "ask again"}
        if found.stage:
            self.state["stage"] = found.stage


class Assistant:
    """Answers as plain data. Traces are named by ids of `list_runs`, never by paths.

    Raises GpudiagError where a question cannot be answered, and StillAnalyzing where it cannot be yet.
    """

    def __init__(self, service: Service, wait_s: float = WAIT_S) -> None:
        self._service = service
        self._wait_s = wait_s

    def list_runs(self, first: int = 0) -> AnswerData:
        """List the traces, with the verdicts of those that were diagnosed."""
        self._service.has_traces(FIRST_SCAN_S)
        rows = [
            short(
                {
                    "trace": entry.id,
                    "run": entry.run,
                    "worker": entry.worker,
                    "kind": pb.TraceInfo.Kind.Name(entry.kind),
                    "state": pb.TraceEntry.State.Name(entry.state),
                    "verdict": entry.sentence,
                    "problem": entry.error.what,
                }
            )
            for entry in self._service.traces().traces
        ]
        return fitted({"next": "diagnose(trace)"}, "traces", rows, first)

    def diagnose(self, trace: str, first: int = 0) -> AnswerData:
        """Return verdict, MFU, idle time by cause and the findings, most worthwhile first."""
        report = self._report(trace)
        rows = [
            short(
                {
                    "finding": number,
                    **row_of(finding, "rule severity title cost_us cost_bytes"),
                    "place": place_text(next(iter(finding["places"]), {})),
                }
            )
            for number, finding in enumerate(report["findings"])
        ]
        answer = {
            "verdict": one_line(report["verdict"]["sentence"], _LONGEST_TEXT),
            "limiter": report["verdict"]["limiter"],
            "gpus": [
                {
                    **row_of(device, "device=id name window_us idle_us=window_idle_us"),
                    "idle_by_cause_us": largest_causes(device["window_idle_by_cause"]),
                }
                for device in report["devices"][:4]
            ],
            "steps": len(report["steps"]),
            "unchecked": [rule["rule"] for rule in report["unchecked"]],
            "next": next((f"{kind}(trace)" for kind in ("hang", "clock") if kind in report), _NEXT),
        }
        for part in ("mfu", "serving"):
            if part in report:
                answer[part] = one_line(report[part]["sentence"], _LONGEST_TEXT)
        if report["trace"]["reason"]:
            answer["why_recorded"] = one_line(report["trace"]["reason"], _LONGEST_TEXT)
        if report["trace"]["withheld"]:
            answer["credentials"] = report["trace"]["withheld"]
        return fitted(answer, "findings", rows, first)

    def brief(self, trace: str) -> AnswerData:
        """Return one text of at most 800 tokens: verdict, findings with lines and code, the plan, and what
        was not recorded. It is the text of `gpudiag diagnose --format brief`."""
        report = from_json(dump(self._report(trace)), pb.Report)
        return {"text": brief_text(compose([report])), "next": "explain_finding(trace, finding)"}

    def explain_finding(self, trace: str, finding: int) -> AnswerData:
        """Return a finding with its evidence, places, fix and time ranges."""
        report = self._report(trace)
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
            "evidence": {e["label"]: one_line(e["value"], LONGEST_NAME) for e in one["evidence"][:12]},
            "ranges_us": [[rounded(r["start_us"]), rounded(r["end_us"])] for r in one["ranges"][:3]],
            "next": "explain_rule(rule), gaps(trace, start_us, end_us)",
        }
        return fitted(answer, "places", [{"place": place_text(place)} for place in one["places"]])

    def explain_rule(self, rule: str, first: int = 0) -> AnswerData:
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
    ) -> AnswerData:
        """Return the GPU's idle gaps in a time range, longest first."""
        span = {"start_us": start_us, "end_us": end_us}
        found = self._slice("timeline", trace, width=_TIMELINE_PIXELS, **span)
        order, merged = longest_gaps(found["lanes"], device)
        first = max(0, first)
        rows: list[AnswerRow] = []
        for number, gap in order[first : first + _GAPS_LISTED]:
            chain = self._slice("gap", trace, device=number, gap=gap)
            by_cause = largest_causes(chain["by_cause"])
            rows.append(
                {
                    "gap": gap,
                    "device": number,
                    "start_us": rounded(chain["start_us"]),
                    "us": rounded(chain["end_us"] - chain["start_us"]),
                    "cause": next(iter(by_cause), ""),
                }
            )
        rows.sort(key=lambda row: -row["us"])
        answer = {"segments_too_short_to_list": merged, "next": "gap(trace, device, gap)", "gaps": rows}
        end = first + len(rows)
        more = {"next_first": end, "of": len(order)} if end < len(order) else {}
        return {**answer, **more}

    def gap(self, trace: str, device: int, gap: int) -> AnswerData:
        """Return why the GPU was idle in one gap: the work around it, and what the host did."""
        found = self._slice("gap", trace, device=device, gap=gap)
        answer: AnswerData = {
            "start_us": rounded(found["start_us"]),
            "us": rounded(found["end_us"] - found["start_us"]),
            "trigger": found["trigger"],
            "by_cause_us": largest_causes(found["by_cause"]),
        }
        for key in ("before", "after", "launch"):
            if key in found:
                answer[key] = short(row_of(found[key], "name operator"))
        rows = [
            short(row_of(segment, "cause us=duration_us name place"))
            for segment in sorted(found["host"], key=lambda one: -float(one["duration_us"]))
        ]
        return fitted(answer, "host", rows)

    def kernels(self, trace: str, name: str = "", first: int = 0) -> AnswerData:
        """Return GPU work whose name contains a text, most time first."""
        found = self._slice("kernels", trace, filter=name[:LONGEST_NAME], limit=_MOST_ROWS)
        rows = [
            short(
                {
                    **row_of(row, "kernel=name family count total_us mean_us"),
                    "operators": ", ".join(row["operators"]),
                }
            )
            for row in found["rows"]
        ]
        return fitted({"all": found["total_rows"]}, "kernels", rows, first)

    def launches(self, trace: str, name: str = "", first: int = 0) -> AnswerData:
        """Return launch hotspots (operators, modules, lines, kernels) whose name contains a text."""
        report = self._report(trace)
        rows = [
            short(row_of(hotspot, "kind name=key launches host_us kernel_us idle_us empty_queue_share"))
            for hotspot in report["launch_hotspots"]
            if name.lower() in hotspot["key"].lower()
        ]
        return fitted({}, "launches", rows, first)

    def memory(self, trace: str, first: int = 0) -> AnswerData:
        """Return the memory of each device: its peak, and the places that grow or hold the peak."""
        report = self._report(trace)
        devices, rows = [], []
        for memory in report["memory"]:
            figures = "peak_allocated_bytes peak_reserved_bytes capacity_bytes"
            devices.append(row_of(memory, f"device=name {figures}"))
            for what, key in (("grows", "sites"), ("at the peak", "peak_owners")):
                rows += [site_row(memory["name"], what, site) for site in memory[key]]
        return fitted({"devices": devices[:8]}, "sites", rows, first)

    def compare(self, base: str, candidate: str, finding: str = "", first: int = 0) -> AnswerData:
        """Compare two traces: which is faster, where did the difference go, and what became of a rule's
        finding: did its fix give what was promised?"""
        comparison = self._ready(lambda: self._service.compare(base, candidate))["comparison"]
        if finding:
            comparison = to_dict(about_finding(from_json(dump(comparison), pb.Comparison), finding, base))
        findings = comparison.get("findings", {"new": [], "gone": []})
        answer = {
            "verdict": comparison["verdict"],
            "sentence": one_line(comparison["sentence"], _LONGEST_TEXT),
            "per_step_us": comparison.get("step_us", {}),
            "new_findings": [one_line(f"{f['rule']} {f['title']}") for f in findings["new"][:5]],
            "gone_findings": [one_line(f"{f['rule']} {f['title']}") for f in findings["gone"][:5]],
            **({"mfu": comparison["mfu"]} if "mfu" in comparison else {}),
            "held_at_peak": [held_row(row) for row in comparison["held"][:10]],
        }
        if finding:
            said = [row["sentence"] for row in comparison["verified"][:3]]
            answer["finding"] = [one_line(sentence, _LONGEST_TEXT) for sentence in said]
        return fitted(answer, "causes", comparison["causes"], first)

    def job(self, trace: str, first: int = 0) -> AnswerData:
        """Return the job that a trace is a rank of: who waits for whom, and a row for each rank."""
        found = self._ready(lambda: self._service.job(trace))
        job = found["job"]
        answer = {
            "verdict": one_line(job.get("verdict", {}).get("sentence", ""), _LONGEST_TEXT),
            "world_size": job["world_size"],
            "parallelism": job["parallelism"],
            "findings": [one_line(f"{f['rule']} {f['title']}") for f in job["findings"][:6]],
            "notes": [one_line(note) for note in job["notes"][:4]],
        }
        figures = "rank trace=id step_us busy_us waiting_us transfer_us exposed_communication_us"
        rows = [row_of(rank, figures) for rank in job["ranks"]]
        return fitted(answer, "ranks", rows, first)

    def collectives(self, trace: str, first: int = 0) -> AnswerData:
        """Return the collectives of a trace by what they are for, and why nothing computes beside them."""
        rows = table_rows(self._report(trace), "collectives")
        return fitted({"next": "job_collectives(trace)"}, "collectives", rows, first)

    def job_collectives(self, trace: str, first: int = 0) -> AnswerData:
        """Return the collectives of a trace's job: which rank the others wait for, and why."""
        found = self._ready(lambda: self._service.job(trace))
        job = found["job"]
        matched = job.get("collectives", {"worst": []})
        answer = row_of(matched, "waiting_us transfer_us")
        rows = [{"what": "by unit", **row} for row in table_rows(job, "units")]
        rows += [{"what": "single", **collective_row(one)} for one in matched["worst"]]
        return fitted(answer, "collectives", rows, first)

    def clock(self, trace: str, first: int = 0) -> AnswerData:
        """Return what the step clocks of a run say: each rank's steps and phases, what got slower and since
        when, and what they recorded. trace: of the kind `clock`."""
        found = self._part(trace, "clock", "step clock")
        answer = {
            "sentence": one_line(found["sentence"], 2 * _LONGEST_TEXT),
            "recordings": [
                {**row_of(one, "rank step"), **short(row_of(one, "why worker span"))}
                for one in found["recordings"][-6:]
            ],
            "notes": [one_line(note) for note in found["notes"][:4]],
        }
        rows = [
            {
                **row_of(row, "rank steps last_step step_us now_us"),
                "phases_us": {phase["name"]: rounded(phase["us"]) for phase in row["phases"]},
                **short(row_of(row, "drift")),
            }
            for row in found["ranks"]
        ]
        return fitted(answer, "ranks", rows, first)

    def hang(self, trace: str, first: int = 0) -> AnswerData:
        """Say which ranks hold up a job that hangs. trace: of the kind `hang`: dumps of a flight recorder."""
        found = self._part(trace, "hang", "dump of a flight recorder")
        answer = {
            **{key: one_line(found[key], 2 * _LONGEST_TEXT) for key in ("why", "sentence", "advice")},
            "culprits": found["culprits"][:_MOST_ROWS],
            "notes": [one_line(note) for note in found["notes"][:4]],
        }
        fields = "state operation group sequence ranks=ranks_text waits_for=waits_for_text"
        rows = [{**row_of(row, fields), "place": place_text(row.get("place", {}))} for row in found["ranks"]]
        return fitted(answer, "ranks", rows, first)

    def _report(self, trace: str) -> AnswerData:
        found: AnswerData = self._ready(lambda: self._service.report(trace))["report"]
        return found

    def _part(self, trace: str, kind: str, name: str) -> AnswerData:
        """Return the part of a report that only this kind of file has. Raises UsageError: it has none."""
        report = self._report(trace)
        if kind not in report:
            raise UsageError(f"this is no {name}", remedy=f"list_runs() lists them, of the kind {kind}")
        return dict(report[kind])

    def _slice(self, kind: str, trace: str, **values: float | str | None) -> AnswerData:
        """Return a slice of a trace. values: of SLICES, None by default."""
        given = {name: str(value) for name, value in values.items() if value is not None}
        return self._ready(lambda: self._service.slice(kind, trace, given))

    def _ready(self, ask: Callable[[], bytes | Pending]) -> AnswerData:
        """Ask until the answer is there. Raises StillAnalyzing once a client has waited long enough."""
        self._service.has_traces(FIRST_SCAN_S)
        until = time.monotonic() + self._wait_s
        while True:
            found = _asked(ask)
            if isinstance(found, bytes):
                # Read what the service returns. Raises GpudiagError if that is an error.
                answer: AnswerData = json.loads(gzip.decompress(found))
                if answer.get("error", {}).get("what"):
                    raise GpudiagError(answer["error"]["what"], remedy=answer["error"]["remedy"])
                return {key: value for key, value in answer.items() if key != "state"}
            if found.error is not None:
                raise found.error
            if time.monotonic() > until:
                raise StillAnalyzing(found)
            time.sleep(_ASK_AGAIN_S)


def _asked(ask: Callable[[], bytes | Pending]) -> bytes | Pending:
    try:
        return ask()
    except UnknownTrace as error:
        raise UsageError(
            "the directory has no such trace", where=one_line(str(error)), remedy="list_runs() lists ids"
        ) from None
