"""TensorBoard's two data servers, with the samples of a tag that the plugin's loader asks for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.data import server_ingester
from tensorboard.util import grpc_util

from tb_gpudiag.loader import Loader


def samples() -> dict[str, int]:
    """Return the flag `--samples_per_plugin` as the loader leaves it."""
    flags = argparse.Namespace(samples_per_plugin={})
    Loader().fix_flags(flags)
    found: dict[str, int] = flags.samples_per_plugin
    return found


def slow_provider(log: Path) -> Any:
    """Return the data provider of `--load_fast=false`, which has read the directory once."""
    multiplexer = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance=samples())
    multiplexer.AddRunsFromDirectory(str(log))
    multiplexer.Reload()
    return data_provider.MultiplexerDataProvider(multiplexer, str(log))


def fast_provider(log: Path) -> Any:
    """Start the fast data server, if it is installed, and return its data provider."""
    try:
        binary = server_ingester.get_server_binary()
    except server_ingester.NoDataServerError as error:
        pytest.skip(str(error))
    ingester = server_ingester.SubprocessServerDataIngester(
        binary,
        str(log),
        reload_interval=1,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL,
        samples_per_plugin=samples(),
    )
    ingester.start()
    return ingester.data_provider


PROVIDERS = pytest.mark.parametrize("provider", [slow_provider, fast_provider])
