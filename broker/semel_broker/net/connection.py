"""One client connection: gives received frames to its pipeline, and writes the answers that the pipeline hands out.

`pipeline` starts the requests in order and answers them in that order. `intake` bounds the memory of frames. Here are
the transport, the memory of unread answers, the authentication, and the quotas of the client.
"""

from __future__ import annotations

from asyncio import BaseTransport, BufferedProtocol, TimerHandle, Transport
from collections.abc import Callable
from functools import partial
from typing import cast

from semel_protocol.errors import ProtocolError
from semel_protocol.foreign import explained

from semel_broker.config.listeners import PLAINTEXT
from semel_broker.net.connection_context import NO_DESCRIPTOR, ConnectionContext
from semel_broker.net.dispatch import Peer
from semel_broker.net.entrances import Entry
from semel_broker.net.intake import Intake, ReadPause
from semel_broker.net.login import REFUSALS, Login
from semel_broker.net.pipeline import ConnectionPipeline
from semel_broker.net.throttling import Chunks
from semel_broker.scheduling.answer_memory import AnswerHolding
from semel_broker.security.authorizer import ANONYMOUS, Principal
from semel_broker.security.quotas.client_quotas import REQUEST_WAIT_S_MAX, ConnectionAdmission
from semel_broker.security.sasl.session import FAILED, SaslSession

QUIET = ("peer_closed", "stopping", "idle", "files_used_up", FAILED, *REFUSALS)
"""Reasons to close a connection that are usual, or have a line of their own in the log."""


class Connection(BufferedProtocol):
    """The protocol of one accepted connection. It calls `opened` when it is made and `lost` when it has ended."""

    def __init__(
        self,
        context: ConnectionContext,
        opened: Callable[[Connection], None],
        lost: Callable[[Connection], None],
        listener: str = PLAINTEXT,
        principal: str = ANONYMOUS.name,
        sasl: SaslSession | None = None,
    ) -> None:
        self._context = context
        self._opened, self._lost = opened, lost
        self._transport: Transport | None = None
        context.connections_made += 1
        self._principal = principal  # its name
        self.peer = Peer(host="?", port=0, listener=listener, number=context.connections_made, sasl=sasl)
        self._intake = Intake(context, self)
        self._pipeline = ConnectionPipeline(context, self.peer, self._intake, self)
        self._login: Login | None = None  # until it is complete
        if sasl is not None:
            self._login = Login(context, sasl, self.abort, lambda: self._pipeline.has_requests)
        self._answers: AnswerHolding | None = None  # between `connection_made` and `connection_lost`
        self._unsent_bytes = 0  # of whole answers, while the kernel has not taken all of them
        self._left_bytes = 0  # of these, in the transport at the last check
        self._unmute_timer: TimerHandle | None = None
        self._write_paused = False
        self._closed = ""  # the reason
        self._refusal = ""  # the reason to close it once it is no longer muted
        self._entered: set[str] = set()  # the quotas for which it has started a request
        self._entry: Entry | None = None  # while its first request waits for a quota

    @property
    def descriptor(self) -> int:
        """The descriptor of the socket; -1 if there is none, as in a simulation."""
        held = None if self._transport is None else self._transport.get_extra_info("socket")
        return NO_DESCRIPTOR if held is None else int(held.fileno())

    # --- the transport's callbacks ---------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.peer.host, self.peer.port = str(address[0]), int(address[1])
        self.peer.principal = Principal(self._principal, self.peer.host)
        self._intake.open(self._transport, self.peer.host)
        evict = partial(self.abort, "does_not_read")  # others wait for answer memory
        self._answers = self.peer.answers = self._context.answers.open(self._unacknowledged_bytes, evict)
        self._pipeline.answers = self._answers
        # Writing is paused while the kernel has not accepted all bytes; during that time the answers are counted.
        self._transport.set_write_buffer_limits(0, 0)
        self.peer.software = self._context.connections.made(self.peer.listener)
        self._opened(self)
        if self._login is not None:
            self._login.opened(self.peer.host, self.peer.port)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._intake.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        intake = self._intake
        now = intake.active_at = self._context.loop.time()
        if self._closed or not intake.is_open:
            return
        if self._login is not None:
            self._login.received()
            intake.frames.bytes_max = self._login.frame_bytes_max
        try:
            frames, size = intake.received(nbytes)
        except ProtocolError as error:
            self.close("malformed_frame", error=explained(error, self._context.scratch))
            return
        if frames:
            self._pipeline.receive(frames, size, now)
        if not self._closed:
            intake.request_memory()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._intake.active_at = self._context.loop.time()
        self._write_paused = False
        self._left_bytes = 0
        count, self._unsent_bytes = self._unsent_bytes, 0
        if self._answers is not None:
            self._answers.give_back(count)
        self._pipeline.advance()

    def connection_lost(self, exc: Exception | None) -> None:
        context = self._context
        if not self._closed:
            self._log_closed("peer_closed" if exc is None else "connection_lost", {"error": str(exc)} if exc else {})
        self._pipeline.cancel_fetches()
        self.peer.parting.end()
        if self._login is not None:  # nothing of the authentication is worth the work
            login, self._login = self._login, None
            login.lost()
            self._pipeline.cancel()
        context.connections.lost(self.peer.listener, self.peer.software, self._closed)
        self._leave_entrance()
        self._pipeline.close()
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        self._intake.close()
        if self._answers is not None:
            context.answers.close(self._answers)
            self._answers = None
        self._unsent_bytes, self._write_paused = 0, False
        self._lost(self)

    # --- what the pipeline calls -----------------------------------------------------------------------------

    @property
    def takes_requests(self) -> bool:
        return (
            not self.peer.muted_until
            and self._entry is None
            and not self._write_paused
            and not self._closed
            and self._transport is not None
            and not self._transport.is_closing()
        )

    @property
    def is_authenticating(self) -> bool:
        return self._login is not None

    def answered(self) -> None:
        if self._login is not None:
            self._login.answered()
            if not self._login.is_pending:
                self._login, self._intake.frames.bytes_max = None, None

    def send(self, chunks: Chunks, size: int, waited_bytes: int) -> bool:
        if self._transport is None or self._transport.is_closing():
            return False
        if chunks:
            self._transport.writelines(chunks)
            if (answers := self._answers) is not None:
                if self._write_paused:
                    self._left_bytes += size
                    self._unsent_bytes += size
                    answers.take(size)
                if waited_bytes:
                    answers.give_back(waited_bytes)
        return True

    def _unacknowledged_bytes(self) -> int:
        """Bytes of answers that the peer has not acknowledged: waiting here, in the transport or in the kernel."""
        untaken = self._pipeline.kept_bytes
        if self._write_paused and self._transport is not None:
            untaken += self._transport.get_write_buffer_size()
            if (descriptor := self.descriptor) >= 0:
                untaken += self._context.unacknowledged(descriptor)
        return untaken

    # --- quotas ----------------------------------------------------------------------------------------------

    def enters(self, frame: bytearray) -> bool:
        if self._login is not None:
            return True
        verdict = self._context.entrances.wait(frame, self.peer, self._entered, self._enter)
        if verdict is True:
            return True
        if verdict is False:
            self._pipeline.drop_queue()
            self.admit(ConnectionAdmission(REQUEST_WAIT_S_MAX, is_refused=True), "quota_exceeded")
        else:
            self._entry = verdict
            self._intake.pause(ReadPause.WAITS)
        return False

    def _enter(self) -> None:
        """The first request has waited for long enough."""
        assert self._entry is not None
        self._entered.add(self._entry.key)
        self._entry = None
        self._intake.active_at = self._context.loop.time()
        self._intake.resume(ReadPause.WAITS)
        self._pipeline.advance()

    def _leave_entrance(self) -> None:
        if self._entry is not None:
            self._entry.leave()
            self._entry = None

    def admit(self, admission: ConnectionAdmission, refusal: str = "connection_creation_rate") -> None:
        """Do not read this new connection for a time; a refused one is then closed, for the reason `refusal`."""
        if admission.wait_s <= 0 or self._closed:
            return
        self.peer.muted_until = self._context.loop.time() + admission.wait_s
        self._refusal = refusal if admission.is_refused else ""
        self.mute()

    def mute(self) -> None:
        """Do not read, and start no request, until `peer.muted_until`. Answers are still written."""
        if self._unmute_timer is None and self._intake.is_open:
            self._unmute_timer = self._context.loop.call_at(self.peer.muted_until, self._unmute, self.peer.muted_until)
            self._intake.pause(ReadPause.MUTED)

    def _unmute(self, muted_until: float) -> None:
        self._unmute_timer = None
        if self.peer.muted_until > muted_until:
            self.mute()
            return
        if self._refusal:
            self.close(self._refusal)
            return
        self.peer.muted_until = 0.0
        self._intake.active_at = self._context.loop.time()
        self._intake.resume(ReadPause.MUTED)
        self._pipeline.advance()

    # --- the end ---------------------------------------------------------------------------------------------

    def expired(self, now: float) -> str:
        """The reason to close this connection at loop time `now`; "" if there is none."""
        if self._login is not None:
            self._login.check_time(now)
        if self._write_paused and self._transport is not None:
            left = self._transport.get_write_buffer_size()
            if left < self._left_bytes:
                self._intake.active_at = now
            self._left_bytes = left
        elif self._pipeline.has_requests or self.peer.muted_until or self._entry is not None:
            return ""  # the peer waits for the broker
        if self._intake.is_overdue(now):
            return "partial_frame_timeout"
        return "idle" if now - self._intake.active_at > self._context.idle_s else ""

    def finish(self) -> None:
        """Stop reading and starting; answer the requests in progress except waiting fetches, then close."""
        self._intake.pause(ReadPause.STOPPING)
        self._leave_entrance()
        self._pipeline.finish()

    def close(self, reason: str, **fields: object) -> None:
        """Close the connection after sending the answers already written. Logs the first reason given."""
        if self._closed:
            return
        self._log_closed(reason, fields)
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close the connection at once; written answers may be lost."""
        self.close(reason)
        if self._transport is not None:
            self._transport.abort()

    def _log_closed(self, reason: str, fields: dict[str, object]) -> None:
        self._closed = reason
        peer = self.peer
        log = self._context.log.debug if reason in QUIET else self._context.log.warning
        log(
            "connection_closed",
            reason=reason,
            client_host=peer.host,
            client_port=peer.port,
            client_id=peer.client_id,
            requests=peer.requests,
            **({} if peer.authenticated.name == ANONYMOUS.name else {"principal": peer.authenticated.name}),
            **fields,
        )
