"""Parses the options of the source: topics, start and end positions, and limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec
from semel.batch_reader import BatchReaderConfig
from semel.structs import TopicPartition

from pyspark_semel.options import (
    BOOTSTRAP_MS,
    OptionError,
    SparkClientSettings,
    UserOptions,
    client_settings,
    whole_number,
)
from pyspark_semel.source.offsets import Splitting

TOPICS = ("assign", "subscribe", "subscribePattern")
STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""The first option that is set applies."""
STRATEGY = "startingOffsetsByTimestampStrategy"
POLL_TIMEOUT = "kafkaConsumer.pollTimeoutMs"
POINTLESS = ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix")
"""Options of Spark's own Kafka source without effect here: the client retries by itself and needs no group."""
ABSENT = ("minOffsetsPerTrigger", "maxTriggerDelay")
KNOWN = (
    *TOPICS, *STARTING, *ENDING, STRATEGY, "failOnDataLoss", "includeHeaders", "maxOffsetsPerTrigger", "minPartitions",
    "maxRecordsPerPartition", POLL_TIMEOUT, *POINTLESS, *ABSENT,
)  # fmt: skip

REFUSED = {
    "auto.offset.reset": "set startingOffsets to choose the start",
    "enable.auto.commit": "Spark stores the offsets in its checkpoint",
    "interceptor.classes": "the client cannot run Java classes",
    "key.deserializer": "keys are binary; change them with DataFrame operations",
    "value.deserializer": "values are binary; change them with DataFrame operations",
}
DEFAULTS = {"isolation_level": "read_committed", "bootstrap_timeout_ms": BOOTSTRAP_MS, "client_id": "semel-spark"}

EARLIEST, LATEST = -2, -1
"""Special offsets for the start and the end of a partition."""


class Where(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "by offset"
    TIMES = "by time"


class Position(msgspec.Struct, frozen=True):
    """A position in every partition. `option`: the name of the option, for messages.

    by_partition: offsets or times (ms). For Where.TIMES, `time_ms` can apply to all partitions instead.
    """

    option: str
    where: Where
    by_partition: dict[TopicPartition, int] = {}
    time_ms: int | None = None


class TopicChoice(msgspec.Struct, frozen=True):
    """The topics to read, one of three: names, a pattern that matches whole names, or partitions."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def selects(self, at: TopicPartition) -> bool:
        """Whether these are topics of this partition."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, at.topic) is not None
        return at.topic in self.names or at in self.partitions


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a read; plain data, because it is sent to the workers."""

    client: SparkClientSettings
    topics: TopicChoice
    starting: Position | None
    ending: Position | None
    latest_if_no_time: bool
    """If a partition has no record at or after the starting time: True starts at its end, False is an error."""
    fail_on_data_loss: bool
    headers: bool
    offsets_max: int | None
    splitting: Splitting

    def start(self, default: Where) -> Position:
        return self.starting or Position("startingOffsets", default)

    @property
    def end(self) -> Position:
        return self.ending or Position("endingOffsets", Where.LATEST)


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse the options. Raises OptionError, whose message gives the value to write."""
    options = UserOptions(given, KNOWN, "source")
    for name in ABSENT:
        if name in options:
            raise OptionError(
                f"{name} is not supported: set a processing-time trigger, and maxOffsetsPerTrigger for the most that "
                "one batch may take"
            )
    defaults: dict[str, Any] = dict(DEFAULTS)
    if (timeout_ms := options.count(POLL_TIMEOUT)) is not None:
        defaults["default_api_timeout_ms"] = timeout_ms
    return SourceOptions(
        client=client_settings(options, BatchReaderConfig, refused=REFUSED, defaults=defaults),
        topics=_topics(options),
        starting=_position(options, STARTING),
        ending=_position(options, ENDING),
        latest_if_no_time=options.choice(STRATEGY, ("error", "latest"), "error") == "latest",
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        headers=options.flag("includeHeaders", False),
        offsets_max=options.count("maxOffsetsPerTrigger"),
        splitting=Splitting(options.count("minPartitions"), options.count("maxRecordsPerPartition")),
    )


def batch_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse the options of a batch query. Raises OptionError."""
    options = source_options(given)
    for position, forbidden in ((options.starting, LATEST), (options.ending, EARLIEST)):
        name = "latest" if forbidden == LATEST else "earliest"
        if position is None or position.where is Where.TIMES:
            continue
        if position.where.value == name or forbidden in position.by_partition.values():
            raise OptionError(f"{position.option}: {name} ({forbidden}) would leave a batch query nothing to read")
    return options


def stream_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse the options of a streaming query. Raises OptionError."""
    options = source_options(given)
    if options.ending is not None:
        raise OptionError(f"{options.ending.option}: a streaming query has no end; use Trigger.AvailableNow")
    return options


def _topics(options: UserOptions) -> TopicChoice:
    given = [name for name in TOPICS if name in options]
    if len(given) != 1:
        raise OptionError(f"give exactly one of {', '.join(TOPICS)}" + (f", not {len(given)}" if given else ""))
    text = options.text(given[0], "")
    if given[0] == "assign":
        assigned = _json(given[0], text, dict[str, list[int]], '{"flights": [0, 1]}')
        found = TopicChoice(
            partitions=tuple(TopicPartition(topic, at) for topic, each in assigned.items() for at in each)
        )
    elif given[0] == "subscribe":
        found = TopicChoice(names=tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())))
    else:
        try:
            re.compile(text)
        except re.error as e:
            raise OptionError(f"subscribePattern={text!r} is not a regular expression: {e}") from None
        found = TopicChoice(pattern=text or None)
    if found == TopicChoice():
        raise OptionError(f"{given[0]} is empty: name a topic")
    return found


def _position(options: UserOptions, names: tuple[str, ...]) -> Position | None:
    """Return the position of the first of these options that is set; None if none is set."""
    name = next((name for name in names if name in options), None)
    if name is None:
        return None
    text = options.text(name, "").strip()
    if name.endswith("Timestamp") and "By" not in name:
        return Position(name, Where.TIMES, time_ms=whole_number(name, text, 0))
    if text.lower() in ("earliest", "latest") and "By" not in name:
        return Position(name, Where(text.lower()))
    example = '{"flights": {"0": 1700000000000}}' if "By" in name else 'earliest, latest or {"flights": {"0": 17}}'
    found = _json(name, text, dict[str, dict[int, int]], example)
    by_partition = {TopicPartition(topic, at): place for topic, each in found.items() for at, place in each.items()}
    least = 0 if "By" in name else EARLIEST
    for at, place in by_partition.items():
        if place < least:
            raise OptionError(f"{name}: {place} for {at.topic}-{at.partition} is out of range")
    return Position(name, Where.TIMES if "By" in name else Where.OFFSETS, by_partition)


def _json(name: str, text: str, kind: Any, example: str) -> Any:
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except (msgspec.DecodeError, msgspec.ValidationError) as e:
        raise OptionError(f"{name}={text!r}: {e}; write {example}") from None
