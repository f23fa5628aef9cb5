"""PURE: records what clients do against their quotas, and says for how long they are throttled.

Byte rates and shares of time are rates over a window (KIP-13, KIP-124). Changes of topics and new connections are token
buckets (KIP-599, KIP-612). All times are seconds of one clock, and come in as arguments.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

from semel_broker.security.quotas.rate import Rate, TokenBucket, Window
from semel_broker.security.quotas.table import Bound, QuotaTable
from semel_broker.world import Logger, SilentLogger

PERCENT = 100.0
REQUEST_WAIT_S_MAX = 1.0
"""The longest throttle for a share of time, and the longest wait of a new connection; Kafka's."""
LOGGED_EVERY = 1_000
"""A client that is throttled again and again is logged after this many times."""


SENSORS_MAX = 10_000
SILENT_S = 3_600.0

S = TypeVar("S")


class Sensors(Generic[S]):
    """Rates or token buckets by name, in bounded memory; `made` makes a new one.

    One that is silent for an hour is removed. At the bound the one that is silent for the longest time is removed: a
    client with a new client id in each request does not fill the memory.
    """

    def __init__(self, made: Callable[[], S], most: int = SENSORS_MAX) -> None:
        self._made, self._most = made, most
        self._sensors: OrderedDict[Hashable, tuple[S, float]] = OrderedDict()  # with the time of the last use

    def __len__(self) -> int:
        return len(self._sensors)

    def get(self, name: Hashable, now: float) -> S:
        """The sensor of this name."""
        found = self._sensors.pop(name, None)
        sensor = self._made() if found is None else found[0]
        self._sensors[name] = (sensor, now)
        while len(self._sensors) > self._most or now - next(iter(self._sensors.values()))[1] > SILENT_S:
            self._sensors.popitem(last=False)
        return sensor


class Throttled(msgspec.Struct):
    """How often and how long the clients of one quota were throttled."""

    count: int = 0
    seconds: float = 0.0


class ConnectionAdmission(msgspec.Struct, frozen=True):
    """The treatment of a new connection: it is not read for `wait_s`; if it is refused, it is then closed."""

    wait_s: float = 0.0
    is_refused: bool = False


ADMITTED = ConnectionAdmission()


class ClientQuotas:
    """One per broker. `throttled`: by the name of the quota, since the start."""

    def __init__(
        self,
        window: Window | None = None,
        mutation_window: Window | None = None,
        log: Logger | None = None,
    ) -> None:
        self.table = QuotaTable()
        self.window = Window() if window is None else window
        self.throttled: dict[str, Throttled] = {}
        self.is_active = False
        self.is_metered = False
        self.has_ip_rates = False
        buckets = Window() if mutation_window is None else mutation_window
        self._log: Logger = SilentLogger() if log is None else log
        self._rates: Sensors[Rate] = Sensors(lambda: Rate(self.window))
        self._mutations: Sensors[TokenBucket] = Sensors(lambda: TokenBucket(buckets))
        self._connections: Sensors[TokenBucket] = Sensors(lambda: TokenBucket(self.window))
        self._clients: Sensors[Throttled] = Sensors(Throttled)

    def changed(self) -> None:
        """The table has changed: see which parts are needed at all."""
        keys = self.table.keys
        self.is_active = bool(keys.difference(IP_KEYS))
        self.is_metered = REQUEST_PERCENTAGE in keys
        self.has_ip_rates = CONNECTION_CREATION_RATE in keys

    def produced(self, user: str, client_id: str, size: int, now: float) -> float:
        """Count the bytes of a Produce request; return the seconds for which the client is throttled."""
        bound = self.table.bound(PRODUCER_BYTE_RATE, user, client_id)
        if bound is None:
            return 0.0
        rate = self._rate(PRODUCER_BYTE_RATE, bound, now)
        rate.record(size, now)
        return self._noted(PRODUCER_BYTE_RATE, bound, rate.wait_s(bound.value, now), now)

    def fetch_bytes_max(self, user: str, client_id: str) -> float | None:
        """The bytes that a response to Fetch may have at most; None: there is no quota."""
        bound = self.table.bound(CONSUMER_BYTE_RATE, user, client_id)
        return None if bound is None else bound.value * self.window.shortest_s

    def fetched(self, user: str, client_id: str, size: int, now: float) -> tuple[float, bool]:
        """Count the bytes of a response to Fetch.

        Returns the seconds for which the client is throttled, and whether it gets these bytes now. If not, they are
        not counted, and the client fetches them again. Bytes above the quota of a whole window pass if there are no
        others in it; a client could otherwise never read past one large batch.
        """
        bound = self.table.bound(CONSUMER_BYTE_RATE, user, client_id)
        if bound is None:
            return 0.0, True
        rate = self._rate(CONSUMER_BYTE_RATE, bound, now)
        is_first = rate.total(now) <= 0
        rate.record(size, now)
        wait_s = rate.wait_s(bound.value, now)
        is_sent = wait_s <= 0 or is_first
        if not is_sent:
            rate.record(-size, now)
        return self._noted(CONSUMER_BYTE_RATE, bound, wait_s, now), is_sent

    def worked(self, user: str, client_id: str, seconds: float, now: float) -> float:
        """Count the time in which the event loop worked on a request; return the seconds of the throttle."""
        bound = self.table.bound(REQUEST_PERCENTAGE, user, client_id)
        if bound is None:
            return 0.0
        rate = self._rate(REQUEST_PERCENTAGE, bound, now)
        rate.record(seconds * PERCENT, now)
        wait_s = min(rate.wait_s(bound.value, now), REQUEST_WAIT_S_MAX)
        return self._noted(REQUEST_PERCENTAGE, bound, wait_s, now)

    def mutations(self, user: str, client_id: str, *, is_strict: bool, clock: Callable[[], float]) -> Mutations | None:
        """The changes of topics of one request; None: there is no quota. `is_strict`: see `Mutations`."""
        bound = self.table.bound(CONTROLLER_MUTATION_RATE, user, client_id)
        if bound is None:
            return None
        bucket = self._mutations.get((bound.user, bound.client_id), clock())
        return Mutations(bucket, bound, clock, self._noted, is_strict=is_strict)

    def connected(self, ip: str, now: float) -> ConnectionAdmission:
        """Count a new connection.

        One that comes too early waits until it is due. One that would wait for longer than a second is refused, and
        not counted.
        """
        found = self.table.connection_rate(ip)
        if found is None:
            return ADMITTED
        sharers, rate = found
        bucket = self._connections.get(sharers, now)
        bucket.take(1, rate, now)
        wait_s = bucket.wait_s(rate, now)
        if wait_s <= 0:
            return ADMITTED
        is_refused = wait_s > REQUEST_WAIT_S_MAX
        if is_refused:
            bucket.take(-1, rate, now)
            wait_s = REQUEST_WAIT_S_MAX
        self._note(CONNECTION_CREATION_RATE, (sharers,), wait_s, now, ip=sharers)
        return ConnectionAdmission(wait_s, is_refused)

    def excess(self, key: str, user: str, client_id: str, now: float) -> tuple[Bound, float] | None:
        """The quota of a client for requests that are counted before or after they are done, and the seconds that its
        present excess takes at the quota; None: it has no such quota."""
        bound = self.table.bound(key, user, client_id)
        return None if bound is None else (bound, self.excess_of(key, bound, now))

    def excess_of(self, key: str, bound: Bound, now: float) -> float:
        """The seconds that the excess of the clients that share a quota takes at it."""
        if key == CONTROLLER_MUTATION_RATE:
            return self._mutations.get((bound.user, bound.client_id), now).wait_s(bound.value, now)
        wait_s = self._rate(key, bound, now).wait_s(bound.value, now)
        return min(wait_s, REQUEST_WAIT_S_MAX) if key == REQUEST_PERCENTAGE else wait_s

    def waits(self, key: str, bound: Bound, wait_s: float, now: float) -> None:
        """Note that the first request of a new connection waits for so long."""
        self._noted(key, bound, wait_s, now)

    def _rate(self, key: str, bound: Bound, now: float) -> Rate:
        return self._rates.get((key, bound.user, bound.client_id), now)

    def _noted(self, key: str, bound: Bound, wait_s: float, now: float) -> float:
        if wait_s > 0:
            names = {"user": bound.user, "client_id": bound.client_id}
            self._note(key, (bound.user, bound.client_id), wait_s, now, **names)
        return wait_s

    def _note(self, key: str, names: tuple[str | None, ...], wait_s: float, now: float, **fields: str | None) -> None:
        client = self._clients.get((key, *names), now)
        for throttled in (self.throttled.setdefault(key, Throttled()), client):
            throttled.count += 1
            throttled.seconds += wait_s
        if client.count % LOGGED_EVERY == 1:
            known = {name: text for name, text in fields.items() if text is not None}
            self._log.info("client_throttled", quota=key, throttle_ms=round(wait_s * 1000), times=client.count, **known)


class Mutations:
    """The changes of topics of one request, each counted as its partitions.

    Strict: a change is refused while earlier ones exceed the quota. Otherwise all changes are made. In both cases the
    client is throttled for `throttle_s`.
    """

    def __init__(
        self,
        bucket: TokenBucket,
        bound: Bound,
        clock: Callable[[], float],
        noted: Callable[[str, Bound, float, float], float],
        *,
        is_strict: bool,
    ) -> None:
        self._bucket, self._bound, self._clock, self._noted = bucket, bound, clock, noted
        self._is_strict = is_strict
        self.throttle_s = 0.0

    def take(self, partitions: int) -> None:
        """Count a change that is about to be made. Raises THROTTLING_QUOTA_EXCEEDED; then it is not counted."""
        now, rate = self._clock(), self._bound.value
        if self._is_strict:
            self.throttle_s = self._noted(CONTROLLER_MUTATION_RATE, self._bound, self._bucket.wait_s(rate, now), now)
            if self.throttle_s > 0:
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"{CONTROLLER_MUTATION_RATE} is {rate:g} partitions a second: try again in {self.throttle_s:.3f} s",
                )
            self._bucket.take(partitions, rate, now)
            return
        self._bucket.take(partitions, rate, now)
        self.throttle_s = self._noted(CONTROLLER_MUTATION_RATE, self._bound, self._bucket.wait_s(rate, now), now)


def throttle_ms(mutations: Mutations | None) -> int:
    """The throttle time of a response; 0: there is no quota, or it is not exceeded."""
    return 0 if mutations is None else math.ceil(mutations.throttle_s * 1000)
