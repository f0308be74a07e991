"""A bucket on an S3 server on this machine, behind a proxy that fails on command."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from tests.s3.proxy import Proxy, proxy_to

KEY_ID = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@dataclass
class Store:
    """client: boto3's, past the proxy."""

    bucket: str
    proxy: Proxy
    client: Any
    environment: dict[str, str]

    def url(self, path: str = "") -> str:
        return f"s3://{self.bucket}/{path}".rstrip("/")

    def put(self, path: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=path, Body=content)

    def get(self, path: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.bucket, Key=path)["Body"].read())

    def remove(self, path: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=path)

    def names(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return sorted(one["Key"] for one in found)


def is_installed() -> bool:
    """Return whether there is an S3 server to test with, and what reads from one."""
    return all(find_spec(name) is not None for name in ("moto", "flask", "flask_cors", "s3fs"))


@contextmanager
def running_server() -> Iterator[int]:
    """Start a real S3 server, moto's, in this process, and stop it at the end. Return its port."""
    from moto.server import ThreadedMotoServer

    requests = logging.getLogger("werkzeug")
    level = requests.level
    requests.setLevel(logging.WARNING)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield int(server.get_host_and_port()[1])
    finally:
        server.stop()
        requests.setLevel(level)


@contextmanager
def store_at(port: int, bucket: str) -> Iterator[Store]:
    """Make a bucket, and a proxy that is closed at the end."""
    client = _client(port)
    client.create_bucket(Bucket=bucket)
    with proxy_to(port) as proxy:
        yield Store(bucket, proxy, client, environment_of(proxy.address))


@cache
def _client(port: int) -> Any:
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )


def environment_of(address: str) -> dict[str, str]:
    """What S3 clients read. The configuration of the machine is left out."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
        "no_proxy": "127.0.0.1",
    }
