"""One client connection: receives frames, starts requests in order, sends answers in that order, and bounds memory.

A Produce does not hold back later requests: its append has happened when it has started, and only its durability is
awaited. Pipelined produces therefore share a sync. Any other request holds back the later ones until it is answered, as
in Kafka. Reading pauses while too much is in flight. No request is started while the peer does not read its answers, or
after it has gone.

A connection starts a few requests at a time. While other connections wait for their turn, it queues behind them
(`turns`).
"""

from __future__ import annotations

from asyncio import BaseTransport, BufferedProtocol, CancelledError, Task, TimerHandle, Transport
from collections import deque
from collections.abc import Callable
from enum import IntFlag
from typing import cast

from msgspec import Struct
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ProtocolError
from semel_protocol.foreign import explained

from semel_broker.answers import CloseConnectionError, RequestOrder
from semel_broker.config.listeners import PLAINTEXT
from semel_broker.counters.requests import AT_ONCE_S, UNKNOWN, ApiCounters
from semel_broker.net.connection_context import ConnectionContext
from semel_broker.net.dispatch import Peer
from semel_broker.net.entrances import Entry
from semel_broker.net.frame_buffer import FrameBuffer
from semel_broker.net.login import REFUSALS, Login
from semel_broker.net.throttling import Chunks
from semel_broker.scheduling.answer_memory import AnswerHolding
from semel_broker.scheduling.eager import begin
from semel_broker.scheduling.frame_memory import READ_BYTES_EXHAUSTED, Holding
from semel_broker.security.authorizer import ANONYMOUS, Principal
from semel_broker.security.quotas.client_quotas import REQUEST_WAIT_S_MAX, ConnectionAdmission
from semel_broker.security.sasl.session import FAILED, SaslSession

FETCH = ApiKey.FETCH.value
FETCH_BYTES = ApiKey.FETCH.to_bytes(2, "big")
QUIET = ("peer_closed", "stopping", "idle", "files_used_up", FAILED, *REFUSALS)
"""Reasons to close a connection that are usual, or have a line of their own in the log."""
KEY_BYTES = 2


class ReadPause(IntFlag):
    """The reasons why a connection is not read at present."""

    IN_FLIGHT = 1  # too many of its bytes or requests are unanswered
    MEMORY = 2  # it waits for frame memory
    STOPPING = 4
    MUTED = 8  # a quota of its client is exceeded
    WAITS = 16  # its first request waits, because a quota of its client is exceeded


class Ending(Struct, frozen=True):
    """How a connection ends once all answers are written. `has_answer`: the last of them says why.

    It is kept instead of the exception, whose traceback has the context of a request: gc does not see into contexts,
    so nothing would free the connection.
    """

    reason: str
    fields: dict[str, object] = {}
    has_answer: bool = False


STOPPING = Ending("stopping")


class Request(RequestOrder):
    """A started request: its place in the order of answers."""

    __slots__ = (
        "answer_bytes",
        "answered_at",
        "chunks",
        "counters",
        "frame_bytes",
        "is_fetch",
        "started_at",
        "task",
    )

    started_at: float  # when it was answered or began to wait

    def __init__(self, api_key: int, frame_bytes: int, counters: ApiCounters) -> None:
        super().__init__()
        self.counters = counters
        self.answered_at = 0.0  # 0.0: it is not answered, or at once
        self.frame_bytes = frame_bytes
        self.is_fetch = api_key == FETCH
        self.chunks: Chunks | None = None  # None: not answered yet
        self.answer_bytes = 0  # counted, because an earlier answer is not ready yet
        self.task: Task[Chunks] | None = None


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
        self._frames = FrameBuffer(
            context.scratch, produce_bytes_max=context.produce_bytes_max, other_bytes_max=context.other_bytes_max
        )
        self._transport: Transport | None = None
        context.connections_made += 1
        self._principal = principal  # its name
        self.peer = Peer(host="?", port=0, listener=listener, number=context.connections_made, sasl=sasl)
        self._login: Login | None = None  # until it is complete
        if sasl is not None:
            self._login = Login(context, sasl, self.abort, lambda: bool(self._requests))
        self._queue: deque[bytearray] = deque()  # received, not started
        self._received_at: deque[float] = deque()  # the times of those that were not started at once
        self._requests: deque[Request] = deque()  # started, not written; the oldest first
        self._blocked: Request | None = None  # started and unanswered, and not a Produce
        self._in_flight_bytes = 0
        self._holding: Holding | None = None  # between `connection_made` and `connection_lost`
        self._answers: AnswerHolding | None = None  # likewise
        self._unsent_bytes = 0  # of whole answers, while the kernel has not taken all of them
        self._left_bytes = 0  # of these, in the transport at the last check
        self._read_pauses = ReadPause(0)
        self._unmute_timer: TimerHandle | None = None
        self._write_paused = False
        self._closed = ""  # the reason
        self._finishing: Ending | None = None  # once all answers are written
        self._lingers = False  # the last answer is written
        self._refusal = ""  # the reason to close it once it is no longer muted
        self._entered: set[str] = set()  # the quotas for which it has started a request
        self._entry: Entry | None = None  # while its first request waits for a quota
        self._active_at = context.loop.time()
        self._partial_since: float | None = None

    @property
    def descriptor(self) -> int:
        """The descriptor of the socket; -1 if there is none, as in a simulation."""
        held = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if held is None else int(held.fileno())

    # --- the transport's callbacks ---------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.peer.host, self.peer.port = str(address[0]), int(address[1])
        self.peer.principal = Principal(self._principal, self.peer.host)
        self._holding = self._context.memory.open(self.peer.host, self._evict)
        self._answers = self.peer.answers = self._context.answers.open(
            self._unacknowledged_bytes, self._close_not_reading
        )
        # Writing is paused while the kernel has not accepted all bytes; during that time the answers are counted.
        self._transport.set_write_buffer_limits(0, 0)
        self.peer.software = self._context.connections.made(self.peer.listener)
        self._opened(self)
        if self._login is not None:
            self._login.opened(self.peer.host, self.peer.port)

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._frames.buffer()
        return buffer[:READ_BYTES_EXHAUSTED] if self._context.memory.is_exhausted else buffer

    def buffer_updated(self, nbytes: int) -> None:
        now = self._active_at = self._context.loop.time()
        if self._closed or self._holding is None:
            return
        if self._login is not None:
            self._login.received()
            self._frames.bytes_max = self._login.frame_bytes_max
        held = self._frames.held_bytes
        try:
            frames = self._frames.received(nbytes)
        except ProtocolError as error:
            self.close("malformed_frame", error=explained(error, self._context.scratch))
            return
        whole_bytes = sum(map(len, frames))
        memory = self._context.memory
        memory.take(self._holding, whole_bytes + self._frames.held_bytes - held)
        if held:
            memory.moved(self._holding, nbytes)
            if frames:
                memory.whole(self._holding)
        self._in_flight_bytes += whole_bytes
        self._queue.extend(frames)
        self._note_partial_frame(begun_now=bool(frames))
        if frames:
            self.advance(now)
            if self._queue and len(self._queue) > len(self._received_at):
                self._received_at.extend([now] * (len(self._queue) - len(self._received_at)))
        self._request_memory()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._active_at = self._context.loop.time()
        self._write_paused = False
        self._left_bytes = 0
        count, self._unsent_bytes = self._unsent_bytes, 0
        if self._answers is not None:
            self._answers.give_back(count)
        self.advance()

    def connection_lost(self, exc: Exception | None) -> None:
        context = self._context
        if not self._closed:
            self._log_closed("peer_closed" if exc is None else "connection_lost", {"error": str(exc)} if exc else {})
        self._cancel_fetches()
        self.peer.parting.end()
        if self._login is not None:
            self._cancel_login(self._login)
        context.connections.lost(self.peer.listener, self.peer.software, self._closed)
        self._leave_entrance()
        context.is_read(self)
        self._clear_queue()
        self._requests.clear()
        context.turns.leave(self.take_turn)
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        if self._holding is not None:
            context.memory.close(self._holding)
            self._holding = None
        if self._answers is not None:
            context.answers.leave(self._queue_turn)
            context.answers.close(self._answers)
            self._answers = None
        self._in_flight_bytes = self._unsent_bytes = 0
        self._write_paused = False
        self._lost(self)

    # --- requests --------------------------------------------------------------------------------------------

    def advance(self, now: float | None = None) -> None:
        """Write ready answers, start waiting requests if it is this connection's turn, and check the bounds.

        `now`: the loop's time, if requests were received just now.
        """
        self._write()
        turns = self._context.turns
        if not self._may_start():
            self._check_in_flight()
        elif self._login is not None:
            turns.queue_login(self.take_turn)
            self._check_in_flight()
        elif turns.has_waiting:
            turns.queue(self.take_turn)
            self._check_in_flight()
        else:
            self.take_turn(now)

    def take_turn(self, now: float | None = None) -> None:
        """Start a few requests; queue for another turn if more are waiting. `now`: as in `advance`."""
        context, received_at = self._context, self._received_at
        loop, quotas = context.loop, context.quotas
        begun_at = now = loop.time() if now is None else now
        requests, size = context.limits.turn_requests_max, context.limits.turn_bytes_max
        while self._may_start():
            if requests <= 0 or size <= 0:
                context.turns.queue(self.take_turn)
                break
            if self._queue[0].startswith(FETCH_BYTES) and context.answers.is_exhausted:
                context.answers.wait(self._queue_turn)
                break
            if quotas is not None and quotas.is_active and not self._enters(self._queue[0]):
                break
            frame = self._queue.popleft()
            requests -= 1
            size -= len(frame)
            self.peer.waiting = len(self._queue)
            request = self._start(frame)
            size -= self._write()  # now: a large answer may pause writing
            # One reading of the clock for each request: the next one begins where this one ends.
            request.started_at = ended_at = loop.time()
            counters = request.counters
            counters.handle_s += (handled_s := ended_at - begun_at)
            if handled_s > AT_ONCE_S:
                counters.handle.observe(handled_s)
            if received_at or begun_at > now:
                queued_s = begun_at - (received_at.popleft() if received_at else now)
                if queued_s > AT_ONCE_S:
                    counters.queue.observe(queued_s)
            begun_at = ended_at
        context.work.request = context.work.api = None
        self._check_in_flight()

    def _queue_turn(self) -> None:
        self._context.turns.queue(self.take_turn)

    def _may_start(self) -> bool:
        """Whether a request waits and only needs this connection's turn."""
        return (
            bool(self._queue)
            and self._blocked is None
            and not self.peer.muted_until
            and self._entry is None
            and not self._write_paused
            and not self._closed
            and self._transport is not None
            and not self._transport.is_closing()
        )

    def _start(self, frame: bytearray) -> Request:
        peer, context, frame_bytes = self.peer, self._context, len(frame)
        is_token = peer.sasl is not None and peer.sasl.expects_raw_token
        key = UNKNOWN if is_token or frame_bytes < KEY_BYTES else (frame[0] << 8) | frame[1]
        counters = context.requests.by_api.get(key) or context.requests.of(key)
        counters.requests += 1
        counters.bytes_in += frame_bytes
        request = Request(key, frame_bytes, counters)
        self._requests.append(request)
        try:
            answer = context.dispatcher.start(frame, peer, request, counters)
            begun = answer if isinstance(answer, list) else begin(answer, context.loop)
        except CloseConnectionError as end:
            self._end_with(request, end)
            return request
        if peer.muted_until:
            self.mute()
        if isinstance(begun, list):
            self._answer(request, begun)
            return request
        if not request.next_may_start:
            self._blocked = request
        self._wait_for(request, begun)
        return request

    def _wait_for(self, request: Request, task: Task[Chunks]) -> None:
        request.task = task
        self._context.tasks[task] = None

        def answered(task: Task[Chunks]) -> None:
            del self._context.tasks[task]
            request.task = None
            request.answered_at = self._context.loop.time()
            request.counters.wait.observe(request.answered_at - request.started_at)
            if self._blocked is request:
                self._blocked = None
            if self.peer.muted_until:
                self.mute()
            try:
                self._answer(request, task.result())
            except CancelledError:
                self._answer(request, [])
                self._finishing = STOPPING
                self.advance()
            except CloseConnectionError as end:
                self._end_with(request, end)
                self.advance()
            else:
                self.advance()

        task.add_done_callback(answered)

    def _end_with(self, request: Request, end: CloseConnectionError) -> None:
        """Start no more requests; write the last answer after those before it, then close."""
        if not end.chunks:
            self.close(end.reason, **end.fields)
            return
        self._pause_reading(ReadPause.STOPPING)
        self._clear_queue()
        self._answer(request, end.chunks)
        self._finishing = Ending(end.reason, end.fields, has_answer=True)

    def _answer(self, request: Request, chunks: Chunks) -> None:
        """Keep the answer of `request`; it is written after those of all earlier requests."""
        request.chunks = chunks
        if self._login is not None:
            self._login.answered()
            if not self._login.is_pending:
                self._login, self._frames.bytes_max = None, None
        if (answers := self._answers) is None:
            return
        if request.is_fetch:
            answers.unreserve()
        if self._requests[0] is not request:
            request.answer_bytes = sum(map(len, chunks))
            answers.take(request.answer_bytes)
            request.answered_at = request.answered_at or self._context.loop.time()

    def _write(self) -> int:
        """Write the answers that are ready, in the order of requests; return their size in bytes."""
        ready: Chunks = []
        done_bytes = waited_bytes = size = 0
        requests = self._requests
        while requests and (chunks := requests[0].chunks) is not None:
            request = requests.popleft()
            done_bytes += request.frame_bytes
            waited_bytes += request.answer_bytes
            ready += chunks
            answer_bytes = sum(map(len, chunks))
            request.counters.bytes_out += answer_bytes
            size += answer_bytes
            if request.answer_bytes:
                request.counters.send.observe(self._context.loop.time() - request.answered_at)
        if done_bytes:
            self._in_flight_bytes -= done_bytes
            if self._holding is not None:
                self._context.memory.give_back(self._holding, done_bytes)
        if self._transport is None or self._transport.is_closing():
            return 0
        if ready:
            self._transport.writelines(ready)
            self._note_written(size, waited_bytes)
        if self._finishing is not None and not requests:
            self._finish(self._finishing)
        return size

    def _finish(self, end: Ending) -> None:
        """All answers are written: close the connection; if the last one says why, a moment later."""
        if not end.has_answer:
            self.close(end.reason, **end.fields)
        elif not self._lingers:
            self._lingers = True
            context = self._context
            context.loop.call_later(context.limits.last_answer_ms / 1000, self.close, end.reason)

    def _note_written(self, size: int, waited_bytes: int) -> None:
        """Count answers of `size` bytes given to the transport; `waited_bytes` of them are counted already."""
        if (answers := self._answers) is None:
            return
        if self._write_paused:
            self._left_bytes += size
            self._unsent_bytes += size
            answers.take(size)
        if waited_bytes:
            answers.give_back(waited_bytes)

    # --- quotas ----------------------------------------------------------------------------------------------

    def _enters(self, frame: bytearray) -> bool:
        """Whether the next request may start: the first ones of a connection wait while a quota is exceeded."""
        if self._login is not None:
            return True
        verdict = self._context.entrances.wait(frame, self.peer, self._entered, self._enter)
        if verdict is True:
            return True
        if verdict is False:
            self._drop_queue()
            self.admit(ConnectionAdmission(REQUEST_WAIT_S_MAX, is_refused=True), "quota_exceeded")
        else:
            self._entry = verdict
            self._pause_reading(ReadPause.WAITS)
        return False

    def _enter(self) -> None:
        """The first request has waited for long enough."""
        assert self._entry is not None
        self._entered.add(self._entry.key)
        self._entry = None
        self._active_at = self._context.loop.time()
        self._resume_reading(ReadPause.WAITS)
        self.advance()

    def _leave_entrance(self) -> None:
        if self._entry is not None:
            self._entry.leave()
            self._entry = None

    def _drop_queue(self) -> None:
        """Drop the requests that are received and not started, and give their memory back."""
        size = sum(map(len, self._queue))
        self._clear_queue()
        self._in_flight_bytes -= size
        if self._holding is not None:
            self._context.memory.give_back(self._holding, size)

    # --- bounds ----------------------------------------------------------------------------------------------

    def _check_in_flight(self) -> None:
        limits = self._context.limits
        if (
            self._in_flight_bytes > limits.in_flight_bytes_max
            or len(self._queue) + len(self._requests) >= limits.in_flight_requests_max
        ):
            self._pause_reading(ReadPause.IN_FLIGHT)
        elif ReadPause.IN_FLIGHT in self._read_pauses:
            self._resume_reading(ReadPause.IN_FLIGHT)

    def _note_partial_frame(self, *, begun_now: bool) -> None:
        """Note when the frame being received began: it must end within a timeout."""
        if not self._frames.is_partial:
            self._partial_since = None
            return
        if begun_now or self._partial_since is None:
            self._partial_since = self._active_at

    def _request_memory(self) -> None:
        """Request memory before the next receive: for the frame that has begun, or for the next frame."""
        holding, memory = self._holding, self._context.memory
        if self._closed or holding is None or ReadPause.MEMORY in self._read_pauses:
            return
        if growth := self._frames.growth:
            granted = memory.grow(holding, growth, self._frames.frame_bytes, self._memory_granted)
        elif self._frames.held_bytes:
            return
        else:
            granted = memory.may_read_on(holding, self._memory_granted)
        if granted:
            self._frames.grow()
        else:
            self._pause_reading(ReadPause.MEMORY)
            self._context.watch_memory()

    def _memory_granted(self) -> None:
        self._frames.grow()
        self._active_at = self._context.loop.time()
        self._resume_reading(ReadPause.MEMORY)

    def _evict(self) -> None:
        """Close this connection: others wait for its memory, and it makes no progress."""
        self.abort("memory_reclaimed")

    def _close_not_reading(self) -> None:
        """Close this connection: others wait for answer memory, and its peer does not read."""
        self.abort("does_not_read")

    def _unacknowledged_bytes(self) -> int:
        """Bytes of answers that the peer has not acknowledged: waiting here, in the transport or in the kernel."""
        untaken = sum(request.answer_bytes for request in self._requests)
        if self._write_paused and self._transport is not None:
            untaken += self._transport.get_write_buffer_size()
            if (descriptor := self.descriptor) >= 0:
                untaken += self._context.unacknowledged(descriptor)
        return untaken

    def _pause_reading(self, reason: ReadPause) -> None:
        if not self._read_pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._context.watch_unread(self)
        self._read_pauses |= reason

    def _resume_reading(self, reason: ReadPause) -> None:
        self._read_pauses &= ~reason
        if not self._read_pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._context.is_read(self)
            if self._partial_since is not None:  # the frame could not end while reading was paused
                self._partial_since = self._context.loop.time()

    def admit(self, admission: ConnectionAdmission, refusal: str = "connection_creation_rate") -> None:
        """Do not read this new connection for a time; a refused one is then closed, for the reason `refusal`."""
        if admission.wait_s <= 0 or self._closed:
            return
        self.peer.muted_until = self._context.loop.time() + admission.wait_s
        self._refusal = refusal if admission.is_refused else ""
        self.mute()

    def mute(self) -> None:
        """Do not read, and start no request, until `peer.muted_until`. Answers are still written."""
        if self._unmute_timer is None and self._holding is not None:
            self._unmute_timer = self._context.loop.call_at(self.peer.muted_until, self._unmute, self.peer.muted_until)
            self._pause_reading(ReadPause.MUTED)

    def _unmute(self, muted_until: float) -> None:
        self._unmute_timer = None
        if self.peer.muted_until > muted_until:
            self.mute()
            return
        if self._refusal:
            self.close(self._refusal)
            return
        self.peer.muted_until = 0.0
        self._active_at = self._context.loop.time()
        self._resume_reading(ReadPause.MUTED)
        self.advance()

    # --- the end ---------------------------------------------------------------------------------------------

    def expired(self, now: float) -> str:
        """The reason to close this connection at loop time `now`; "" if there is none."""
        context = self._context
        if self._login is not None:
            self._login.check_time(now)
        if self._write_paused and self._transport is not None:
            left = self._transport.get_write_buffer_size()
            if left < self._left_bytes:
                self._active_at = now
            self._left_bytes = left
        elif self._requests or self.peer.muted_until or self._entry is not None:
            return ""  # the peer waits for the broker
        if self._partial_since is not None and not self._read_pauses and now - self._partial_since > context.partial_s:
            return "partial_frame_timeout"
        return "idle" if now - self._active_at > context.idle_s else ""

    def finish(self) -> None:
        """Stop reading and starting; answer the requests in progress except waiting fetches, then close."""
        self._pause_reading(ReadPause.STOPPING)
        self._finishing = STOPPING
        self._leave_entrance()
        self._clear_queue()
        self._cancel_fetches()
        self._write()

    def _clear_queue(self) -> None:
        self._queue.clear()
        self._received_at.clear()

    def _cancel_fetches(self) -> None:
        """Cancel waiting fetches, which only read. Other requests continue: a persisted change must also be applied."""
        for request in self._requests:
            if request.is_fetch and request.task is not None:
                request.task.cancel()

    def _cancel_login(self, login: Login) -> None:
        """The connection is gone: nothing of its authentication is worth the work."""
        self._login = None
        login.lost()
        for request in self._requests:
            if request.task is not None:
                request.task.cancel()

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
