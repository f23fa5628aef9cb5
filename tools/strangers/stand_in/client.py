"""EDGE: the packages and the environment of a program that gets semel's client when it imports aiokafka."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def packages() -> list[str]:
    """Return the packages that semel's client needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: list[str] = project["dependencies"]
    return found


def variables(*folders: Path) -> dict[str, str]:
    """Return the environment: the client of this repository, installed as aiokafka when Python starts."""
    path = [ROOT / "client", ROOT / "protocol", Path(__file__).parent, *folders]
    return {"PYTHONPATH": os.pathsep.join(map(str, path))}
