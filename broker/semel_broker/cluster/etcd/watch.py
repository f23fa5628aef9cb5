"""A watch over an etcd stream. A stream that fails is opened again at the last received revision.

A stream can fail without an error: a host loses its power, a member is paused, a network drops packets. So a stream
that has carried nothing for QUIET_MS is opened again, at the next endpoint if this one does not answer. That costs one
request. No change is left out, because the new stream begins after the last received revision.

QUIET_MS is long for a broker that serves on what it knows. A stream is opened again at once if other answers of etcd
show that it is behind (`keep_up`). If others write to the same etcd, outside the prefix, this happens without need, at
most as often as `keep_up` is called.
"""

from __future__ import annotations

from asyncio import Queue, Task, Timeout, get_running_loop, sleep, timeout, wait
from typing import Final

import msgspec

from semel_broker.cluster.etcd import messages as etcd
from semel_broker.cluster.etcd.connection import CONNECTION_ERRORS, EtcdConnection
from semel_broker.cluster.etcd.gateway import EtcdRefusedError, Gateway, NotSentError, UnansweredError
from semel_broker.cluster.etcd.messages import Keys
from semel_broker.cluster.store import Changes, CompactedError, RemovedKey, StoreClosedError, StoreEntry
from semel_broker.world import World

PATH: Final = "/v3/watch"
OPEN_TIMEOUT_MS: Final = 2_000
QUIET_MS: Final = 15_000
QUEUE_LENGTH_MAX: Final = 64
"""Responses of etcd that wait for the reader. At this bound the stream is not read."""

_line = msgspec.json.Decoder(etcd.WatchLine, strict=False)


class EtcdWatch:
    """`Watch` over one stream at a time."""

    def __init__(self, gateway: Gateway, keys: Keys, world: World, prefix: str, revision: int) -> None:
        self._gateway = gateway
        self._keys = keys
        self._world = world
        self._prefix = prefix
        self._revision = revision
        self._received = revision  # like `revision`, including what is in the queue
        self._opened_at = 0  # etcd's revision when it opened the stream
        self._silence: Timeout | None = None  # while an open stream is read
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
            item = await self._queue.get()
            if isinstance(item, Changes):
                self._revision = item.revision
                return item
            if isinstance(item, Exception):
                self._queue.put_nowait(item)  # the next call raises it too
                raise item
            self._revision = item

    def keep_up(self, revision: int) -> None:
        """Open the stream again if it has not carried the changes up to a revision that etcd had some time ago."""
        silence = self._silence
        if silence is None or silence.expired():  # expired: QUIET_MS has just passed
            return
        if max(self._received, self._opened_at) < revision:
            self._world.log.info("watch_late", prefix=self._prefix, revision=self._received, store_revision=revision)
            silence.reschedule(get_running_loop().time())
            self._silence = None

    async def close(self) -> None:
        """See `Watch`."""
        await self._end(StopAsyncIteration())

    async def store_closed(self) -> None:
        """End the watch because its store is closed."""
        await self._end(StoreClosedError("the store was closed during the watch"))

    @property
    def is_over(self) -> bool:
        """Whether the watch receives nothing more."""
        return self._task.done()

    async def _end(self, error: Exception) -> None:
        self._task.cancel()
        await wait([self._task])
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(error)

    async def _run(self) -> None:
        try:
            while True:
                await self._stream()
        except Exception as error:  # CompactedError, or a bug of semel
            await self._queue.put(error)

    async def _stream(self) -> None:
        """Open a stream and read it to its end. Raises CompactedError."""
        endpoint, error = self._gateway.endpoint, ""
        try:
            connection = await self._gateway.stream(PATH, self._request(), OPEN_TIMEOUT_MS)
            try:
                if await self._read(connection):
                    return
                error = "etcd ended the stream"
            finally:
                self._gateway.discard(connection)
        except (NotSentError, UnansweredError, EtcdRefusedError, msgspec.DecodeError, *CONNECTION_ERRORS) as failure:
            error = str(failure) or type(failure).__name__
        self._gateway.leave(endpoint)
        pause_s = self._backoff.next_ms() / 1000
        self._world.log.info("watch_interrupted", prefix=self._prefix, revision=self._received, error=error)
        await sleep(pause_s)

    async def _read(self, connection: EtcdConnection) -> bool:
        """Read the lines of a stream. True: nothing was received for QUIET_MS, or the stream is behind. False: etcd
        ended the stream.
        """
        is_created = False
        while True:
            try:
                async with timeout((QUIET_MS if is_created else OPEN_TIMEOUT_MS) / 1000) as silence:
                    self._silence = silence if is_created else None
                    line = await connection.line()
            except TimeoutError:
                if is_created:
                    self._backoff.reset()
                return is_created
            finally:
                self._silence = None
            if not line:
                return False
            answer = _line.decode(line)
            if answer.error is not None or answer.result is None:
                raise UnansweredError(answer.error.message if answer.error else f"neither result nor error: {line!r}")
            if answer.result.compact_revision:
                raise CompactedError(
                    f"the changes after revision {self._received} are no longer kept, only those from "
                    f"{answer.result.compact_revision} on; list again"
                )
            if answer.result.canceled:
                raise UnansweredError(f"the watch was canceled: {answer.result.cancel_reason or 'no reason given'}")
            is_created = True
            if answer.result.created:
                self._opened_at = answer.result.header.revision
            else:
                self._backoff.reset()
            await self._publish(answer.result)

    async def _publish(self, response: etcd.WatchResponse) -> None:
        changes = tuple(self._change(event) for event in response.events if event.kv.mod_revision > self._received)
        if changes:
            await self._queue.put(Changes(changes, changes[-1].revision))
            self._received = changes[-1].revision
        elif not response.events and not response.created and response.header.revision > self._received:
            await self._queue.put(response.header.revision)
            self._received = response.header.revision

    def _change(self, event: etcd.EtcdEvent) -> StoreEntry | RemovedKey:
        key = self._keys.unpack(event.kv.key)
        if event.type == "DELETE":
            return RemovedKey(key, event.kv.mod_revision)
        return StoreEntry(key, event.kv.value, event.kv.mod_revision)

    def _request(self) -> bytes:
        key, range_end = self._keys.range(self._prefix)
        create = etcd.WatchCreateRequest(key, range_end, self._received + 1, progress_notify=True)
        return msgspec.json.encode(etcd.WatchRequest(create))
