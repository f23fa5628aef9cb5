"""Holds the disk calls of one process: a library that is loaded before the C library (`held_disk.c`, Linux only).

    held = HeldDisk(directory)
    broker.prefix = held.prefix
    held.set(ms=300)
    held.set(hangs=True)
    held.set(error=errno.EIO, failures=1)

The library is built by the C compiler of this machine. `why_not()` returns what is missing.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_suffix(".c")
FSYNC, FDATASYNC, SYNCFS, FTRUNCATE, UNLINK, RENAME = (1 << bit for bit in range(6))
SYNCS = FSYNC | FDATASYNC | SYNCFS
ALL = SYNCS | FTRUNCATE | UNLINK | RENAME
LAYOUT = struct.Struct("=8i")
SETTINGS = struct.Struct("=5i")
FOR_EVER = -1


@cache
def why_not() -> str | None:
    """None if the library can be built and loaded here, otherwise the reason for a skip."""
    if sys.platform != "linux":
        return "a library is loaded before the C library on Linux only"
    return None if shutil.which("cc") is not None else "there is no C compiler (cc)"


def build(source: Path, directory: Path) -> Path:
    """Compile a library into `directory`. Raises RuntimeError with the compiler's output."""
    library = directory / f"{source.stem}.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(source), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"cannot compile {source.name}: {done.stderr.strip()}")
    return library


class Counts(NamedTuple):
    """`held`: the calls that wait now.

    `made`: the calls so far. `made_main`: those on the first thread of the process.
    """

    held: int
    made: int
    made_main: int


class HeldDisk:
    """`prefix` before a command runs the command with held disk calls.

    One `HeldDisk` serves one process, which starts after it was made.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        library, page = build(SOURCE, directory), directory / "held_disk"
        page.write_bytes(bytes(mmap.PAGESIZE))
        with page.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.prefix = ("env", f"LD_PRELOAD={library}", f"HELD_DISK={page}")
        self.set()

    def set(self, *, calls: int = SYNCS, ms: int = 0, hangs: bool = False, error: int = 0, failures: int = 0) -> None:
        """From now on `calls` take `ms` longer, hang until the next `set`, or fail `failures` times (`FOR_EVER`)
        with `error`.

        A call that already waits for its `ms` keeps that time.
        """
        SETTINGS.pack_into(self._page, 0, calls, ms, int(hangs), error, failures)

    @property
    def counts(self) -> Counts:
        """The counts of the calls in `calls`."""
        return Counts(*LAYOUT.unpack_from(self._page)[5:])

    def close(self) -> None:
        """Let all calls through, and release the shared page."""
        self.set()
        self._page.close()
