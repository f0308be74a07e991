"""Copies recordings to a store (S3 and others) through fsspec, in a helper process."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tb_gpudiag.errors import EmptyFile, GpudiagError, Unreadable
from tb_gpudiag.service.processes.child_messages import ChildMessage
from tb_gpudiag.training.helper import HelperAnswer

if TYPE_CHECKING:
    from tb_gpudiag.service.processes.serving import Reply

# In these stores, a file appears only when it has arrived completely.
_PUT_IS_ATOMIC: Final = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "ocilake"}
)


def check_store(url: str) -> None:
    """Raise ValueError if nothing is installed that writes to this URL."""
    from fsspec.registry import known_implementations

    scheme = _scheme(url)
    if _loaded(scheme):
        return
    if scheme not in known_implementations:
        raise ValueError(f"no file system is known for {scheme}:// (see fsspec)")
    module = known_implementations[scheme]["class"].partition(".")[0]
    if importlib.util.find_spec(module) is None:
        from tb_gpudiag.trace.files.remote import how_to_install

        raise ValueError(f"{scheme}:// needs {module}, which is not installed: {how_to_install(url)}")


def _loaded(scheme: str) -> bool:
    from fsspec.registry import registry

    return scheme in registry


def lives_in_this_process(url: str) -> bool:
    """Return whether only this process can write there: to memory, or a file system that it registered."""
    from fsspec.registry import known_implementations

    return _scheme(url) == "memory" or _scheme(url) not in known_implementations


def answer(request: dict[str, Any], _reply: Reply) -> ChildMessage:
    """Do what a request to the helper process asks: see helper.py."""
    return HelperAnswer(True, do(request)).message()


def do(request: dict[str, Any]) -> str:
    """Do what the request asks with the file at `url`, and return the text of the answer. Raises
    GpudiagError: the store refuses, or does not answer, or the file cannot be read."""
    from tb_gpudiag.trace.files.source import unreadable

    url = request["url"]
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url)
        return _REQUESTS[request["kind"]](system, path, request)
    except GpudiagError:
        raise
    except FileNotFoundError as error:
        raise Unreadable("there is no such bucket or folder") from error
    except Exception as error:  # back ends raise anything
        raise unreadable(error, url) from error


def _put(system: Any, path: str, request: dict[str, Any]) -> str:
    """Copy a local file, without the credentials in it, which the text of the answer counts."""
    from tb_gpudiag.trace.credentials.scrubbed_copy import scrub_if_needed
    from tb_gpudiag.wording.credential_words import left_out

    local = request["path"]
    folder, name = os.path.split(local)
    clean = os.path.join(folder, f".clean.{name}")
    places = 0
    try:
        with contextlib.suppress(EmptyFile):
            places = scrub_if_needed(local, clean)
        _put_whole(system, path, clean if places else local)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(clean)
    return f"{name}: {left_out(places, 'The uploaded copy')}" if places else ""


def _put_whole(system: Any, path: str, local: str) -> None:
    """Copy a local file. The copy appears complete or not at all."""
    if _protocols(system) & _PUT_IS_ATOMIC:
        system.put_file(local, path)
        return
    folder, _, name = path.rpartition("/")
    draft = f"{folder}/.{name}.writing"
    system.makedirs(folder, exist_ok=True)
    try:
        system.put_file(local, draft)
        system.mv(draft, path)
    except BaseException:
        with contextlib.suppress(Exception):
            system.rm_file(draft)
        raise


def _remove(system: Any, path: str, _request: dict[str, Any]) -> str:
    with contextlib.suppress(FileNotFoundError):
        system.rm_file(path)
    return ""


def _list(system: Any, path: str, _request: dict[str, Any]) -> str:
    """Return the names in a folder, as JSON."""
    system.invalidate_cache()
    return json.dumps([name.rpartition("/")[2] for name in system.ls(path, detail=False)])


_REQUESTS: Final[dict[str, Callable[[Any, str, dict[str, Any]], str]]] = {
    "put": _put,
    "remove": _remove,
    "list": _list,
}


def _protocols(system: Any) -> set[str]:
    return {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)


def _scheme(url: str) -> str:
    return url.partition("://")[0]
