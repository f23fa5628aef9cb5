"""EDGE: PBKDF2 in threads: a few at a time, so that logins leave processors to the other requests."""

from __future__ import annotations

import os
import sys
from asyncio import get_running_loop
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from semel_protocol.scram import ScramMechanism, salted_password

THREADS: Final = 2
NICENESS: Final = 10


def _yield_to_others() -> None:
    """Lower the priority of this thread, so that a storm of logins does not take the processors from the event loop.

    Only Linux has a priority for each thread; elsewhere `nice` is for the process.
    """
    if sys.platform == "linux":
        os.nice(NICENESS)


class PasswordHashing:
    """One per process. hashlib releases the lock of the interpreter meanwhile.

    The waiting calls are bounded by the connections: each has one, and cancels it when it is closed.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="semel-passwords", initializer=_yield_to_others)

    async def stretch(self, mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
        """SCRAM's SaltedPassword."""
        return await get_running_loop().run_in_executor(
            self._threads, salted_password, mechanism, password, salt, iterations
        )
