from __future__ import annotations

import itertools
from collections.abc import Iterator

import fsspec
import pytest

from tests.s3.server import Store, store_at

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server_port() -> Iterator[int]:
    """Port of a real S3 server, moto's, that ends with the tests."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield int(server.get_host_and_port()[1])
    server.stop()


@pytest.fixture
def store(server_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A bucket of its own behind a proxy that can fail. This process and its children find it."""
    with store_at(server_port, f"bucket-{next(_NUMBERS)}") as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield made
        fsspec.get_filesystem_class("s3").clear_instance_cache()
