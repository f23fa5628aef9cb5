"""PURE: the reason why a connection could not be opened, in the words of errno and without those of asyncio."""

from __future__ import annotations

import errno
import re

_TEXT_OF = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset by the peer",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "the network is unreachable",
    errno.ETIMEDOUT: "connection timed out",
}
_CALL_FAILED = re.compile(r"(?:\[Errno (?P<number>\d+)\] )?Connect call failed \('(?P<address>[^']+)',[^)]*\)")
"""The text of asyncio: once for each address of a host."""


def failure_of(error: OSError, host: str) -> str:
    """`connection refused (ECONNREFUSED)`. Addresses that `host` was resolved to are named: `… at ::1`."""
    if type(error).__name__ == "gaierror":  # of the module socket, which only edges import
        return f"the name {host!r} cannot be resolved ({error.strerror or error})"

    def shown(found: re.Match[str]) -> str:
        number = int(found["number"]) if found["number"] else error.errno
        at = "" if found["address"] == host else f" at {found['address']}"
        return f"{_text(number)}{at}"

    text = str(error)
    if _CALL_FAILED.search(text):
        return _CALL_FAILED.sub(shown, text).removeprefix("Multiple exceptions: ")
    number = _number(error)
    if number in _TEXT_OF:
        return _text(number)
    return text or type(error).__name__


def _number(error: OSError) -> int | None:
    """uvloop and TLS raise some errors without a number."""
    if isinstance(error, ConnectionRefusedError):
        return errno.ECONNREFUSED
    return errno.ECONNRESET if isinstance(error, ConnectionResetError) else error.errno


def _text(number: int | None) -> str:
    name = errno.errorcode.get(number or 0, f"errno {number}")
    return f"{_TEXT_OF[number]} ({name})" if number in _TEXT_OF else name
