"""One TLS connection: the handshake, then a transport for the protocol of the connection.

It stands between the transport of the socket and the `Connection`, and does for both what the other one would do. No
memory is held for an idle connection but OpenSSL's: ciphertext is received into the scratch memory of the server, and
plaintext goes directly into the buffer of the `Connection`. An answer is encrypted in parts, the next one when the
kernel has taken the last.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, BaseTransport, BufferedProtocol, TimerHandle, Transport
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

from semel_protocol.foreign import not_tls
from semel_protocol.primitives import Buffer

from semel_broker.config.limits import Limits
from semel_broker.counters.connections import ConnectionCounters
from semel_broker.net.handshakes import Handshakes
from semel_broker.scheduling.repeated_lines import RepeatedLines
from semel_broker.security.quotas.client_quotas import ADMITTED, ConnectionAdmission
from semel_broker.world import Logger, TlsFailure, TlsSession


class TlsContext:
    """The shared state of the TLS connections of a server. `scratch` holds ciphertext while it is received.

    `lines`: bounds the log lines of failed handshakes; None: each has one. `authentication_failed`: see `Server`.
    """

    def __init__(
        self,
        limits: Limits,
        log: Logger,
        loop: AbstractEventLoop,
        scratch: memoryview,
        handshakes: Handshakes,
        lines: RepeatedLines | None = None,
        authentication_failed: Callable[[str, str, str, str, str], None] | None = None,
        counters: ConnectionCounters | None = None,
    ) -> None:
        self.counters = ConnectionCounters() if counters is None else counters
        self.limits, self.log, self.loop = limits, log, loop
        self.scratch, self.handshakes = scratch, handshakes
        self.lines, self.authentication_failed = lines, authentication_failed


class TlsConnection(BufferedProtocol):
    """The protocol of an accepted socket, and after the handshake the transport of the protocol that `made` makes.

    `made` gets the verified certificate of the client, in DER, or None. `may_keep`: see `World.may_keep_descriptor`.
    """

    def __init__(
        self,
        context: TlsContext,
        session: TlsSession,
        listener: str,
        made: Callable[[bytes | None], BufferedProtocol],
        may_keep: Callable[[int], bool],
        admission: Callable[[str], ConnectionAdmission] = lambda host: ADMITTED,
    ) -> None:
        self._context, self._session, self._listener = context, session, listener
        self._made, self._may_keep, self._admission = made, may_keep, admission
        self._admit_timer: TimerHandle | None = None
        self._inner: BufferedProtocol | None = None
        self._raw: Transport = cast("Transport", None)  # set by `connection_made`
        self._timer: TimerHandle | None = None
        self._received = 0
        self._has_failed = False
        self._broken: TlsFailure | None = None
        self._pending: deque[Buffer] = deque()  # not encrypted yet
        self._pending_bytes = 0
        self._is_raw_paused = self._is_inner_paused = False
        self._is_reading_paused = False
        self._is_closing = False
        self.active_at = context.loop.time()
        self._host, self._port = "?", 0

    # --- the socket's transport calls these ------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self._raw = cast("Transport", transport)
        self._raw.set_write_buffer_limits(0, 0)
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self._host, self._port = str(address[0]), int(address[1])
        context = self._context
        held = transport.get_extra_info("socket")
        if held is not None and not self._may_keep(held.fileno()):
            self._has_failed = True  # the limit of open files has a log line of its own
            self._raw.abort()
        elif not context.handshakes.admit(self, self._host, self.active_at):
            self.refuse("too_many_handshakes")
        else:
            seconds = context.limits.tls_handshake_timeout_ms / 1000
            self._timer = context.loop.call_later(seconds, self.refuse, "handshake_timeout")
            self._admit(self._admission(self._host))

    def _admit(self, admission: ConnectionAdmission) -> None:
        """Do not read this new connection for a time; a refused one is then closed."""
        if admission.wait_s > 0:
            self._raw.pause_reading()
            self._admit_timer = self._context.loop.call_later(admission.wait_s, self._admitted, admission.is_refused)

    def _admitted(self, is_refused: bool) -> None:
        if is_refused:
            self.refuse("connection_creation_rate")
        elif not self._has_failed and not self._raw.is_closing():
            self._raw.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._context.scratch

    def buffer_updated(self, nbytes: int) -> None:
        if self._has_failed:
            return
        data = self._context.scratch[:nbytes]
        if self._inner is not None:
            self._session.receive(data)
            self._read()
            return
        self.active_at = self._context.loop.time()
        if not self._received and (like := not_tls(data)):
            self._fail(TlsFailure("not_tls", like, "let the client use security.protocol=SSL, or another port"))
            return
        self._received += nbytes
        if self._received > self._context.limits.tls_handshake_bytes_max:
            self.refuse("handshake_too_long")
            return
        self._session.receive(data)
        self._shake_hands()

    def eof_received(self) -> bool:
        return False  # the transport closes itself, and `connection_lost` says the rest

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_handshake()
        self._pending.clear()
        self._pending_bytes = 0
        if self._inner is not None:
            self._inner.connection_lost(self._broken or exc)
        elif not self._has_failed:
            self._log_failure("closed_in_handshake", "" if exc is None else str(exc), CLOSED_BY_CLIENT)

    def pause_writing(self) -> None:
        self._is_raw_paused = True

    def resume_writing(self) -> None:
        self._is_raw_paused = False
        self._encrypt()
        if self._pending or self._is_raw_paused:
            return
        if self._is_inner_paused and self._inner is not None:
            self._is_inner_paused = False
            self._inner.resume_writing()
        if self._is_closing:
            self._close_raw()

    # --- the handshake ---------------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        try:
            is_complete = self._session.handshake()
        except TlsFailure as failure:
            self._send()  # the alert
            self._fail(failure)
            return
        self._send()
        if not is_complete:
            return
        self._end_handshake()
        try:
            self._inner = self._made(self._session.certificate())
        except TlsFailure as failure:
            self._fail(failure)
            return
        self._inner.connection_made(cast("Transport", self))
        self._read()

    def refuse(self, reason: str) -> None:
        """Close the connection before its handshake is complete."""
        self._fail(TlsFailure(reason, "", REFUSALS.get(reason, "")))

    def _fail(self, failure: TlsFailure) -> None:
        self._end_handshake()
        if self._has_failed:
            return
        self._has_failed = True
        self._log_failure(failure.reason, str(failure), failure.do)
        self._raw.close()

    def _end_handshake(self) -> None:
        self._context.handshakes.ended(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._admit_timer is not None:
            self._admit_timer.cancel()
            self._admit_timer = None

    def _log_failure(self, reason: str, error: str, do: str) -> None:
        # Load balancers connect to see whether the port is open: that is no failure.
        is_probe = reason in ("stopping", "connection_creation_rate") or (
            reason == "closed_in_handshake" and not self._received
        )
        if not is_probe:
            self._context.counters.handshake_failed(self._listener, reason)
        if reason in OF_AUTHENTICATION and self._context.authentication_failed is not None:
            self._context.authentication_failed(self._host, self._listener, "SSL", reason, error)
        lines = self._context.lines
        times = 1 if lines is None else lines.times((self._host, reason, error))
        if not times:
            return
        log = self._context.log.debug if is_probe else self._context.log.warning
        words: dict[str, object] = {name: text for name, text in (("error", error), ("do", do)) if text}
        log(
            "tls_handshake_failed",
            reason=reason,
            client_host=self._host,
            client_port=self._port,
            listener=self._listener,
            **words,
            **({"times": times} if times > 1 else {}),
        )

    # --- data ------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Give decrypted bytes to the protocol until it pauses, or more must be received."""
        inner = self._inner
        count = 1
        while inner is not None and count > 0 and not self._is_reading_paused and not self._is_closing:
            buffer = memoryview(inner.get_buffer(-1))
            assert buffer, "the protocol pauses reading while it has no memory"
            filled = 0
            try:
                while filled < len(buffer) and (count := self._session.read(buffer[filled:])) > 0:
                    filled += count
            except TlsFailure as failure:
                self._broken = failure
                self._raw.abort()
                return
            if filled:
                inner.buffer_updated(filled)
        self._send()  # what TLS itself has to say
        if count < 0:
            self.close()

    def _encrypt(self) -> None:
        """Encrypt and write parts until the kernel takes no more."""
        part_bytes = self._context.limits.tls_write_bytes
        while self._pending and not self._is_raw_paused:
            part: list[memoryview] = []
            room = part_bytes
            while self._pending and room:
                chunk = memoryview(self._pending.popleft())
                if len(chunk) > room:
                    self._pending.appendleft(chunk[room:])
                    chunk = chunk[:room]
                part.append(chunk)
                room -= len(chunk)
            self._pending_bytes -= part_bytes - room
            self._session.write(b"".join(part))
            self._send()

    def _send(self) -> None:
        if data := self._session.to_send():
            self._raw.write(data)

    # --- the protocol of the connection calls these, as of any transport -----------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (0, 0), "writing is paused as soon as the kernel does not take all bytes"

    def get_write_buffer_size(self) -> int:
        return self._pending_bytes + self._raw.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._is_closing or self._raw.is_closing()

    def writelines(self, chunks: Iterable[Buffer]) -> None:
        if self._is_closing:
            return
        for chunk in chunks:
            if chunk:
                self._pending.append(chunk)
                self._pending_bytes += len(chunk)
        self._encrypt()
        is_unsent = bool(self._pending) or self._is_raw_paused
        if is_unsent and not self._is_inner_paused and self._inner is not None:
            self._is_inner_paused = True
            self._inner.pause_writing()

    def pause_reading(self) -> None:
        self._is_reading_paused = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._raw.resume_reading()
        self._context.loop.call_soon(self._read)  # what is decrypted, or received and not decrypted

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self._raw.is_closing():
            self._raw.pause_reading()
        if not self._pending and not self._is_raw_paused:
            self._close_raw()

    def abort(self) -> None:
        self._is_closing = True
        self._raw.abort()

    def _close_raw(self) -> None:
        self._session.close()
        self._send()
        self._raw.close()


OF_AUTHENTICATION = frozenset(
    {
        "no_client_certificate",
        "client_certificate_expired",
        "client_certificate_not_trusted",
        "no_principal",
        "not_a_broker",
    }
)
"""The reasons for which a client could not prove a principal."""
CLOSED_BY_CLIENT = (
    "see the client's log: some clients close without a reason if they do not trust the CA of ssl.keystore.location, "
    "or if they connect to a name that is not in the certificate"
)
REFUSALS = {
    "handshake_timeout": "check the network, or whether the client is overloaded",
    "handshake_too_long": "let the client send a shorter certificate chain",
    "handshake_stalled": "other handshakes waited: close connections that stay silent",
    "too_many_handshakes": "let clients connect more slowly",
    "connection_creation_rate": "let clients keep their connections, or raise the quota of their address",
}
"""The advice for handshakes that are refused for a bound."""
