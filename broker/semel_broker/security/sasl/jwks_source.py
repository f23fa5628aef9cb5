"""EDGE: reads the JWKS of an issuer of tokens, from a file or from the one https URL of the settings.

The URL comes from the settings of the broker alone: nothing in a token, and no answer of a server, can name another.
Redirects are not followed, proxies of the environment are not used, and the answer has a bound in bytes and in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from semel_broker.world import JWKS_BYTES_MAX, JwksError

TIMEOUT_S: Final = 5.0
"""For the connection, and for each read."""
WHOLE_TIMEOUT_S: Final = 10.0
GIVE_UP_S: Final = 20.0
"""What has no time-out of its own may hang: a disk, a name service."""
THREADS_MAX: Final = 4
"""The threads that may hang with one location."""
CHUNK_BYTES: Final = 65_536

_threads: Final[Counter[str]] = Counter()
"""Threads that read, by location."""


async def read_jwks(location: str, ca_file: str) -> bytes:
    """The text of a JWKS. `location`: a path, or an https URL. `ca_file`: the CAs to trust; "": those of the system.

    It is read in a thread. Raises JwksError, also after `GIVE_UP_S`.
    """
    if _threads[location] >= THREADS_MAX:
        raise JwksError(f"{location} cannot be read: {THREADS_MAX} earlier attempts hang")
    is_url = location.startswith("https://")
    read = partial(_fetched, location, ca_file) if is_url else partial(_read, Path(location))
    reading = _in_thread(location, read)
    await asyncio.wait((reading,), timeout=GIVE_UP_S)
    if not reading.done():
        hangs = "the name service" if is_url else "its disk"
        raise JwksError(f"{location} was not read within {GIVE_UP_S:.0f} s: {hangs} may hang")
    return reading.result()


def _in_thread(location: str, read: Callable[[], bytes]) -> asyncio.Future[bytes]:
    """Read in a thread of its own. If it hangs, neither other users of threads nor the end of the process wait for it,
    as they would for a thread of the event loop's pool.
    """
    _threads[location] += 1
    loop = asyncio.get_running_loop()
    reading: asyncio.Future[bytes] = loop.create_future()

    def report(text: bytes, error: BaseException | None) -> None:
        if reading.done():
            return
        if error is None:
            reading.set_result(text)
        else:
            reading.set_exception(error)

    def run() -> None:
        text, failure = b"", None
        try:
            text = read()
        except BaseException as error:  # raised again by `reading`
            failure = error
        _threads[location] -= 1
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
            loop.call_soon_threadsafe(report, text, failure)

    threading.Thread(target=run, name="semel-jwks", daemon=True).start()
    return reading


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(JWKS_BYTES_MAX + 1)
    except OSError as error:
        raise JwksError(f"{path} cannot be read: {error.strerror}") from None


def _fetched(url: str, ca_file: str) -> bytes:
    parts = urlsplit(url)
    assert parts.hostname is not None, "checked with the settings"
    until = time.monotonic() + WHOLE_TIMEOUT_S
    connection = None
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        connection = http.client.HTTPSConnection(parts.hostname, parts.port or 443, timeout=TIMEOUT_S, context=context)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            why = "; redirects are not followed" if 300 <= answer.status < 400 else ""
            raise JwksError(f"{url} answered with status {answer.status}{why}")
        text = b""
        while chunk := answer.read1(CHUNK_BYTES):
            text += chunk
            if len(text) > JWKS_BYTES_MAX:
                raise JwksError(f"the answer of {url} is larger than {JWKS_BYTES_MAX} bytes")
            if time.monotonic() > until:
                raise JwksError(f"{url} did not answer within {WHOLE_TIMEOUT_S:.0f} s")
        return text
    except (OSError, http.client.HTTPException) as error:
        raise JwksError(f"{url} cannot be read: {type(error).__name__}: {error}") from None
    finally:
        if connection is not None:
            connection.close()
