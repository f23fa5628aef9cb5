"""EDGE: `semel serve` that counts its tasks and objects: a connection to SEMEL_SOAK_SOCKET gets a JSON object.

With SEMEL_SOAK_FRAMES, tracemalloc keeps that many frames of each allocation; the JSON object has the largest ones.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import threading
import tracemalloc
from collections import Counter
from typing import Any

from semel_broker.__main__ import serve

SOCKET = "SEMEL_SOAK_SOCKET"
FRAMES = "SEMEL_SOAK_FRAMES"
MOST = 60


def inspect() -> dict[str, Any]:
    """`tasks`: those not done. `objects`: containers by type. `allocations`: (bytes, count, place), largest first."""
    objects = gc.get_objects()
    kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in objects)
    tasks = sum(isinstance(each, asyncio.Task) and not each.done() for each in objects)
    del objects
    found: dict[str, Any] = {"tasks": tasks, "objects": dict(kinds.most_common(MOST))}
    if tracemalloc.is_tracing():
        statistics = tracemalloc.take_snapshot().statistics("traceback")
        found["allocations"] = [
            (each.size, each.count, " < ".join(str(frame) for frame in reversed(each.traceback)))
            for each in statistics[:MOST]
        ]
    return found


def answer(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(json.dumps(inspect()).encode())


if __name__ == "__main__":
    if os.environ.get(FRAMES):
        tracemalloc.start(int(os.environ[FRAMES]))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.environ[SOCKET])
    listener.listen()
    threading.Thread(target=answer, args=(listener,), daemon=True).start()
    serve()
