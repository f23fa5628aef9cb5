"""A broker that measures the turns of its event loop and its garbage collections: `python -m tools.bench.timed_broker`.

It is `semel serve` on asyncio's own loop, because uvloop tells the length of its turns to no program. A turn is
measured as CPU time of the loop's thread, so that other programs on the machine do not count. Each connection to the
Unix socket in the variable SOCKET gets what was measured since the last one, as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from semel_broker import __main__ as program
from support.processes import BrokerProcess

SOCKET = "SEMEL_BENCH_TURNS_SOCKET"
WHERE = "SEMEL_BENCH_TURNS_WHERE"
FULL = 2
"""The generation of a full garbage collection."""
LOOK_S = 0.002
LINES = 3
TIMEOUT_S = 120


class TurnTimes(msgspec.Struct):
    """The measurements. Times are in milliseconds; `turn_ms`: of the longest turn, `where`: its lines."""

    turn_ms: float = 0.0
    where: list[str] = []
    collections: int = 0
    collection_ms: float = 0.0


class TimedLoop(asyncio.SelectorEventLoop):
    """Measures each turn. `has_lines`: a thread looks which lines of semel a turn works on."""

    def __init__(self, *, has_lines: bool) -> None:
        super().__init__()
        self.measured = TurnTimes()
        self._seen: Counter[str] = Counter()
        self._collection_began_s = 0.0
        gc.callbacks.append(self._note_collection)
        if has_lines:
            sys.setswitchinterval(LOOK_S / 2)
            threading.Thread(target=self._look, args=(threading.get_ident(),), daemon=True).start()

    def _run_once(self) -> None:
        began_s = time.thread_time()
        self._seen.clear()
        super()._run_once()  # type: ignore[misc]  # typeshed leaves it out
        turn_ms = (time.thread_time() - began_s) * 1000
        if turn_ms > self.measured.turn_ms:
            self.measured.turn_ms = turn_ms
            self.measured.where = [f"{count} {line}" for line, count in self._seen.most_common(LINES)]

    def _note_collection(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] < FULL:
            return
        now_s = time.thread_time()
        if phase == "start":
            self._collection_began_s = now_s
            return
        self.measured.collections += 1
        self.measured.collection_ms = max(self.measured.collection_ms, (now_s - self._collection_began_s) * 1000)

    def _look(self, thread_id: int) -> None:
        while True:
            time.sleep(LOOK_S)
            self._seen[line_of(sys._current_frames().get(thread_id))] += 1

    async def serve(self) -> None:
        """Answer on the socket."""
        await asyncio.start_unix_server(self._report, os.environ[SOCKET])

    def _report(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        measured, self.measured = self.measured, TurnTimes()
        writer.write(msgspec.json.encode(measured))
        writer.close()


def line_of(frame: FrameType | None) -> str:
    """The innermost lines of semel on the stack."""
    lines: list[str] = []
    while frame is not None and len(lines) < LINES:
        path = frame.f_code.co_filename
        if "semel_" in path:
            lines.append(f"{path.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(lines)


class TimedBroker(BrokerProcess):
    """A process of it; its data directory lies in a directory of its own. `has_lines`: see `TimedLoop`."""

    module = "tools.bench.timed_broker"
    has_lines = False

    def start(self, timeout_s: float = 20) -> TimedBroker:
        self._path.unlink(missing_ok=True)
        os.environ[SOCKET], os.environ[WHERE] = str(self._path), "1" if self.has_lines else ""
        super().start(timeout_s)
        return self

    @property
    def _path(self) -> Path:
        return self.data_dir.parent / "turns"

    def turns(self) -> TurnTimes:
        """The measurements since the last call."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(str(self._path))
            return msgspec.json.decode(b"".join(iter(lambda: connection.recv(65536), b"")), type=TurnTimes)


def _loop() -> asyncio.AbstractEventLoop:
    loop = TimedLoop(has_lines=bool(os.environ[WHERE]))
    serving = loop.create_task(loop.serve())
    serving.add_done_callback(lambda done: done.result())
    return loop


if __name__ == "__main__":
    program._loop_factory = lambda: _loop
    program.serve()
