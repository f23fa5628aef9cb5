"""The clients that push metrics: one instance for each id, with its subscription, its times and its last values.

`ClientTelemetry` is the receiver of one broker. Its memory is bounded: the number of instances, the series of one
instance, and the series of all of them (`metrics.series.max`). When there are too many instances, the one that was
silent for longest is removed. An instance that is silent for three intervals is removed too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec
from crc32c import crc32c
from semel_protocol.compression import BYTES_MAX, CODEC_NAMES
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.schema import ZERO_UUID

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta
from semel_broker.config.client_metrics_configs import ALL_METRICS, INTERVAL_MS, MetricsSubscription, subscription
from semel_broker.config.loading import BrokerConfig
from semel_broker.config.settings import ConfigError
from semel_broker.pushed_points import Point
from semel_broker.topics import dynamic_configs
from semel_broker.world import World

if TYPE_CHECKING:
    from semel_broker.telemetry.forward import Forwarder

SILENT_S_MIN: Final = 60.0
SILENT_INTERVALS: Final = 3
"""An instance is removed after so many intervals without a request, and not before SILENT_S_MIN."""
TEXT_LENGTH_MAX: Final = 200
"""Characters of a name, a value or a client's text that are kept."""
ATTRIBUTES_MAX: Final = 8
RESERVED_IDS: Final = (ZERO_UUID, bytes(15) + b"\x01")
"""No instance has these ids."""

SeriesKey = tuple[str, tuple[tuple[str, str], ...]]
"""(name, attributes)."""


class Client(msgspec.Struct, frozen=True):
    """The facts that a broker has about the client of a request."""

    client_id: str
    software: str
    version: str
    host: str
    port: int

    def values(self, instance_id: bytes) -> dict[str, str]:
        """By the keys of `match`."""
        found = (self.client_id, str(UUID(bytes=instance_id)), self.software, self.version, self.host, str(self.port))
        keys = (
            "client_id",
            "client_instance_id",
            "client_software_name",
            "client_software_version",
            "client_source_address",
            "client_source_port",
        )
        return {key: value[:TEXT_LENGTH_MAX] for key, value in zip(keys, found, strict=True)}


class Instance:
    """One client. `labels`: client id, software, version, and its own id. Times are of the monotonic clock.

    may_get: the last push was refused for a reason that a new GetTelemetrySubscriptions resolves. is_invited: none was
    sent since the last GetTelemetrySubscriptions.
    """

    __slots__ = (
        "generation",
        "got_at",
        "interval_ms",
        "is_invited",
        "is_terminating",
        "labels",
        "may_get",
        "metrics",
        "pushed_at",
        "seen_at",
        "series",
        "subscription_id",
    )

    def __init__(self, labels: tuple[str, str, str, str], now: float) -> None:
        self.labels = labels
        self.generation = -1
        self.metrics: tuple[str, ...] = ()
        self.interval_ms = INTERVAL_MS
        self.subscription_id = 0
        self.got_at: float | None = None
        self.pushed_at: float | None = None
        self.seen_at = now
        self.may_get = self.is_invited = self.is_terminating = False
        self.series: dict[SeriesKey, Point] = {}

    @property
    def interval_s(self) -> float:
        return self.interval_ms / 1000

    def take_get(self, now: float) -> bool:
        """Whether GetTelemetrySubscriptions comes in time: one interval after the last request, or after a refusal."""
        last = max((at for at in (self.got_at, self.pushed_at) if at is not None), default=None)
        if last is not None and now - last < self.interval_s and not self.may_get:
            return False
        self.got_at, self.may_get, self.is_invited = now, False, True
        return True

    def take_push(self, now: float) -> bool:
        """Whether a push comes in time: after a GetTelemetrySubscriptions, or one interval after the last push."""
        if not self.is_invited and self.pushed_at is not None and now - self.pushed_at < self.interval_s:
            return False
        self.pushed_at, self.is_invited = now, False
        return True


class TelemetryCounters(msgspec.Struct):
    """`refused`: by error code. `dropped_series`: points that were left out at a bound."""

    pushes: int = 0
    bytes_in: int = 0
    refused: dict[int, int] = {}
    dropped_series: int = 0
    evicted: int = 0


class ClientTelemetry:
    """The receiver of one broker. `forwarder`: gets each payload, decompressed; None: payloads stay here."""

    def __init__(self, world: World, feed: Feed, config: BrokerConfig, forwarder: Forwarder | None = None) -> None:
        self.counters = TelemetryCounters()
        self.forwarder = forwarder
        self._world, self._feed, self._config = world, feed, config
        self._instances: dict[bytes, Instance] = {}  # the one that was silent for longest first
        self._generation = 0
        self._subscriptions: list[MetricsSubscription] = []
        self._series = 0
        self._is_full = False
        feed.listeners.append(self._follow)
        self._read_subscriptions()

    # --- the two requests ---

    def get(self, instance_id: bytes, client: Client) -> tuple[bytes, Instance]:
        """The instance and its id, which is made here for a client without one. Raises THROTTLING_QUOTA_EXCEEDED."""
        if instance_id in RESERVED_IDS:
            instance_id = self._new_id()
        instance = self._instance(instance_id, client)
        if not instance.take_get(self._world.monotonic()):
            raise self.refusal(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"the interval of {instance.interval_ms} ms is not over"
            )
        return instance_id, instance

    def begin_push(
        self, instance_id: bytes, client: Client, subscription_id: int, codec: int, size: int, *, is_last: bool
    ) -> Instance:
        """Check a push before its bytes are looked at. is_last: the client terminates.

        Raises INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE,
        TELEMETRY_TOO_LARGE.
        """
        if instance_id in RESERVED_IDS:
            raise self.refusal(ErrorCode.INVALID_REQUEST, "the client instance id is reserved")
        instance = self._instance(instance_id, client)
        was_last, instance.is_terminating = instance.is_terminating, is_last
        if was_last:
            raise self.refusal(ErrorCode.INVALID_REQUEST, "the client has pushed its last metrics already")
        if not instance.take_push(self._world.monotonic()) and not is_last:
            raise self.refusal(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"the interval of {instance.interval_ms} ms is not over"
            )
        if subscription_id != instance.subscription_id:
            instance.may_get = True
            raise self.refusal(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscriptions have changed: ask for them again")
        if codec not in CODEC_NAMES:
            instance.may_get = True
            raise self.refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {codec}")
        if size > self._config.telemetry_max_bytes:
            limit = self._config.telemetry_max_bytes
            raise self.refusal(ErrorCode.TELEMETRY_TOO_LARGE, f"{size} bytes, telemetry.max.bytes={limit} are allowed")
        self.counters.pushes += 1
        self.counters.bytes_in += size
        return instance

    def refusal(self, code: ErrorCode, why: str) -> KafkaError:
        """The error to raise; it is counted."""
        self.counters.refused[code] = self.counters.refused.get(code, 0) + 1
        return KafkaError(code, why)

    @property
    def inflated_bytes_max(self) -> int:
        """The largest push, decompressed."""
        return min(BYTES_MAX, self._config.limits.telemetry_inflated_bytes_max)

    # --- values ---

    def note(self, instance: Instance, point: Point) -> None:
        """Keep the value of a point. One that is beyond a bound is counted, and left out."""
        attributes = tuple((_cut(key), _cut(value)) for key, value in point.attributes[:ATTRIBUTES_MAX])
        key = (_cut(point.name), attributes)
        before = instance.series.get(key)
        if before is None:
            limits = self._config.limits
            if (
                len(instance.series) >= limits.telemetry_instance_series_max
                or self._series >= self._config.metrics_series_max
            ):
                self.counters.dropped_series += 1
                self._log_full()
                return
            self._series += 1
        elif point.is_delta:
            point = msgspec.structs.replace(point, value=before.value + point.value)
        instance.series[key] = point

    def instances(self) -> Iterator[Instance]:
        """Those that are not silent for too long."""
        self._remove_silent()
        yield from list(self._instances.values())

    def __len__(self) -> int:
        return len(self._instances)

    # --- inside ---

    def _instance(self, instance_id: bytes, client: Client) -> Instance:
        now = self._world.monotonic()
        self._remove_silent()
        instance = self._instances.pop(instance_id, None)
        values = client.values(instance_id)
        if instance is None:
            if len(self._instances) >= self._config.limits.telemetry_instances_max:
                self._remove(next(iter(self._instances)))
                self.counters.evicted += 1
            labels = (
                values["client_id"],
                values["client_software_name"],
                values["client_software_version"],
                values["client_instance_id"],
            )
            instance = Instance(labels, now)
        self._instances[instance_id] = instance
        instance.seen_at = now
        if instance.generation != self._generation:
            self._subscribe(instance, values, instance_id)
        return instance

    def _subscribe(self, instance: Instance, values: dict[str, str], instance_id: bytes) -> None:
        """The union of all subscriptions that select the client. A new one is in force at once (KIP-714)."""
        wanted = [each for each in self._subscriptions if each.selects(values)]
        names = dict.fromkeys(name for each in wanted for name in each.metrics)
        interval_ms = min((each.interval_ms for each in wanted), default=INTERVAL_MS)
        metrics = (ALL_METRICS,) if ALL_METRICS in names else tuple(sorted(names))
        text = repr((metrics, interval_ms)).encode() + instance_id
        subscription_id = int.from_bytes(crc32c(text).to_bytes(4, "big"), "big", signed=True)
        if instance.generation >= 0 and subscription_id != instance.subscription_id:
            instance.may_get = True
        instance.metrics, instance.interval_ms = metrics, interval_ms
        instance.subscription_id, instance.generation = subscription_id, self._generation

    def _new_id(self) -> bytes:
        while True:
            made = UUID(int=self._world.rng.getrandbits(128), version=4).bytes
            if made not in self._instances:
                return made

    def _remove_silent(self) -> None:
        now = self._world.monotonic()
        for instance_id, instance in list(self._instances.items()):
            if now - instance.seen_at <= SILENT_S_MIN:
                break  # those behind it have sent a request later
            if now - instance.seen_at > SILENT_INTERVALS * instance.interval_s:
                self._remove(instance_id)

    def _remove(self, instance_id: bytes) -> None:
        self._series -= len(self._instances.pop(instance_id).series)
        self._is_full = self._is_full and self._series >= self._config.metrics_series_max

    def _log_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            self._world.log.warning(
                "client_metrics_dropped",
                series=self._series,
                do="subscribe to fewer metrics or clients, or raise metrics.series.max",
            )

    def _follow(self, delta: ImageDelta) -> None:
        if any(key.startswith(dynamic_configs.CLIENT_METRICS_PREFIX) for key in delta.configs):
            self._read_subscriptions()

    def _read_subscriptions(self) -> None:
        self._generation += 1
        self._subscriptions = []
        for name, given in dynamic_configs.client_metrics(self._feed.image).items():
            try:
                self._subscriptions.append(subscription(given))
            except (ConfigError, KafkaError) as error:  # stored by another version
                self._world.log.warning("subscription_ignored", subscription=name, error=str(error))


def _cut(text: str) -> str:
    return text[:TEXT_LENGTH_MAX]
