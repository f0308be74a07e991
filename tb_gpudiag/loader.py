"""What TensorBoard imports at start: nothing here may fail, for a loader that raises stops TensorBoard
itself.

So this module needs the standard library and TensorBoard alone. The plugin is imported inside `load`, and
what keeps it from working becomes one line of the log, and no tab.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging

from tensorboard.plugins import base_plugin

# What the analysis processes import. They are only looked for here: importing them all would cost
# TensorBoard's start a second, and this process needs only some of them.
NEEDED_BY_THE_ANALYSIS = ("numpy", "duckdb", "pyarrow", "fsspec", "platformdirs", "google.protobuf")

logger = logging.getLogger("tensorboard")


class Loader(base_plugin.TBLoader):  # type: ignore[misc]  # TensorBoard ships no types
    """Makes the plugin, or says in one line why there is none."""

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin | None:
        """The plugin for this TensorBoard, or None where it cannot work."""
        missing = [name for name in NEEDED_BY_THE_ANALYSIS if not _can_be_found(name)]
        if missing:
            logger.warning(
                "gpudiag: no Diagnosis tab, because %s cannot be imported; run: pip install %s",
                ", ".join(missing),
                " ".join(_distribution(name) for name in missing),
            )
            return None
        try:
            plugin: base_plugin.TBPlugin = importlib.import_module("tb_gpudiag.plugin").GpudiagPlugin(context)
        except Exception as error:  # whatever it is, TensorBoard has to start
            first_line = next(iter(str(error).splitlines()), "")
            logger.warning("gpudiag: no Diagnosis tab: %s: %s", type(error).__name__, first_line)
            return None
        return plugin


def _can_be_found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except Exception:  # a parent package that is missing or broken, or an import hook that refuses
        return False


def _distribution(module: str) -> str:
    return "protobuf" if module == "google.protobuf" else module
