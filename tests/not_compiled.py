"""Modules that are compiled where there is a compiler, as they are without one."""

from __future__ import annotations

import importlib.util
from importlib.machinery import SourceFileLoader
from types import ModuleType

from tests.conftest import REPOSITORY


def not_compiled(name: str) -> ModuleType:
    """Load a module of the package from its source, even if it was compiled."""
    loader = SourceFileLoader(f"plain.{name}", str(REPOSITORY.joinpath(*name.split(".")).with_suffix(".py")))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
