"""A TensorBoard plugin that answers what pages ask with ready bytes: the least that any plugin costs.

The load benchmark installs it next to gpudiag. Its answers are files in the directory FLOOR_DIRECTORY, one by
name of the route, as gzipped JSON.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

FLOOR_DIRECTORY = "FLOOR_DIRECTORY"
NAME = "floor"
ROUTES = ("traces", "report", "timeline")


class FloorPlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard ships no types
    """Routes with the names of gpudiag's."""

    plugin_name = NAME

    def is_active(self) -> bool:
        return False

    def get_plugin_apps(self) -> Mapping[str, Any]:
        return {f"/{route}": _application(route) for route in ROUTES}


def _application(route: str) -> Any:
    def answer(request: wrappers.Request) -> wrappers.Response:
        response: wrappers.Response = http_util.Respond(
            request, _content(route), "application/json", content_encoding="gzip"
        )
        return response

    return wrappers.Request.application(answer)


@functools.cache
def _content(route: str) -> bytes:
    return Path(os.environ[FLOOR_DIRECTORY], route).read_bytes()
