"""EDGE: unique names, the clock, and the steps that the processes of one driver share through files.

Spark gives the processes of one driver a local folder of this driver. One process may begin a batch and another may
abort it; the second reads in this folder which step the first began.
"""

from __future__ import annotations

import hashlib
import os
import random
import socket
import time
import uuid
from pathlib import Path

import msgspec
from semel import GroupStep

FOLDER = "SPARK_LOCAL_DIRS"


def unique_name() -> str:
    """Return a globally unique name."""
    return uuid.uuid4().hex


def random_below(below: int) -> int:
    return random.randrange(below)  # noqa: S311  # where to begin, no secret


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def owner(what: str) -> str:
    """Describe the process that begins a step, for the error message of a fenced driver."""
    folder = _folder()
    driver = "" if folder is None else f", {folder.name}"
    return f"Spark driver of {what} on {socket.gethostname()} (process {os.getpid()}{driver})"


def save_step(step: GroupStep) -> None:
    """Save the step for the other processes of this driver. Without a local folder nothing is saved."""
    path = _path(step.group)
    if path is not None:
        made = path.with_suffix(f".{os.getpid()}")
        made.write_bytes(msgspec.json.encode(step))
        made.replace(path)


def load_step(sink_id: str) -> GroupStep | None:
    """Return the last step of this sink that this driver began; None if it is not known."""
    path = _path(sink_id)
    if path is None or not path.exists():
        return None
    return msgspec.json.decode(path.read_bytes(), type=GroupStep)


def _path(sink_id: str) -> Path | None:
    folder = _folder()
    return None if folder is None else folder / f"semel-sink-{hashlib.sha256(sink_id.encode()).hexdigest()[:24]}.json"


def _folder() -> Path | None:
    given = os.environ.get(FOLDER, "").split(",")[0]
    folder = Path(given)
    return folder if given and folder.is_dir() else None
