"""A TensorBoard with the plugin, for requests as from a browser."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tensorboard.backend import application
from tensorboard.plugins import base_plugin
from werkzeug.test import Client, TestResponse

from tb_gpudiag.loader import Loader
from tests.service.helpers import eventually

BASE = "/data/plugin/gpudiag"


class Server:
    """A TensorBoard for one log directory, with a client. provider: of the data in its event files."""

    def __init__(self, provider: Any = None, **flags: Any) -> None:
        self.prefix = flags.get("path_prefix", "")
        given = {"logdir": "", "logdir_spec": "", "path_prefix": "", "samples_per_plugin": {}, **flags}
        self.plugins: list[Any] = []
        keep = self.plugins

        class Kept(Loader):
            def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin | None:
                keep.append(super().load(context))
                return keep[-1]

        app = application.TensorBoardWSGIApp(
            argparse.Namespace(**given, window_title=""), [Kept()], data_provider=provider
        )
        self.client = Client(app)

    def get(self, route: str, **more: Any) -> TestResponse:
        return self.client.get(f"{self.prefix}{BASE}/{route}", **more)

    def json(self, route: str) -> Any:
        answer = self.get(route)
        assert answer.status_code == 200, answer.get_data(as_text=True)
        return json.loads(answer.data)

    def ready(self, route: str) -> Any:
        """Return the response once the analysis is done."""

        def ask() -> Any:
            found = self.json(route)
            assert found["state"] != "failed", found
            return found if found["state"] == "ready" else None

        return eventually(ask)

    def only_id(self) -> str:
        (trace,) = eventually(lambda: self.json("traces")["traces"])
        return str(trace["id"])
