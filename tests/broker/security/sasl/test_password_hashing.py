"""PBKDF2 takes milliseconds and runs in threads, so the event loop does not wait for it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import pytest
from semel_broker.security.sasl import password_hashing
from semel_broker.security.sasl.password_hashing import NICENESS, THREADS, PasswordHashing
from semel_protocol.scram import ScramMechanism


@pytest.mark.proves("scram")
@pytest.mark.real_time
async def test_passwords_are_hashed_in_a_few_threads_and_not_in_that_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All threads are inside the function at once while the loop continues."""
    inside = threading.Barrier(THREADS)
    found: set[int] = set()

    def salted(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
        found.add(threading.get_ident())
        inside.wait(timeout=30)
        return password

    monkeypatch.setattr(password_hashing, "salted_password", salted)
    hashing = PasswordHashing()
    calls = [hashing.stretch(ScramMechanism.SCRAM_SHA_256, b"%d" % i, b"salt", 4096) for i in range(THREADS * 4)]
    assert await asyncio.gather(*calls) == [b"%d" % i for i in range(THREADS * 4)]
    assert len(found) == THREADS
    assert threading.get_ident() not in found


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
@pytest.mark.real_time
async def test_the_threads_of_passwords_stand_behind_that_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def priority(*_: object) -> bytes:
        return str(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())).encode()

    own = int(priority())
    monkeypatch.setattr(password_hashing, "salted_password", priority)
    hashed = await PasswordHashing().stretch(ScramMechanism.SCRAM_SHA_256, b"p", b"salt", 4096)
    assert int(hashed) == min(own + NICENESS, 19)
    assert int(priority()) == own
