"""PURE. Merges a Metadata response, or a leader named by a broker, into the known metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataResponse, MetadataResponseTopic

from semel.errors import KafkaProtocolError
from semel.structs import BrokerMetadata, Metadata, PartitionMetadata, TopicMetadata

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether a topic can have this name, by the rule of all Kafka brokers."""
    return isinstance(name, str) and _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def merged(known: Metadata, answer: MetadataResponse, illegal: Iterable[str] = ()) -> Metadata:
    """The answer's metadata, except that no partition goes back to a lower leader epoch (KIP-320).

    illegal: wanted names that were not sent. They have INVALID_TOPIC_EXCEPTION, as if a broker had refused them.
    Raises KafkaProtocolError for a topic whose partition numbers are not 0 to n - 1.
    """
    topics: dict[str, TopicMetadata] = {}
    errors: dict[str, int] = dict.fromkeys(illegal, ErrorCode.INVALID_TOPIC_EXCEPTION)
    for topic in answer.topics:
        name = topic.name or ""
        if topic.error_code != ErrorCode.NONE:
            errors[name] = topic.error_code
        if topic.error_code == ErrorCode.NONE or topic.partitions:
            topics[name] = _topic(known.topics.get(name), topic)
    return Metadata(
        brokers={
            broker.node_id: BrokerMetadata(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in answer.brokers
        },
        topics=topics,
        controller_id=answer.controller_id,
        cluster_id=answer.cluster_id,
        errors=errors,
    )


def _topic(known: TopicMetadata | None, topic: MetadataResponseTopic) -> TopicMetadata:
    name = topic.name or ""
    partitions = []
    # Partition indexes are dense: after sorting, position and index are equal.
    rows = sorted(topic.partitions, key=lambda row: row.partition_index)
    if any(row.partition_index != place for place, row in enumerate(rows)):
        indexes = [row.partition_index for row in rows]
        raise KafkaProtocolError(f"a broker answers that topic {name!r} has the partitions {indexes}")
    for row in rows:
        new = PartitionMetadata(
            topic=name,
            partition=row.partition_index,
            leader=row.leader_id,
            leader_epoch=row.leader_epoch,
            replicas=tuple(row.replica_nodes),
            isr=tuple(row.isr_nodes),
            offline_replicas=tuple(row.offline_replicas),
        )
        if known is not None and known.topic_id == topic.topic_id and row.partition_index < len(known.partitions):
            old = known.partitions[row.partition_index]
            if 0 <= new.leader_epoch < old.leader_epoch:
                new = old
        partitions.append(new)
    return TopicMetadata(name, tuple(partitions), topic.is_internal, topic.topic_id)


def with_leader(known: Metadata, topic: str, partition: int, leader: int, leader_epoch: int) -> Metadata | None:
    """The metadata with this leader of one partition; None when the leader epoch is not newer (KIP-951)."""
    found = known.topics.get(topic)
    if found is None or not 0 <= partition < len(found.partitions):
        return None
    if leader < 0 or leader_epoch <= found.partitions[partition].leader_epoch:
        return None
    partitions = list(found.partitions)
    partitions[partition] = replace(partitions[partition], leader=leader, leader_epoch=leader_epoch)
    return replace(known, topics=known.topics | {topic: replace(found, partitions=tuple(partitions))})
