"""Topics: the list, and one topic with its partitions, offsets and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semel import Admin, TopicPartition
from semel.admin import EARLIEST, ConfigResourceType
from semel.diagnose import PartitionStatus, known_offsets, moves_of, state_of
from semel.errors import KafkaError, TopicAuthorizationFailedError
from semel.structs import TopicMetadata

from semel_console.answers import words_of
from semel_console.facts.cluster import ends_of, settings_of
from semel_console.facts.rights import NEEDS_CONFIGS
from semel_console.facts.sizes import Sizes, sizes_of
from semel_console.query import QueryParameters


async def topics(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """All topics with sums of their offsets and the worst state of their partitions."""
    found = await admin.describe_topics()
    live = (await admin.describe_cluster()).brokers
    partitions = [each for topic in found for each in topic.partitions]
    starts = await known_offsets(admin, partitions, live, EARLIEST)
    ends = await ends_of(admin, partitions, live)
    sizes = await sizes_of(admin, live)
    return {
        "now_ms": now_ms,
        "topics": [_row(each, live, starts, ends, sizes) for each in found],
        "sizes_problem": sizes.problem,
    }


def _row(
    topic: TopicMetadata,
    live: Mapping[int, object],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, tuple[int, int]],
    sizes: Sizes,
) -> dict[str, Any]:
    places = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
    leaders = {TopicPartition(topic.name, each.partition): each.leader for each in topic.partitions}
    known = [at for at in places if at in starts and at in ends]
    states = [state_of(each, live) for each in topic.partitions]
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "partitions": len(places),
        "replicas": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "offsets_held": sum(ends[at][1] - starts[at] for at in known) if len(known) == len(places) else None,
        "end_offsets": sum(ends[at][1] for at in known),
        "size_bytes": sizes.of(places, leaders),
        "held_back": sum(ends[at][1] - ends[at][0] for at in known),
        "state": min(states, key=list(PartitionStatus).index, default=PartitionStatus.OK).value,
    }


async def topic(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """One topic. The settings are a sentence where they may not be read."""
    (found,) = await admin.describe_topics([query.text("topic")])
    cluster = await admin.describe_cluster()
    moves = await moves_of(admin, cluster)
    starts = await known_offsets(admin, found.partitions, cluster.brokers, EARLIEST)
    ends = await ends_of(admin, list(found.partitions), cluster.brokers)
    sizes = await sizes_of(
        admin, cluster.brokers, [TopicPartition(found.name, each.partition) for each in found.partitions]
    )
    rows = []
    for each in found.partitions:
        at = TopicPartition(found.name, each.partition)
        adding = moves[at].adding_replicas if at in moves else ()
        stable, high = ends.get(at, (None, None))
        rows.append(
            {
                "partition": each.partition,
                "leader": None if each.leader < 0 else each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "in_sync": list(each.isr),
                "start_offset": starts.get(at),
                "last_stable_offset": stable,
                "high_watermark": high,
                "state": state_of(each, cluster.brokers, adding=adding).value,
                "size_bytes": sizes.of([at], {at: each.leader}),
                "sizes": {str(node_id): size for node_id, size in sorted(sizes.by_place.get(at, {}).items())},
                "moving_to": list(moves[at].target) if at in moves else None,
            }
        )
    settings: list[dict[str, Any]] = []
    problem = None
    try:
        settings = await settings_of(admin, ConfigResourceType.TOPIC, found.name)
    except TopicAuthorizationFailedError as e:
        problem = f"{words_of(e)} {NEEDS_CONFIGS}"
    except KafkaError as e:
        problem = words_of(e)
    return {
        "now_ms": now_ms,
        "topic": found.name,
        "internal": found.is_internal,
        "partitions": rows,
        "sizes_problem": sizes.problem,
        "settings": settings,
        "settings_problem": problem,
    }
