"""EDGE: loads the file of a pipeline: TOML, or Python that defines `pipeline`."""

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
    """Load the definition of a .toml file, or the `pipeline` of a .py file. Raises DefinitionError.

    Python functions may be in modules beside the file; Spark's workers on this machine find them too.
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
        raise DefinitionError([f"{path}: invalid TOML: {e}"]) from e


def _of_python(path: Path) -> Definition:
    name = f"semel_pipeline_{path.stem}"  # the bare stem could be the name of another module
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
