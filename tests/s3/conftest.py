from __future__ import annotations

import itertools
from collections.abc import Iterator

import fsspec
import pytest

from tests.s3.server import Store, is_installed, running_server, store_at

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server_port() -> Iterator[int]:
    """Port of an S3 server that ends with the tests."""
    if not is_installed():
        pytest.skip("moto and s3fs are not installed")
    with running_server() as port:
        yield port


@pytest.fixture
def store(server_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A bucket of its own behind a proxy that can fail. This process and its children find it."""
    with store_at(server_port, f"bucket-{next(_NUMBERS)}") as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield made
        fsspec.get_filesystem_class("s3").clear_instance_cache()
