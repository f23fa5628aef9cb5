"""A broker process whose disk calls are held, with a bystander beside it, and outputs that can be left unread."""

from __future__ import annotations

import array
import asyncio
import fcntl
import json
import os
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.processes import BrokerProcess

from faults.held_disk import HeldDisk
from faults.slow_disk.bystander import Bystander, Wait

F_SETPIPE_SZ = 1031
PIPE_BYTES = 4096
START_S = 300.0


class HeldBroker:
    """`process`: the broker. `held`: its disk calls."""

    def __init__(self, directory: Path, **settings: str) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._audit = directory / "audit"
        os.mkfifo(self._audit)
        self._reader = os.open(self._audit, os.O_RDWR | os.O_NONBLOCK)
        self.held = HeldDisk(directory / "held")
        own = {"audit.log.file": str(self._audit), "metrics.listener": ""}
        self.process = BrokerProcess(directory / "data", **settings, **own)
        self.process.prefix = self.held.prefix
        self._seen_lines = 0
        self.listened_s = 0.0
        """The duration of the last start."""
        self._bystander: Bystander | None = None
        self._reads_audit: asyncio.Task[None] | None = None

    async def up(self) -> None:
        """Start the broker and a bystander. Returns when the bystander is answered."""
        self.read()
        began = time.monotonic()
        await asyncio.to_thread(self.process.start, START_S)
        self.listened_s = time.monotonic() - began
        self._bystander = Bystander(self.process.port, self.process.pid, self._directory / "waits")
        await self._bystander.ready()

    async def stop(self) -> float:
        """Send SIGTERM; return the seconds until the process has ended.

        Raises RuntimeError for another status than 0.
        """
        began = time.monotonic()
        if status := await asyncio.to_thread(self.process.stop, START_S):
            raise RuntimeError(f"the broker ended with status {status}:\n" + "\n".join(self.process.log[-10:]))
        return time.monotonic() - began

    def stalls(self) -> list[str]:
        """The causes that held the loop for 100 ms and more, by the broker's log since the last call of this
        function.
        """
        lines, self._seen_lines = self.process.log[self._seen_lines :], len(self.process.log)
        found = [json.loads(line) for line in lines if '"event":"event_loop_stalled"' in line]
        return [f"{each['stalled_ms']} ms: {each.get('api')}, {each.get('where')}" for each in found]

    def kill(self) -> None:
        self.process.kill()

    async def waits(self, since_ns: int) -> list[Wait]:
        """The waits of the bystander since the last start."""
        assert self._bystander is not None
        return await self._bystander.waits(since_ns)

    def read(self) -> None:
        """Read the output and the audit log from now on."""
        self.process.is_read.set()
        if self._reads_audit is None:
            self._reads_audit = asyncio.create_task(self._read_audit())

    async def _read_audit(self) -> None:
        while True:
            try:
                while os.read(self._reader, PIPE_BYTES):
                    pass
            except BlockingIOError:
                await asyncio.sleep(0.01)

    def leave_unread(self) -> None:
        """Read neither the output nor the audit log; make their pipes as small as possible."""
        assert self._reads_audit is not None
        self._reads_audit.cancel()
        self._reads_audit = None
        self.process.is_read.clear()
        with self._output() as output:
            for pipe in (output, self._reader):
                fcntl.fcntl(pipe, F_SETPIPE_SZ, PIPE_BYTES)

    def unread_bytes(self) -> tuple[int, int]:
        """The unread bytes in the pipes of the output and of the audit log."""
        with self._output() as output:
            return held_bytes(output), held_bytes(self._reader)

    @contextmanager
    def _output(self) -> Iterator[int]:
        """A descriptor of the pipe that the broker prints to."""
        output = os.open(f"/proc/{self.process.pid}/fd/1", os.O_RDONLY | os.O_NONBLOCK)
        try:
            yield output
        finally:
            os.close(output)

    async def end(self) -> None:
        """Kill all processes."""
        self.held.set()
        self.process.is_read.set()
        self.process.kill()
        if self._bystander is not None:
            self._bystander.end()
        if self._reads_audit is not None:
            self._reads_audit.cancel()
            await asyncio.wait([self._reads_audit])
        os.close(self._reader)
        self.held.close()


def held_bytes(pipe: int) -> int:
    """The bytes that a pipe holds."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]
