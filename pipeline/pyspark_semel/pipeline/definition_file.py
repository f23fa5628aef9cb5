"""EDGE: a pipeline's file on the disk: TOML, or Python that defines `pipeline`."""

from __future__ import annotations

import importlib.util
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pyspark import cloudpickle

from pyspark_semel.pipeline.definition import Definition, DefinitionError, check, parse


def load(path: Path, environment: Mapping[str, str] | None = None) -> Definition:
    """The definition in a .toml file, or the `pipeline` of a .py file. Raises DefinitionError.

    Python functions may be in modules beside the file, for Spark's workers on this machine too.
    """
    environment = os.environ if environment is None else environment
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        sys.path.append(beside)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (beside, os.environ.get("PYTHONPATH"))))
    if path.suffix == ".py":
        return _of_python(path)
    if path.suffix != ".toml":
        raise DefinitionError([f"{path}: name a .toml or a .py file"])
    try:
        return parse(tomllib.loads(path.read_text()), environment)
    except tomllib.TOMLDecodeError as e:
        raise DefinitionError([f"{path}: no TOML: {e}"]) from e


def _of_python(path: Path) -> Definition:
    name = f"semel_pipeline_{path.stem}"  # not the bare one: that may be somebody else's
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call,unused-ignore]  # not in workers
    found = getattr(module, "pipeline", None)
    if not isinstance(found, Definition):
        raise DefinitionError([f"{path}: define pipeline = Definition(...), of pyspark_semel.pipeline"])
    check(found)
    return found
