"""EDGE: prints the reason for the end of a process to standard error, and never hangs there.

Standard error may be a pipe or a terminal that is not read, or a file on the disk that has failed. A thread prints, and
the process waits for it only for a bounded time. The bytes go past Python's buffer: a thread that hangs in the buffer
holds its lock, and Python waits for that lock when it ends.
"""

import contextlib
import os
import sys
import threading
from typing import Final

WAIT_S: Final = 2.0


def print_last(text: str, wait_s: float = WAIT_S) -> None:
    """Print a line to standard error; wait at most `wait_s` seconds for it. An error there is ignored."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # none, or closed, or a stream without a descriptor
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(f"{text}\n")
        return
    data = f"{text}\n".encode(errors="backslashreplace")
    printing = threading.Thread(target=_write, args=(descriptor, data), name="semel-last-words", daemon=True)
    with contextlib.suppress(RuntimeError):  # the limit of threads is reached: nothing can be printed
        printing.start()
        printing.join(wait_s)


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]
