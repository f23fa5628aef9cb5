"""EDGE: names that nobody else has, the clock, and what the processes of one driver know together.

Spark lets each process of a driver know a folder that is this driver's alone. What begins a batch and what aborts it
may be two processes; the second one reads there which step the first one began.
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


def fresh_name() -> str:
    """One that nobody else has, or ever had."""
    return uuid.uuid4().hex


def any_number(below: int) -> int:
    return random.randrange(below)  # noqa: S311  # where to begin, no secret


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def owner(what: str) -> str:
    """Who begins a step, in words: what others are told whose step it ends."""
    folder = _folder()
    driver = "" if folder is None else f", {folder.name}"
    return f"Spark driver of {what} on {socket.gethostname()} (process {os.getpid()}{driver})"


def remember(step: GroupStep) -> None:
    """For the other processes of this driver. Without a folder of its own nothing is remembered."""
    path = _path(step.group)
    if path is not None:
        made = path.with_suffix(f".{os.getpid()}")
        made.write_bytes(msgspec.json.encode(step))
        made.replace(path)


def recall(sink_id: str) -> GroupStep | None:
    """The step of this sink that this driver began last; None if it is not known."""
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
