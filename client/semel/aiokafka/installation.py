"""Puts `semel.aiokafka` in place of aiokafka: libraries that import aiokafka get semel's client."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import ModuleType

OURS, THEIRS = "semel.aiokafka", "aiokafka"


def install() -> None:
    """From now on `import aiokafka` and its submodules give `semel.aiokafka`, in this process.

    Call it before the first import of a library that imports aiokafka. Calling it again has no effect. A submodule that
    semel does not have raises ModuleNotFoundError when it is imported. Raises RuntimeError if aiokafka itself was
    imported already: some code would use it, and some semel.
    """
    package = importlib.import_module(OURS)
    loaded = sys.modules.get(THEIRS)
    if loaded is not None and loaded is not package:
        raise RuntimeError(
            "aiokafka is imported already: call semel.aiokafka.install() before the first import of aiokafka, "
            "and of libraries that import it"
        )
    sys.modules[THEIRS] = package
    for name in _submodules(package):
        sys.modules[THEIRS + name.removeprefix(OURS)] = importlib.import_module(name)


def _submodules(package: ModuleType) -> list[str]:
    return [module.name for module in pkgutil.walk_packages(package.__path__, f"{OURS}.")]
