"""The outside world as arguments of a broker: clocks, randomness, the disk, and the log.

No module below `__main__` imports `time`, `os` or `random` for these; each takes them from here. A test or a simulator
can therefore choose the time and the writes that are lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from random import Random
from typing import Any, Protocol

import msgspec
from semel_protocol.errors import PortableError
from semel_protocol.scram import ScramMechanism, salted_password
from semel_storage.disk.disk import Disk
from semel_storage.histogram import Histogram

from semel_broker.pushed_points import Point


class Logger(Protocol):
    """The methods of a structlog logger that the broker uses: one event name per line, and the facts as fields."""

    def debug(self, event: str, **fields: object) -> None: ...
    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...
    def exception(self, event: str, **fields: object) -> None: ...


class SilentLogger:
    """A logger that writes nothing, for tests and tools."""

    def debug(self, event: str, **fields: object) -> None: ...
    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...
    def exception(self, event: str, **fields: object) -> None: ...


class TlsFailure(PortableError):  # noqa: N818 (what a peer did, not an error of this program)
    """A TLS handshake that has failed. `reason`: snake_case; `do`: what to do."""

    def __init__(self, reason: str, error: str, do: str) -> None:
        super().__init__(error)
        self.reason, self.do = reason, do


JWKS_BYTES_MAX = 1 << 20
"""The largest JWKS that is read."""


class JwksError(Exception):
    """The keys of an issuer of tokens cannot be read, or their text is not a JWKS with a key that can check tokens."""


class TlsSession(Protocol):
    """The TLS of one connection, without a socket: bytes go in and come out."""

    def receive(self, data: memoryview) -> None:
        """Take bytes of the peer."""

    def handshake(self) -> bool:
        """Continue the handshake; return whether it is complete. Raises TlsFailure."""
        ...

    def read(self, into: memoryview) -> int:
        """Decrypt into a buffer; return the number of bytes. 0: more must be received first; -1: the peer has closed.

        Raises TlsFailure for bytes that are not authentic.
        """
        ...

    def write(self, data: bytes) -> None:
        """Encrypt."""

    def to_send(self) -> bytes:
        """The bytes for the peer; each is returned once."""
        ...

    def close(self) -> None:
        """Tell the peer that no more data follow."""

    def certificate(self) -> bytes | None:
        """The verified certificate of the peer, in DER; None: it has shown none."""
        ...


class Reloadable(Protocol):
    """Certificates in files."""

    @property
    def ends_at_s(self) -> int | None:
        """The end of the certificate that is shown, in seconds since 1970. None: not known."""
        ...

    def reload_if_changed(self) -> None:
        """Read the files again if they have changed. Files that cannot be used are logged, and change nothing."""


class Tls(Reloadable, Protocol):
    """The TLS of a listener."""

    def session(self) -> TlsSession:
        """A session with the present certificate."""
        ...


class PeerTls(Reloadable, Protocol):
    """The TLS of the connections that a broker opens to other brokers."""

    def own_certificate(self) -> bytes:
        """The certificate that is shown, in DER."""
        ...

    def arguments(self, host: str) -> dict[str, Any]:
        """The arguments of `create_connection` for a verified connection to this host."""
        ...

    def certificate(self, transport: Any) -> bytes | None:
        """The verified certificate of the other broker, in DER."""
        ...

    def explain(self, error: Exception | None) -> TlsFailure | None:
        """The failure that an error of a connection means; None: it has nothing to do with TLS."""
        ...


async def stretch_here(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """SCRAM's SaltedPassword, computed at once: for tests and tools, because it blocks for milliseconds."""
    return salted_password(mechanism, password, salt, iterations)


class StopRequestedError(Exception):
    """A signal to stop came while the process started."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The outside world of one broker.

    `now_ms`: wall clock, milliseconds since 1970. `monotonic`: seconds, never decreases; only to measure time, because
    timers are the event loop's. `rng`: the only source of randomness (member ids, topic ids, ...).
    """

    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    rng: Random
    disk: Disk
    log: Logger = SilentLogger()
    is_to_stop: Callable[[], bool] = lambda: False
    """Whether a signal to stop has come before the broker serves. Long work of a start asks for it."""
    may_keep_descriptor: Callable[[int], bool] = lambda descriptor: True
    """Whether a connection may keep its descriptor; False if it is reserved for logs, which has then been logged."""
    unacknowledged: Callable[[int], int] = lambda descriptor: 0
    """Bytes in the kernel's send queue of a connection that its peer has not acknowledged yet."""
    hung_up: Callable[[Sequence[int]], Collection[int]] = lambda descriptors: ()
    """Which of these connections, none of them read now, have ended: their peers have reset them, or have closed them
    and no whole request is left to read."""
    audit: Callable[[str], None] | None = None
    """Writes a line of the audit log; never raises. None: there is no audit log."""
    audit_lost: Callable[[], int] = lambda: 0
    """Lines of the audit log that could not be written, since the start."""
    audit_is_behind: Callable[[], bool] = lambda: False
    """Whether requests that must have a line in the audit log are refused now; see `audit.log.required`."""
    log_lost: Callable[[], int] = lambda: 0
    """Lines of the log that could not be written, since the start."""
    sync_seconds: Histogram | None = None
    """How long the syncs of the disk took. None: the disk does not measure it."""
    load_tls: Callable[[Any], Tls] | None = None
    """Makes the TLS of a listener from its `TlsSettings`; raises ConfigError. None: this world has no TLS."""
    load_peer_tls: Callable[[Any], PeerTls] | None = None
    """The same for the connections to other brokers."""
    read_jwks: Callable[[str, str], Awaitable[bytes]] | None = None
    """Reads the JWKS of an issuer of tokens: (file or https URL, file of CAs) -> its text; raises JwksError. None: this
    world has no OAuth.
    """
    read_otlp: Callable[[bytes], Iterator[Point]] | None = None
    """Reads metrics that clients push (KIP-714); raises UnreadableMetricsError. None: this world cannot."""
    stretch: Callable[[ScramMechanism, bytes, bytes, int], Awaitable[bytes]] = stretch_here
    """SCRAM's SaltedPassword of (mechanism, password, salt, iterations), for PLAIN. A broker computes it in threads."""
