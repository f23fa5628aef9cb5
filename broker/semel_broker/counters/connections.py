"""PURE: counts the connections of a server: by listener, reason of their end, and client software (KIP-511)."""

from __future__ import annotations

import re
from typing import Final

SOFTWARE_MAX: Final = 100
"""Names with versions of client software that are counted by themselves; the connections of others are `other`."""
SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]{0,62}[a-zA-Z0-9])?")
"""The valid names and versions (KIP-511)."""

Software = tuple[str, str]
"""(name, version)."""
OTHER: Final[Software] = ("other", "")
UNKNOWN: Final[Software] = ("unknown", "")
"""Before ApiVersions v3, and of clients that do not send it."""


class ConnectionCounters:
    """One per broker. Keys begin with the name of the listener."""

    def __init__(self) -> None:
        self.opened: dict[str, int] = {}
        self.closed: dict[tuple[str, str], int] = {}
        """(listener, reason)."""
        self.open: dict[tuple[str, Software], int] = {}
        self.failed_handshakes: dict[tuple[str, str], int] = {}
        """(listener, reason), of TLS."""
        self._known: dict[Software, None] = {}

    def made(self, listener: str) -> Software:
        """A connection is made. Returns its software so far, which `named` and `lost` take."""
        self.opened[listener] = self.opened.get(listener, 0) + 1
        self._add((listener, UNKNOWN), 1)
        return UNKNOWN

    def named(self, listener: str, before: Software, name: str, version: str) -> Software:
        """The client says what it is; what has not KIP-511's form is `other`."""
        software = (name, version)
        if software not in self._known:
            fits = SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version) and len(self._known) < SOFTWARE_MAX
            if fits:
                self._known[software] = None
            else:
                software = OTHER
        if software != before:
            self._add((listener, before), -1)
            self._add((listener, software), 1)
        return software

    def lost(self, listener: str, software: Software, reason: str) -> None:
        """The connection has ended."""
        self._add((listener, software), -1)
        self.closed[listener, reason] = self.closed.get((listener, reason), 0) + 1

    def handshake_failed(self, listener: str, reason: str) -> None:
        """A TLS handshake has failed."""
        self.failed_handshakes[listener, reason] = self.failed_handshakes.get((listener, reason), 0) + 1

    def _add(self, key: tuple[str, Software], count: int) -> None:
        now = self.open.get(key, 0) + count
        if now:
            self.open[key] = now
        else:
            self.open.pop(key, None)
