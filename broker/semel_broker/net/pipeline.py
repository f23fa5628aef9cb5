"""The requests of one connection, without I/O: starts received frames in order, and hands out answers in that order.

A Produce does not hold back later requests: its append has happened when it has started, and only its durability is
awaited. Pipelined produces therefore share a sync. Any other request holds back the later ones until it is answered, as
in Kafka. No request is started while the peer does not read its answers, or after it has gone.

A connection starts a few requests at a time. While other connections wait for their turn, it queues behind them
(`turns`).
"""

from __future__ import annotations

from asyncio import CancelledError, Task
from collections import deque
from typing import Protocol

from msgspec import Struct
from semel_protocol.api_key import ApiKey

from semel_broker.answers import CloseConnectionError, RequestOrder
from semel_broker.counters.requests import AT_ONCE_S, UNKNOWN, ApiCounters
from semel_broker.net.connection_context import ConnectionContext
from semel_broker.net.dispatch import Peer
from semel_broker.net.intake import Intake, ReadPause
from semel_broker.net.throttling import Chunks
from semel_broker.scheduling.answer_memory import AnswerHolding
from semel_broker.scheduling.eager import begin

FETCH = ApiKey.FETCH.value
FETCH_BYTES = ApiKey.FETCH.to_bytes(2, "big")
KEY_BYTES = 2


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
        self.next_may_start = False
        self.counters = counters
        self.answered_at = 0.0  # 0.0: it is not answered, or at once
        self.frame_bytes = frame_bytes
        self.is_fetch = api_key == FETCH
        self.chunks: Chunks | None = None  # None: not answered yet
        self.answer_bytes = 0  # counted, because an earlier answer is not ready yet
        self.task: Task[Chunks] | None = None


class PipelineConnection(Protocol):
    """The connection around a pipeline: the transport, the authentication, the quotas."""

    @property
    def takes_requests(self) -> bool:
        """Whether a request may start: the peer is there, reads its answers, and is within its quotas."""
        ...

    @property
    def is_authenticating(self) -> bool: ...

    def enters(self, frame: bytearray) -> bool:
        """Whether this request may start now: the first ones of a connection wait while a quota is exceeded."""
        ...

    def mute(self) -> None:
        """Start no request until `peer.muted_until`."""
        ...

    def answered(self) -> None:
        """A request has its answer: authentication may be complete."""
        ...

    def send(self, chunks: Chunks, size: int, waited_bytes: int) -> bool:
        """Write answers of `size` bytes, of which `waited_bytes` are counted already. Return False if the transport is
        closing.
        """
        ...

    def close(self, reason: str, **fields: object) -> None:
        """Close the connection after sending the answers already written."""
        ...


class ConnectionPipeline:
    """The requests of `connection`, whose frames come from `intake`.

    `answers`: the memory of its answers; None: the connection is not open.
    """

    def __init__(self, context: ConnectionContext, peer: Peer, intake: Intake, connection: PipelineConnection) -> None:
        self._context, self._peer, self._intake, self._connection = context, peer, intake, connection
        self.answers: AnswerHolding | None = None
        self._queue: deque[bytearray] = deque()  # received, not started
        self._received_at: deque[float] = deque()  # the times of those that were not started at once
        self._requests: deque[Request] = deque()  # started, not written; the oldest first
        self._blocked: Request | None = None  # started and unanswered, and the next one may not start
        self._in_flight_bytes = 0
        self._finishing: Ending | None = None  # once all answers are written
        self._lingers = False  # the last answer is written

    @property
    def has_requests(self) -> bool:
        """Whether answers are not ready or not written."""
        return bool(self._requests)

    @property
    def kept_bytes(self) -> int:
        """The bytes of answers that wait for earlier ones."""
        return sum(request.answer_bytes for request in self._requests)

    def receive(self, frames: list[bytearray], size: int, now: float) -> None:
        """Frames of `size` bytes were received; start what may start."""
        self._in_flight_bytes += size
        self._queue.extend(frames)
        self.advance(now)
        if self._queue and len(self._queue) > len(self._received_at):
            self._received_at.extend([now] * (len(self._queue) - len(self._received_at)))

    def advance(self, now: float | None = None) -> None:
        """Write ready answers, start waiting requests if it is this connection's turn, and check the bounds.

        `now`: the loop's time, if requests were received just now.
        """
        self.write()
        turns = self._context.turns
        if not self._may_start():
            self._check_in_flight()
        elif self._connection.is_authenticating:
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
            if quotas is not None and quotas.is_active and not self._connection.enters(self._queue[0]):
                break
            frame = self._queue.popleft()
            requests -= 1
            size -= len(frame)
            self._peer.waiting = len(self._queue)
            request = self._start(frame)
            size -= self.write()  # now: a large answer may pause writing
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

    def _check_in_flight(self) -> None:
        limits = self._context.limits
        self._intake.check_in_flight(
            is_full=self._in_flight_bytes > limits.in_flight_bytes_max
            or len(self._queue) + len(self._requests) >= limits.in_flight_requests_max
        )

    def _queue_turn(self) -> None:
        self._context.turns.queue(self.take_turn)

    def _may_start(self) -> bool:
        """Whether a request waits and only needs this connection's turn."""
        return bool(self._queue) and self._blocked is None and self._connection.takes_requests

    def _start(self, frame: bytearray) -> Request:
        peer, context, frame_bytes = self._peer, self._context, len(frame)
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
            self._connection.mute()
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
            if self._peer.muted_until:
                self._connection.mute()
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
            self._connection.close(end.reason, **end.fields)
            return
        self._intake.pause(ReadPause.STOPPING)
        self._clear_queue()
        self._answer(request, end.chunks)
        self._finishing = Ending(end.reason, end.fields, has_answer=True)

    def _answer(self, request: Request, chunks: Chunks) -> None:
        """Keep the answer of `request`; it is written after those of all earlier requests."""
        request.chunks = chunks
        self._connection.answered()
        if (answers := self.answers) is None:
            return
        if request.is_fetch:
            answers.unreserve()
        if self._requests[0] is not request:
            request.answer_bytes = sum(map(len, chunks))
            answers.take(request.answer_bytes)
            request.answered_at = request.answered_at or self._context.loop.time()

    def write(self) -> int:
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
            self._intake.give_back(done_bytes)
        if (ready or self._finishing is not None) and not self._connection.send(ready, size, waited_bytes):
            return 0
        if self._finishing is not None and not requests:
            self._finish(self._finishing)
        return size

    def _finish(self, end: Ending) -> None:
        """All answers are written: close the connection; if the last one says why, a moment later."""
        if not end.has_answer:
            self._connection.close(end.reason, **end.fields)
        elif not self._lingers:
            self._lingers = True
            context = self._context
            context.loop.call_later(context.limits.last_answer_ms / 1000, self._connection.close, end.reason)

    # --- the end ---------------------------------------------------------------------------------------------

    def drop_queue(self) -> None:
        """Drop the requests that are received and not started, and give their memory back."""
        size = sum(map(len, self._queue))
        self._clear_queue()
        self._in_flight_bytes -= size
        self._intake.give_back(size)

    def _clear_queue(self) -> None:
        self._queue.clear()
        self._received_at.clear()

    def finish(self) -> None:
        """Start no more requests; answer those in progress except waiting fetches, then close."""
        self._finishing = STOPPING
        self._clear_queue()
        self.cancel_fetches()
        self.write()

    def cancel_fetches(self) -> None:
        """Cancel waiting fetches, which only read. Other requests continue: a persisted change must also be applied."""
        for request in self._requests:
            if request.is_fetch and request.task is not None:
                request.task.cancel()

    def cancel(self) -> None:
        """Cancel all requests."""
        for request in self._requests:
            if request.task is not None:
                request.task.cancel()

    def close(self) -> None:
        """The connection is lost."""
        self._clear_queue()
        self._requests.clear()
        self._context.turns.leave(self.take_turn)
        self._context.answers.leave(self._queue_turn)
        self._in_flight_bytes = 0
        self.answers = None
