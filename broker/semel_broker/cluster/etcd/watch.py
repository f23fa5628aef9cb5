"""A watch over an etcd stream that is opened again, from where it stood, as often as it takes.

A stream can die without a sign: a host that lost its power, a member that was paused, a network that drops what it
should carry. So one that has said nothing for QUIET_MS is opened anew, at the next endpoint if this one does not
answer. That costs one request and cannot leave anything out, because a stream begins after the last revision heard.
"""

from __future__ import annotations

from asyncio import Queue, Task, get_running_loop, sleep, timeout, wait
from typing import Final

import msgspec

from semel_broker.cluster.etcd import messages as etcd
from semel_broker.cluster.etcd.connection import CONNECTION_ERRORS, Connection
from semel_broker.cluster.etcd.gateway import Gateway, NotSentError, RefusedError, UnansweredError
from semel_broker.cluster.etcd.keys import Keys
from semel_broker.cluster.store import Changes, CompactedError, Entry, Gone, StoreClosedError
from semel_broker.world import World

PATH: Final = "/v3/watch"
OPEN_TIMEOUT_MS: Final = 2_000
QUIET_MS: Final = 15_000
QUEUE_LENGTH_MAX: Final = 64
"""Answers of etcd that the reader has not taken yet; then the stream is no longer read."""

_line = msgspec.json.Decoder(etcd.WatchLine, strict=False)


class EtcdWatch:
    """`Watch` over one stream at a time."""

    def __init__(self, gateway: Gateway, keys: Keys, world: World, prefix: str, revision: int) -> None:
        self._gateway = gateway
        self._keys = keys
        self._world = world
        self._prefix = prefix
        self._revision = revision
        self._heard = revision  # like `revision`, but what waits in the queue included
        self._backoff = gateway.backoff(world.rng)
        self._queue: Queue[Changes | int | Exception] = Queue(QUEUE_LENGTH_MAX)
        self._task: Task[None] = get_running_loop().create_task(self._run())

    @property
    def revision(self) -> int:
        """See `Watch`."""
        return self._revision

    def __aiter__(self) -> EtcdWatch:
        return self

    async def __anext__(self) -> Changes:
        while True:
            heard = await self._queue.get()
            if isinstance(heard, Changes):
                self._revision = heard.revision
                return heard
            if isinstance(heard, Exception):
                self._queue.put_nowait(heard)  # whoever asks again hears it again
                raise heard
            self._revision = heard

    async def close(self) -> None:
        """See `Watch`."""
        await self._end(StopAsyncIteration())

    async def store_closed(self) -> None:
        """The store is being closed under it."""
        await self._end(StoreClosedError("the store was closed while somebody watched it"))

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be heard."""
        return self._task.done()

    async def _end(self, how: Exception) -> None:
        self._task.cancel()
        await wait([self._task])
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(how)

    async def _run(self) -> None:
        try:
            while True:
                await self._stream()
        except Exception as error:  # CompactedError, or a bug of ours
            await self._queue.put(error)

    async def _stream(self) -> None:
        """Open a stream and hear it to its end. Raises CompactedError."""
        endpoint, error = self._gateway.endpoint, ""
        try:
            connection = await self._gateway.stream(PATH, self._request(), OPEN_TIMEOUT_MS)
            try:
                if await self._listen(connection):
                    return
                error = "the stream was ended"
            finally:
                self._gateway.discard(connection)
        except (NotSentError, UnansweredError, RefusedError, msgspec.DecodeError, *CONNECTION_ERRORS) as failure:
            error = str(failure) or type(failure).__name__
        self._gateway.move_on(endpoint)
        pause_s = self._backoff.failed()
        self._world.log.info("watch-interrupted", prefix=self._prefix, revision=self._heard, error=error)
        await sleep(pause_s)

    async def _listen(self, connection: Connection) -> bool:
        """Hear what comes; True if it was well but has become quiet, False if it was ended."""
        is_created = False
        while True:
            try:
                async with timeout((QUIET_MS if is_created else OPEN_TIMEOUT_MS) / 1000):
                    line = await connection.line()
            except TimeoutError:
                if is_created:
                    self._backoff.succeeded()
                return is_created
            if not line:
                return False
            answer = _line.decode(line)
            if answer.error is not None or answer.result is None:
                raise UnansweredError(answer.error.message if answer.error else f"neither result nor error: {line!r}")
            if answer.result.compact_revision:
                raise CompactedError(
                    f"the changes after revision {self._heard} are no longer kept, only those from "
                    f"{answer.result.compact_revision} on; list again"
                )
            if answer.result.canceled:
                raise UnansweredError(f"the watch was canceled: {answer.result.cancel_reason or 'no reason given'}")
            is_created = True
            if not answer.result.created:
                self._backoff.succeeded()
            await self._hear(answer.result)

    async def _hear(self, told: etcd.WatchResponse) -> None:
        changes = tuple(self._change(event) for event in told.events if event.kv.mod_revision > self._heard)
        if changes:
            await self._queue.put(Changes(changes, changes[-1].revision))
            self._heard = changes[-1].revision
        elif not told.events and not told.created and told.header.revision > self._heard:
            await self._queue.put(told.header.revision)
            self._heard = told.header.revision

    def _change(self, event: etcd.Event) -> Entry | Gone:
        key = self._keys.unpack(event.kv.key)
        if event.type == "DELETE":
            return Gone(key, event.kv.mod_revision)
        return Entry(key, event.kv.value, event.kv.mod_revision)

    def _request(self) -> bytes:
        key, range_end = self._keys.range(self._prefix)
        create = etcd.WatchCreateRequest(key, range_end, self._heard + 1, progress_notify=True)
        return msgspec.json.encode(etcd.WatchRequest(create))
