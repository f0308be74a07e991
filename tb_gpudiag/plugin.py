"""The TensorBoard plugin: routes, and nothing else. What they serve is in service/.

GET only, no route takes a path or an address, ids are looked up in the scanned log directory: TensorBoard
checks neither host nor origin, so any page that the user visits can send requests here.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from tb_gpudiag.errors import GpudiagError, UsageError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import to_json
from tb_gpudiag.service.roots import roots_from
from tb_gpudiag.service.service import Pending, Service, UnknownTrace, problem
from tb_gpudiag.service.settings import settings_from

PLUGIN_NAME = "gpudiag"

# A user who opens the page sees the tab at once where the directory is quick; otherwise after a reload.
FIRST_SCAN_WAIT_S = 0.2

# Wider than any screen; a slice's cost goes with it.
MOST_PIXELS = 8192
DEFAULT_PIXELS = 1024

STATIC = Path(__file__).parent / "static"
ENTRY_MODULE = "index.js"
BUILD_COMMAND = "cd frontend && npm ci && npm run build"

# Vite puts a hash of the content into the name of each file but the entry: those never change.
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

# What the tab shows in place of a frontend that was never built: without it the tab would stay blank.
_NOT_BUILT = f"""export function render() {{
  document.body.textContent =
    "The Diagnosis page of this gpudiag checkout is not built. Run, in the checkout: {BUILD_COMMAND}";
}}
"""

Route = Callable[[wrappers.Request], wrappers.Response]


class GpudiagPlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard ships no types
    """The Diagnosis tab over `context.logdir` or `context.flags.logdir_spec`."""

    plugin_name = PLUGIN_NAME

    def __init__(self, context: base_plugin.TBContext) -> None:
        logdir_spec = getattr(context.flags, "logdir_spec", None)
        self._service = Service(roots_from(context.logdir, logdir_spec), settings_from())
        self._first_question = True
        self._traces_of: tuple[int, str] = (-1, "")  # generation, JSON

    def close(self) -> None:
        """Ends what runs in the background. TensorBoard never calls it: at its exit all of that ends by
        itself."""
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
            "/report": self._report,
            "/timeline": self._timeline,
            "/memory": self._memory,
            "/gap": self._gap,
            "/cancel": self._cancel,
            "/status": self._status,
            "/static/*": self._static,
        }
        return {path: _application(route) for path, route in routes.items()}

    def _traces(self, request: wrappers.Request) -> wrappers.Response:
        # Asked every few seconds by each open page, and long where the directory is large: what the page has
        # already is not sent again. No 304: it has no Content-Type, of which TensorBoard warns each time.
        generation = self._service.generation()
        if _integer(request, "known", -1, low=-1, high=2**32 - 1) == generation:
            return _json(request, to_json(pb.TraceList(generation=generation, unchanged=True)))
        if self._traces_of[0] != generation:
            self._traces_of = (generation, to_json(self._service.traces()))
        return _json(request, self._traces_of[1])

    def _report(self, request: wrappers.Request) -> wrappers.Response:
        found = self._service.report(_text(request, "id"))
        if not isinstance(found, Pending):
            return _respond(request, found, "application/json", content_encoding="gzip")
        return _json(
            request,
            to_json(
                pb.ReportState(
                    state=found.state,
                    progress=found.progress,
                    stage=found.stage,
                    error=problem(found.error) if found.error else None,
                )
            ),
        )

    def _timeline(self, request: wrappers.Request) -> wrappers.Response:
        start_us, end_us, width = _range(request)
        found = self._service.timeline(_text(request, "id"), start_us, end_us, width)
        if isinstance(found, Pending):
            found = pb.Timeline(
                state=found.state,
                progress=found.progress,
                error=problem(found.error) if found.error else None,
            )
        return _json(request, to_json(found))

    def _memory(self, request: wrappers.Request) -> wrappers.Response:
        start_us, end_us, width = _range(request)
        device = None
        if "device" in request.args:
            device = _integer(request, "device", None, low=-1, high=2**31 - 1)
        found = self._service.memory(_text(request, "id"), device, start_us, end_us, width)
        if isinstance(found, Pending):
            found = pb.MemorySlice(
                state=found.state,
                progress=found.progress,
                error=problem(found.error) if found.error else None,
            )
        return _json(request, to_json(found))

    def _gap(self, request: wrappers.Request) -> wrappers.Response:
        device = _integer(request, "device", None, low=0, high=2**31 - 1)
        gap = _integer(request, "gap", None, low=0, high=2**32 - 1)
        found = self._service.gap(_text(request, "id"), device, gap)
        if isinstance(found, Pending):
            found = pb.GapChain(
                state=found.state, device=device, gap=gap, error=problem(found.error) if found.error else None
            )
        return _json(request, to_json(found))

    def _cancel(self, request: wrappers.Request) -> wrappers.Response:
        return _json(request, json.dumps({"cancelled": self._service.cancel(_text(request, "id"))}))

    def _status(self, request: wrappers.Request) -> wrappers.Response:
        built = (STATIC / ENTRY_MODULE).is_file()
        notes = [] if built else [f"The page is not built; run: {BUILD_COMMAND}"]
        status = self._service.status()
        return _json(request, json.dumps({**status, "notes": [*status["notes"], *notes]}))

    def _static(self, request: wrappers.Request) -> wrappers.Response:
        name = request.path.partition("/static/")[2]
        # Looked up in a list of what is there: no name can lead anywhere else.
        path = _static_files().get(name)
        if path is None and name == ENTRY_MODULE:
            return _respond(request, _NOT_BUILT, "text/javascript")
        if path is None:
            return _problem(request, 404, UsageError("There is no such file."))
        expires = _YEAR_S if _HASHED.search(name) else 0
        content_type = _MIME.get(path.suffix, "application/octet-stream")
        return _respond(request, path.read_bytes(), content_type, expires=expires)


def _application(route: Route) -> Any:
    """`route` as a WSGI application: GET only, and errors as a Problem."""

    def answer(request: wrappers.Request) -> wrappers.Response:
        if request.method != "GET":
            error = UsageError("Only GET is answered here.")
            return _problem(request, 405, error, headers=[("Allow", "GET")])
        try:
            return route(request)
        except UsageError as error:
            return _problem(request, 400, error)
        except UnknownTrace:
            return _problem(
                request,
                404,
                UsageError(
                    "The log directory has no such trace.",
                    remedy="It may have been deleted: reload the list of traces.",
                ),
            )

    return wrappers.Request.application(answer)


def _static_files() -> dict[str, Path]:
    """Name below static/ -> file. Links are left out."""
    found = {}
    for directory, _, names in os.walk(STATIC):
        for name in names:
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                found[path.relative_to(STATIC).as_posix()] = path
    return found


def _text(request: wrappers.Request, name: str) -> str:
    value = request.args.get(name)
    if not value:
        raise UsageError(f"The parameter {name} is missing.", where=name)
    return value


def _range(request: wrappers.Request) -> tuple[float | None, float | None, int]:
    """Start and end (None: of the trace), and for how many pixels."""
    start_us, end_us = _number(request, "start_us"), _number(request, "end_us")
    if start_us is not None and end_us is not None and end_us <= start_us:
        raise UsageError("end_us must be greater than start_us.", where="end_us")
    return start_us, end_us, _integer(request, "width", DEFAULT_PIXELS, low=1, high=MOST_PIXELS)


def _number(request: wrappers.Request, name: str) -> float | None:
    text = request.args.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"The parameter {name} is no number.", where=name)
    return value


def _integer(request: wrappers.Request, name: str, default: int | None, *, low: int, high: int) -> int:
    text = request.args.get(name)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"-?[0-9]{1,15}", text) or not low <= int(text) <= high:
        raise UsageError(f"The parameter {name} must be a whole number from {low} to {high}.", where=name)
    return int(text)


def _respond(
    request: wrappers.Request, content: bytes | str, content_type: str, **more: Any
) -> wrappers.Response:
    # Never given data: http_util would turn that into JSON in slow Python.
    response: wrappers.Response = http_util.Respond(request, content, content_type, **more)
    return response


def _json(request: wrappers.Request, text: str, **more: Any) -> wrappers.Response:
    return _respond(request, text.encode("utf-8", "replace"), "application/json", **more)


def _problem(request: wrappers.Request, code: int, error: GpudiagError, **more: Any) -> wrappers.Response:
    return _json(request, to_json(problem(error)), code=code, **more)
