"""The overview: brokers, health, ends of all partitions, and what needs attention first; settings of brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from semel import Admin, TopicPartition
from semel.admin import LATEST, ConfigResource, ConfigResourceType
from semel.diagnose import (
    OpenTransaction,
    by_transaction,
    cluster_health,
    describe_transaction,
    health_facts,
    known_offsets,
    open_transaction_facts,
    open_transactions,
)
from semel.errors import TopicAuthorizationFailedError, UnsupportedVersionError
from semel.structs import PartitionMetadata

from semel_console.facts.sizes import sizes_of
from semel_console.query import QueryParameters

NEEDS_READ = "The transactions that are open in a topic need READ on the topic."
PARTITIONS_ASKED_MAX = 200
"""The number of partitions with held-back records whose open transactions are looked up."""


async def overview(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """Brokers and health, offsets by topic (for rates), and the transactions that hold readers back."""
    health = health_facts(await cluster_health(admin))
    ends = await all_ends(admin)
    sizes = await sizes_of(admin, [each["id"] for each in health["brokers"] if each["answers"]])
    by_topic: dict[str, int] = {}
    for at, (_, high) in ends.items():
        by_topic[at.topic] = by_topic.get(at.topic, 0) + high
    return {
        "now_ms": now_ms,
        "health": health,
        "broker_bytes": {str(node_id): size for node_id, size in sorted(sizes.by_broker.items())},
        "sizes_problem": sizes.problem,
        "end_offsets": dict(sorted(by_topic.items())),
        "held_back": held_back_rows(ends),
        "holders": await holders(admin, ends, now_ms),
    }


KNOCK_TIMEOUT_MS = 1_500


async def knock(admin: Admin, node_ids: Collection[int]) -> dict[str, Any]:
    """Whether these brokers answer now. An overview takes longer while one is away: its requests wait for a new leader.

    With `KNOCK_EVERY_S` of semel_console.watch, a dead broker is shown within 3 s.
    """
    found = await admin.check_brokers(node_ids, KNOCK_TIMEOUT_MS)
    return {"silent": {str(node_id): status.error for node_id, status in sorted(found.items()) if not status.answers}}


async def all_ends(admin: Admin) -> dict[TopicPartition, tuple[int, int]]:
    """Last stable offset and high watermark of each partition whose leader answers."""
    partitions = [each for topic in await admin.describe_topics() for each in topic.partitions]
    return await ends_of(admin, partitions, (await admin.describe_cluster()).brokers)


async def ends_of(
    admin: Admin, partitions: list[PartitionMetadata], live: Mapping[int, object]
) -> dict[TopicPartition, tuple[int, int]]:
    """As `all_ends`, of these partitions. The stable offset is asked for first: it is never above the watermark."""
    stable = await known_offsets(admin, partitions, live, LATEST, read_committed=True)
    high = await known_offsets(admin, partitions, live, LATEST)
    return {at: (min(stable[at], high[at]), high[at]) for at in sorted(stable) if at in high}


def held_back_rows(ends: Mapping[TopicPartition, tuple[int, int]]) -> list[dict[str, Any]]:
    """PURE. The partitions whose last stable offset is below the high watermark, the largest difference first."""
    rows = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "last_stable_offset": stable,
            "high_watermark": high,
            "offsets_held_back": high - stable,
        }
        for at, (stable, high) in ends.items()
        if stable < high
    ]
    return sorted(rows, key=lambda row: -int(row["offsets_held_back"]))


async def holders(admin: Admin, ends: Mapping[TopicPartition, tuple[int, int]], now_ms: int) -> list[dict[str, Any]]:
    """The open transactions that hold readers back, with sentences about each. Brokers that cannot list producers
    (before KIP-664) give none. A topic whose transactions may not be read has an entry that says so.
    """
    held = [at for at, (stable, high) in ends.items() if stable < high][:PARTITIONS_ASKED_MAX]
    try:
        found = await open_transactions(admin, held) if held else []
    except UnsupportedVersionError:
        return []
    except TopicAuthorizationFailedError:
        found, refused = await _by_topic(admin, held)
        return [*judged(found, now_ms), *refused]
    return judged(found, now_ms)


async def _by_topic(admin: Admin, held: list[TopicPartition]) -> tuple[list[OpenTransaction], list[dict[str, Any]]]:
    """The open transactions of the topics that may be read, and an entry for each other topic."""
    found: list[OpenTransaction] = []
    refused: list[dict[str, Any]] = []
    for topic in dict.fromkeys(at.topic for at in held):
        places = [at for at in held if at.topic == topic]
        try:
            found += await open_transactions(admin, places)
        except TopicAuthorizationFailedError:
            rows = [{"topic": topic, "partition": at.partition, "first_offset": None} for at in places]
            unknown = {"verdict": "not shown", "transactional_id": None, "producer_id": None}
            refused.append({**unknown, "partitions": rows, "sentences": [["why", NEEDS_READ]]})
    return found, refused


def judged(found: list[OpenTransaction], now_ms: int) -> list[dict[str, Any]]:
    """PURE. Facts of open transactions, one row for each."""
    return [holder_facts(each, now_ms) for each in by_transaction(found)]


def holder_facts(partitions: list[OpenTransaction], now_ms: int) -> dict[str, Any]:
    """PURE. One open transaction with sentences: captions and texts; the last may be a command."""
    sentences = [list(each) for each in describe_transaction(partitions, now_ms)]
    return {**open_transaction_facts(partitions), "sentences": sentences}


async def broker_settings(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """The settings of one broker, with sources and explanations."""
    name = str(query.number("broker", most=2**31 - 1))
    return {"broker": int(name), "settings": await settings_of(admin, ConfigResourceType.BROKER, name)}


async def settings_of(admin: Admin, kind: ConfigResourceType, name: str) -> list[dict[str, Any]]:
    """Settings sorted by name."""
    (described,) = await admin.describe_configs([ConfigResource(kind, name)], include_documentation=True)
    return [
        {
            "name": each.name,
            "value": each.value,
            "source": each.source.name.lower().replace("_", " "),
            "is_default": each.is_default,
            "is_sensitive": each.is_sensitive,
            "documentation": each.documentation,
        }
        for _, each in sorted(described.configs.items())
    ]
