"""Records one request against the quotas of its client, and mutes its connection when they are exceeded (KIP-219).

The answer is sent at once, and says for how long the connection is muted. Meanwhile the connection is not read, and no
later request of it is started.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol

import msgspec
from semel_protocol.messages.k00_produce import ProduceRequest
from semel_protocol.messages.k01_fetch import FetchRequest, FetchResponse
from semel_protocol.primitives import Buffer
from semel_protocol.schema import Message

from semel_broker.security.authorizer import Principal
from semel_broker.security.quotas.client_quotas import ClientQuotas

Chunks = list[Buffer]
"""A response frame in pieces, ready to be written; empty if the request gets no answer."""
Begun = Chunks | Coroutine[Any, Any, Chunks]


class Mutable(Protocol):
    """What is muted: a connection, until `muted_until` on the clock of the event loop; 0.0: it is not."""

    client_id: str
    muted_until: float

    @property
    def authenticated(self) -> Principal:
        """Its present principal."""
        ...


class Throttling:
    """The quotas of one request of `size` bytes.

    `clock`: of the event loop. `work_clock`: measures how long the loop works.
    The time that counts is that of all steps between the request's waits: decoding, handler, slices. What follows the
    answer's last step (encoding, writing) does not count.
    """

    __slots__ = (
        "_clock",
        "_is_metered",
        "_quotas",
        "_since",
        "_size",
        "_work_clock",
        "_worked_s",
        "client_id",
        "peer",
        "user",
    )

    def __init__(
        self,
        quotas: ClientQuotas,
        peer: Mutable,
        size: int,
        clock: Callable[[], float],
        work_clock: Callable[[], float],
    ) -> None:
        self._quotas, self.peer, self._size = quotas, peer, size
        self._is_metered = quotas.is_metered
        self._clock, self._work_clock = clock, work_clock
        self.user, self.client_id = peer.authenticated.user, peer.client_id
        self._worked_s = 0.0
        self._since = work_clock()

    def begin(self, request: Message) -> None:
        """Before the handler: count the bytes of a Produce request, and bound those of a response to Fetch."""
        if isinstance(request, ProduceRequest):
            self._mute(self._quotas.produced(self.user, self.client_id, self._size, self._clock()))
        elif isinstance(request, FetchRequest):
            most = self._quotas.fetch_bytes_max(self.user, self.client_id)
            if most is not None:
                request.max_bytes = min(request.max_bytes, max(1, int(most)))

    def answer(self, response: Message) -> Message:
        """The response as it is sent: with the throttle time, and without records if the client may not have them."""
        now = self._clock()
        if isinstance(response, FetchResponse):
            size = sum(len(row.records or b"") for topic in response.responses for row in topic.partitions)
            wait_s, is_sent = self._quotas.fetched(self.user, self.client_id, size, now) if size else (0.0, True)
            self._mute(wait_s)
            if not is_sent:
                response = FetchResponse(session_id=response.session_id)
        if self._is_metered:
            worked_s = self._worked_s + self._work_clock() - self._since
            self._mute(self._quotas.worked(self.user, self.client_id, worked_s, now))
        if not hasattr(response, "throttle_time_ms"):
            return response
        self._mute(response.throttle_time_ms / 1000)
        if self.peer.muted_until <= now:
            return response
        rest_ms = math.ceil((self.peer.muted_until - now) * 1000)
        return msgspec.structs.replace(response, throttle_time_ms=rest_ms)

    def metered(self, work: Coroutine[Any, Any, Chunks]) -> Coroutine[Any, Any, Chunks]:
        """The same work; its steps are measured if there is a quota for time."""
        self._worked_s += self._work_clock() - self._since
        return self._measured(work) if self._is_metered else work

    async def _measured(self, work: Coroutine[Any, Any, Chunks]) -> Chunks:
        return await self._stepped(work)

    @types.coroutine
    def _stepped(self, work: Coroutine[Any, Any, Chunks]) -> Generator[Any, Any, Chunks]:
        step: Callable[[Any], Any] = work.send
        sent: Any = None
        while True:
            self._since = self._work_clock()
            try:
                awaited = step(sent)
            except StopIteration as done:
                chunks: Chunks = done.value
                return chunks
            finally:
                self._worked_s += self._work_clock() - self._since
            try:
                step, sent = work.send, (yield awaited)
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                step, sent = work.throw, error

    def _mute(self, wait_s: float) -> None:
        if wait_s > 0:
            self.peer.muted_until = max(self.peer.muted_until, self._clock() + wait_s)
