"""EDGE: a pipeline's file on the disk: TOML, or Python that defines `pipeline`."""

from __future__ import annotations

import importlib.util
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pyspark_semel.pipeline.definition import Definition, DefinitionError, check, parse


def load(path: Path, environment: Mapping[str, str] | None = None) -> Definition:
    """The definition in a .toml file, or the `pipeline` of a .py file. Raises DefinitionError.

    Python functions may be in modules beside the file.
    """
    environment = os.environ if environment is None else environment
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        sys.path.insert(0, beside)
    if path.suffix == ".py":
        return _of_python(path)
    if path.suffix != ".toml":
        raise DefinitionError([f"{path}: name a .toml or a .py file"])
    try:
        return parse(tomllib.loads(path.read_text()), environment)
    except tomllib.TOMLDecodeError as e:
        raise DefinitionError([f"{path}: no TOML: {e}"]) from e


def _of_python(path: Path) -> Definition:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # what the file defines is pickled by the name of its module
    spec.loader.exec_module(module)
    found = getattr(module, "pipeline", None)
    if not isinstance(found, Definition):
        raise DefinitionError([f"{path}: define pipeline = Definition(...), of pyspark_semel.pipeline"])
    check(found)
    return found
