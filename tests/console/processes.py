"""A `semel console` in a process of its own, on a free port."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

LIMIT_S = 30


@dataclass
class Console:
    """base: the address of the page, with a slash at its end."""

    process: Process
    base: str
    token: str


@asynccontextmanager
async def running_console(address: str, *options: str) -> AsyncIterator[Console]:
    """Wait for its first line. The process is ended at the end."""
    command = ("-m", "semel", "console", "-b", address, "--port", "0", *options)
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=PIPE)
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), LIMIT_S)).decode()
        assert line.startswith("Open http://127.0.0.1:"), line
        base, _, token = line.removeprefix("Open ").strip().partition("#token=")
        yield Console(process, base, token)
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), LIMIT_S)
