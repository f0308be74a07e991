"""TensorBoard imports this module at its start. If a loader raises, TensorBoard does not start.

So this module imports only the standard library and TensorBoard. `load` imports the plugin. If that fails,
there is one line in the log, and no tab.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from typing import Any

from tensorboard.plugins import base_plugin

# Packages that analysis processes import. Here, it is enough that they are installed: importing all of them
# would delay TensorBoard's start by a second.
NEEDED_BY_THE_ANALYSIS = ("numpy", "pyarrow", "fsspec", "platformdirs", "google.protobuf")

# TensorBoard would keep 10 tensors of a tag, or 100 with its fast data server. A record has up to 16 KB.
MOST_RECORDS_OF_A_RUN = 500

logger = logging.getLogger("tensorboard")


class Loader(base_plugin.TBLoader):  # type: ignore[misc]  # TensorBoard ships no types
    """Creates the plugin, or logs in one line why it cannot."""

    def fix_flags(self, flags: Any) -> None:
        """Keep the records of a run, unless the user says how many."""
        samples = getattr(flags, "samples_per_plugin", None)
        if isinstance(samples, dict):
            samples.setdefault("gpudiag", MOST_RECORDS_OF_A_RUN)

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin | None:
        """Return the plugin for this TensorBoard, or None if it cannot work."""
        missing = [name for name in NEEDED_BY_THE_ANALYSIS if not _can_be_found(name)]
        if missing:
            logger.warning(
                "gpudiag: no Diagnosis tab: %s cannot be imported; run: pip install %s",
                ", ".join(missing),
                " ".join(("protobuf" if name == "google.protobuf" else name) for name in missing),
            )
            return None
        try:
            plugin: base_plugin.TBPlugin = importlib.import_module("tb_gpudiag.plugin").GpudiagPlugin(context)
        except Exception as error:  # TensorBoard must start, whatever happens
            first_line = next(iter(str(error).splitlines()), "")
            logger.warning("gpudiag: no Diagnosis tab: %s: %s", type(error).__name__, first_line)
            return None
        return plugin


def _can_be_found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except Exception:  # a missing or broken parent package, or an import hook
        return False
