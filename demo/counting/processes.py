"""The counter processes of the demo, which report their offsets on standard output."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from demo.processes import end


class Counter:
    """One `demo.counting.counter` process; `reached` has the counted offset of each of its partitions."""

    def __init__(self, bootstrap: str, group: str, directory: Path) -> None:
        self._command = ["--bootstrap", bootstrap, "--group", group, "--directory", str(directory)]
        self.reached: dict[int, int] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def failed(self) -> bool:
        return self._process is not None and self._process.returncode not in (None, 0)

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "demo.counting.counter", *self._command, stdout=asyncio.subprocess.PIPE
        )
        self._reader = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.reached = {int(partition): offset for partition, offset in json.loads(line).items()}

    async def stop(self) -> None:
        if self._process is None:
            return
        await end(self._process)
        if self._reader is not None:
            await self._reader
        if self._process.returncode != 0:
            raise RuntimeError(f"a counter ended with exit status {self._process.returncode}")
