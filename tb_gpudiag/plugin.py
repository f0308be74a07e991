"""The TensorBoard plugin's routes. service/ does the work behind them.

TensorBoard checks neither host nor origin, so any page that the user visits can send requests here. Routes
therefore answer GET only, refuse what a browser sends for a page of another site, and take no path or URL:
they look up ids among the traces that the scan of the log directory found, and among the rules.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from tb_gpudiag.errors import GpudiagError, LimitReached, UsageError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.slice_table import SLICES, Integer, Text
from tb_gpudiag.report.wire import to_json
from tb_gpudiag.service.analyses.task import Pending, problem
from tb_gpudiag.service.exports import FORMATS
from tb_gpudiag.service.index.records import RecordReader
from tb_gpudiag.service.index.roots import roots_from
from tb_gpudiag.service.service import GoneTrace, Service, UnknownTrace
from tb_gpudiag.service.settings import settings_from
from tb_gpudiag.training.event_records import TAG

PLUGIN_NAME = "gpudiag"

# With a fast log directory the tab is there when the page opens. Otherwise it appears after a reload.
FIRST_SCAN_WAIT_S = 0.2

STATIC = Path(__file__).parent / "static"
ENTRY_MODULE = "index.js"
BUILD_COMMAND = "cd frontend && npm ci && npm run build"

# Vite puts a hash of the content into every file name except the entry's, so these files never change.
_HASHED = re.compile(r"-[A-Za-z0-9_-]{8}\.\w+$")
_YEAR_S = 365 * 24 * 3600

_MIME = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".md": "text/plain",
    ".txt": "text/plain",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".wasm": "application/wasm",
}

# The entry module of a checkout without a built frontend. Without it the tab would stay blank.
_NOT_BUILT = f"""export function render() {{
  document.body.textContent =
    "The Diagnosis tab of this gpudiag checkout is not built. In the checkout, run: {BUILD_COMMAND}";
}}
"""

_UNKNOWN = UsageError(
    "The log directory has no such trace.", remedy="It may have been deleted: choose another recording."
)

_OTHER_SITE = UsageError(
    "A page of another site asks for this.", remedy="Open the Diagnosis tab, or ask with curl or a script."
)

# Parameters of routes other than slices.
_ID, _FORMAT, _RUN = Text("id"), Text("format"), Text("run")
_RULE = Text("rule", default="", longest=50)
_BASE, _CANDIDATE = Text("base"), Text("candidate")
_KNOWN = Integer("known", low=-1, high=2**32 - 1)  # the generation of a list that the page has
_AHEAD = Integer("ahead", high=1)  # nobody waits for the report
_FIRST = Integer("first", low=1, high=500)  # rows of the table of runs that it asks for before the others

Route = Callable[[wrappers.Request], wrappers.Response]


class GpudiagPlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard ships no types
    """The Diagnosis tab for `context.logdir` or `context.flags.logdir_spec`."""

    plugin_name = PLUGIN_NAME

    def __init__(self, context: base_plugin.TBContext) -> None:
        logdir_spec = getattr(context.flags, "logdir_spec", None)
        records = RecordReader(getattr(context, "data_provider", None), PLUGIN_NAME, TAG)
        self._service = Service(roots_from(context.logdir, logdir_spec), settings_from(), records=records)
        self._first_question = True

    def close(self) -> None:
        """Stop the background work, which also ends with the process. TensorBoard never calls this."""
        self._service.close()

    def is_active(self) -> bool:
        wait_s = FIRST_SCAN_WAIT_S if self._first_question else 0.0
        self._first_question = False
        return self._service.has_traces(wait_s)

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        return base_plugin.FrontendMetadata(es_module_path=f"/static/{ENTRY_MODULE}", tab_name="Diagnosis")

    def get_plugin_apps(self) -> Mapping[str, Any]:
        routes: dict[str, Route] = {
            "/traces": self._traces,
            "/runs": self._table_of_runs,
            "/report": self._report,
            "/export": self._export,
            "/job": self._job,
            "/history": self._history,
            "/compare": self._compare,
            "/rule": self._rule,
            "/cancel": self._cancel,
            "/status": self._status,
            "/static/*": self._static,
            **{f"/{kind}": self._slice(kind) for kind in SLICES},
        }
        return {path: _application(route) for path, route in routes.items()}

    def _traces(self, request: wrappers.Request) -> wrappers.Response:
        # Each open page polls this every few seconds, and the list can be long: send what has changed. Not as
        # a 304, because TensorBoard warns about responses without a Content-Type.
        return _json(request, to_json(self._service.traces(_KNOWN.read(request.args))))

    def _table_of_runs(self, request: wrappers.Request) -> wrappers.Response:
        known, first = _KNOWN.read(request.args), _FIRST.read(request.args)
        return _json(request, to_json(self._service.runs(known, first)))

    def _report(self, request: wrappers.Request) -> wrappers.Response:
        ask = self._service.report_ahead if _AHEAD.read(request.args) else self._service.report
        return _stated(request, pb.ReportState, ask(_ID.read(request.args)))

    def _slice(self, kind: str) -> Route:
        def answer(request: wrappers.Request) -> wrappers.Response:
            found = self._service.slice(kind, _ID.read(request.args), request.args)
            if isinstance(found, Pending):
                return _json(request, to_json(_pending(SLICES[kind].message, found)))
            return _zipped(request, found)

        return answer

    def _export(self, request: wrappers.Request) -> wrappers.Response:
        format_ = _FORMAT.read(request.args)
        if format_ not in FORMATS:
            raise UsageError(f"The formats are: {', '.join(FORMATS)}.", where="format")
        try:
            found = self._service.export(_ID.read(request.args), format_, _RULE.read(request.args))
        except LimitReached as error:
            return _problem(request, 503, error)
        except UnknownTrace:
            return _problem(request, 404, _UNKNOWN)
        if isinstance(found, Pending):
            return _json(request, to_json(_pending(pb.ReportState, found)), code=503)
        # A download, of whatever type: a browser must not show HTML from here as a page of TensorBoard.
        headers = {
            "X-Content-Type-Options": "nosniff",
            "Content-Disposition": f'attachment; filename="{found.name}"',
        }
        # Streamed: http_util takes whole contents only. werkzeug closes the export after the response.
        return wrappers.Response(found, headers=headers, content_type="application/octet-stream")

    def _job(self, request: wrappers.Request) -> wrappers.Response:
        id_, ahead = _ID.read(request.args), _AHEAD.read(request.args)
        return _stated(request, pb.ReportState, self._service.job(id_, awaited=not ahead))

    def _history(self, request: wrappers.Request) -> wrappers.Response:
        return _stated(request, pb.ReportState, self._service.history(_RUN.read(request.args)))

    def _compare(self, request: wrappers.Request) -> wrappers.Response:
        found = self._service.compare(_BASE.read(request.args), _CANDIDATE.read(request.args))
        return _stated(request, pb.ReportState, found)

    def _rule(self, request: wrappers.Request) -> wrappers.Response:
        # Imported on use: the rules take 0.3 s to import, which must not delay TensorBoard's start.
        from tb_gpudiag.jobs.rules.every_rule import find_any_rule

        rule = find_any_rule(_ID.read(request.args))
        if rule is None:
            raise UsageError("No rule has this id.", where="id", remedy="`gpudiag explain` lists the rules.")
        page = {"id": rule.id, "name": rule.name, "title": rule.title, "markdown": rule.page}
        return _json(request, json.dumps(page))

    def _cancel(self, request: wrappers.Request) -> wrappers.Response:
        return _json(request, json.dumps({"cancelled": self._service.cancel(_ID.read(request.args))}))

    def _status(self, request: wrappers.Request) -> wrappers.Response:
        built = (STATIC / ENTRY_MODULE).is_file()
        notes = [] if built else [f"The tab is not built; run: {BUILD_COMMAND}"]
        status = self._service.status()
        return _json(request, json.dumps({**status, "notes": [*status["notes"], *notes]}))

    def _static(self, request: wrappers.Request) -> wrappers.Response:
        name = request.path.partition("/static/")[2]
        # Look the name up in the list of files, so that no name can lead out of the directory.
        path = _static_files().get(name)
        if path is None and name == ENTRY_MODULE:
            return _respond(request, _NOT_BUILT, "text/javascript")
        if path is None:
            return _problem(request, 404, UsageError("There is no such file."))
        expires = _YEAR_S if _HASHED.search(name) else 0
        content_type = _MIME.get(path.suffix, "application/octet-stream")
        return _respond(request, path.read_bytes(), content_type, expires=expires)


def _application(route: Route) -> Any:
    """Wrap `route` as a WSGI application that answers GET only, and errors with a Problem."""

    def answer(request: wrappers.Request) -> wrappers.Response:
        if request.method != "GET":
            error = UsageError("Only GET requests are allowed.")
            return _problem(request, 405, error, headers=[("Allow", "GET")])
        if _is_from_another_site(request):
            return _problem(request, 403, _OTHER_SITE)
        try:
            return route(request)
        except UsageError as error:
            return _problem(request, 400, error)
        except GoneTrace:
            # A state as any other: pages ask for a trace that was deleted since it was listed.
            return _json(request, to_json(_pending(pb.ReportState, Pending("failed", error=_UNKNOWN))))
        except UnknownTrace:
            return _problem(request, 404, _UNKNOWN)

    return wrappers.Request.application(answer)


def _is_from_another_site(request: wrappers.Request) -> bool:
    """Return whether a browser says that a page of another site asks.

    The page in a frame counts, not the site that shows the frame. Behind a proxy nothing here knows the host
    that the browser asked, so the browser compares. An old one does not: it sends an Origin with what another
    site asks by `fetch`, and of the tab's requests only with those for its own modules.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = None if "/static/" in request.path else request.headers.get("Origin")
    return origin is not None and origin.partition("://")[2] != request.host


def _static_files() -> dict[str, Path]:
    """Return the files below static/ by relative name, without symbolic links."""
    found = {}
    for directory, _, names in os.walk(STATIC):
        for name in names:
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                found[path.relative_to(STATIC).as_posix()] = path
    return found


def _respond(
    request: wrappers.Request, content: bytes | str, content_type: str, **more: Any
) -> wrappers.Response:
    # Pass text, never data: http_util would serialize data to JSON in slow Python.
    return http_util.Respond(request, content, content_type, **more)


def _json(request: wrappers.Request, text: str, **more: Any) -> wrappers.Response:
    return _respond(request, text.encode("utf-8", "replace"), "application/json", **more)


def _zipped(request: wrappers.Request, gzipped_json: bytes) -> wrappers.Response:
    return _respond(request, gzipped_json, "application/json", content_encoding="gzip")


def _pending(kind: Any, found: Pending) -> Any:
    """Return a message without content, which says that it is not ready, or why there is none."""
    error = problem(found.error) if found.error else None
    return kind(state=found.state, progress=found.progress, error=error)


def _stated(request: wrappers.Request, kind: Any, found: bytes | Pending) -> wrappers.Response:
    if isinstance(found, Pending):
        state = _pending(kind, found)
        state.stage = found.stage
        return _json(request, to_json(state))
    return _zipped(request, found)


def _problem(request: wrappers.Request, code: int, error: GpudiagError, **more: Any) -> wrappers.Response:
    return _json(request, to_json(problem(error)), code=code, **more)
