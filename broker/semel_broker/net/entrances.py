"""Makes new connections wait for their first request while their client is above a quota.

An answer throttles the connection that it goes to. A client that opens a connection for each request would never wait.
So the first request of a connection that counts for an exceeded quota is not started at once: such requests of all new
connections start one after another, in the order of arrival, at the pace of the quota. A connection whose first request
has been started is throttled by its answers, as in Kafka (KIP-219).
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ProtocolError
from semel_protocol.headers import read_request_header
from semel_protocol.quotas import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

from semel_broker.config.limits import Limits
from semel_broker.net.throttling import Mutable
from semel_broker.security.quotas.client_quotas import ClientQuotas
from semel_broker.security.quotas.table import Bound

PRODUCE = ApiKey.PRODUCE.value
STRICT_SINCE: dict[int, int] = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""These requests refuse changes above the quota from these versions on (KIP-599);
earlier ones make them."""
PACE_S_MIN = 0.01
"""Between two first requests whose share of the quota is known only when they are answered."""


class Entry:
    """A connection that waits for its first request. `start`: it may start. `cost_s`: the time that the request takes
    at the quota; 0.0: unknown."""

    __slots__ = ("_queue", "cost_s", "key", "size", "start")

    def __init__(self, key: str, size: int, cost_s: float, start: Callable[[], None], queue: Queue) -> None:
        self.key, self.size, self.cost_s, self.start = key, size, cost_s, start
        self._queue = queue

    def leave(self) -> None:
        """The connection is closed."""
        self._queue.leave(self)


class Queue:
    """The connections that wait for one quota of one client. The next one starts at `due_at`, in loop time."""

    def __init__(self, entrances: Entrances, key: str, bound: Bound, due_at: float) -> None:
        self.bound, self.due_at = bound, due_at
        self.cost_s = 0.0  # of those that wait
        self._entrances, self._key = entrances, key
        self._waiting: dict[Entry, None] = {}
        self._timer: TimerHandle = entrances.loop.call_at(due_at, self._next)

    def add(self, entry: Entry) -> None:
        self._waiting[entry] = None
        self.cost_s += entry.cost_s
        self._entrances.waiting_bytes += entry.size

    def leave(self, entry: Entry) -> None:
        if entry in self._waiting:
            del self._waiting[entry]
            self.cost_s -= entry.cost_s
            self._entrances.waiting_bytes -= entry.size

    def cancel(self) -> None:
        self._timer.cancel()

    def _next(self) -> None:
        entry = next(iter(self._waiting), None)
        if entry is None:
            self._entrances.forget(self._key, self.bound)
            return
        self.leave(entry)
        entry.start()
        pace_s = entry.cost_s or max(PACE_S_MIN, self._entrances.excess_s(self._key, self.bound))
        self.due_at = self._entrances.loop.time() + pace_s
        self._timer = self._entrances.loop.call_at(self.due_at, self._next)


class Entrances:
    """The queues of one server. `quotas`: of its clients; None: there are none. `waiting_bytes`: of the requests that
    wait."""

    def __init__(self, loop: AbstractEventLoop, quotas: ClientQuotas | None, limits: Limits) -> None:
        self.loop = loop
        self.waiting_bytes = 0
        self._quotas, self._limits = quotas, limits
        self._queues: dict[tuple[str, str | None, str | None], Queue] = {}

    def wait(self, frame: bytearray, peer: Mutable, entered: set[str], start: Callable[[], None]) -> Entry | bool:
        """What the next request of a connection does: wait (`start` is called once), or start now (True). False: too
        many wait, the connection is to be closed. `entered`: the quotas for which the connection has started a
        request; this adds to it.
        """
        if self._quotas is None:
            return True
        try:
            header = read_request_header(frame)
        except ProtocolError:
            return True  # it closes the connection
        now, user, client_id = self.loop.time(), peer.authenticated.user, header.client_id or ""
        for key in _keys(header.api_key, header.api_version):
            if key in entered:
                continue
            excess = self._quotas.excess(key, user, client_id, now)
            if excess is not None:
                bound, wait_s = excess
                queue = self._queues.get((key, bound.user, bound.client_id))
                if wait_s > 0 or queue is not None:
                    return self._queue(key, bound, wait_s, queue, len(frame), start)
            entered.add(key)
        return True

    def excess_s(self, key: str, bound: Bound) -> float:
        """The time that the excess of these clients takes at their quota."""
        if self._quotas is None:
            return 0.0
        return self._quotas.excess_of(key, bound, self.loop.time())

    def forget(self, key: str, bound: Bound) -> None:
        """Nothing waits for this quota any more."""
        del self._queues[key, bound.user, bound.client_id]

    def close(self) -> None:
        """Cancel the timers; no connection is left."""
        for queue in self._queues.values():
            queue.cancel()

    def _queue(
        self, key: str, bound: Bound, wait_s: float, queue: Queue | None, size: int, start: Callable[[], None]
    ) -> Entry | bool:
        assert self._quotas is not None
        now = self.loop.time()
        cost_s = min(size / bound.value, self._quotas.window.length_s) if key == PRODUCER_BYTE_RATE else 0.0
        due_s = wait_s if queue is None else queue.due_at - now + queue.cost_s
        self._quotas.waits(key, bound, max(0.0, due_s), now)
        if due_s > self._limits.quota_wait_s_max or self.waiting_bytes + size > self._limits.quota_waiting_bytes_max:
            return False
        if queue is None:
            queue = self._queues[key, bound.user, bound.client_id] = Queue(self, key, bound, now + wait_s)
        entry = Entry(key, size, cost_s, start, queue)
        queue.add(entry)
        return entry


def _keys(api_key: int, version: int) -> tuple[str, ...]:
    """The quotas that a request counts for, other than those that bound its answer."""
    if api_key == PRODUCE:
        return (PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE)
    if version < STRICT_SINCE.get(api_key, 0):
        return (CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE)
    return (REQUEST_PERCENTAGE,)
