"""What aiokafka's admin client returns: Kafka's responses as tuples and dicts, made of semel's values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from semel._admin.types import ClusterDescription, ConfigDescription, ConfigResource, ConsumerGroupDescription
from semel._assignment.protocol import by_topic
from semel.aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from semel.structs import TopicMetadata

SUCCESS = 0
NO_OPERATIONS = -(2**31)
"""In a described group: the authorized operations were not asked for."""


class TopicErrorsResponse(NamedTuple):
    """topic_errors: (topic, error code, message); the code is always 0, because errors are raised."""

    throttle_time_ms: int
    topic_errors: list[tuple[str, int, str | None]]


class DeleteTopicsResponse(NamedTuple):
    """topic_error_codes: (topic, error code); the code is always 0."""

    throttle_time_ms: int
    topic_error_codes: list[tuple[str, int]]


class ResourcesResponse(NamedTuple):
    """resources: (error code, message, type, name), with `describe_configs` also the list of settings."""

    throttle_time_ms: int
    resources: list[tuple[Any, ...]]


class DescribeGroupsResponse(NamedTuple):
    """groups: (error code, group, state, protocol type, protocol, members, authorized operations)."""

    throttle_time_ms: int
    groups: list[tuple[Any, ...]]


def topics_done(names: Iterable[str]) -> TopicErrorsResponse:
    return TopicErrorsResponse(0, [(name, SUCCESS, None) for name in names])


def configs_altered(resources: Iterable[ConfigResource]) -> list[ResourcesResponse]:
    rows: list[tuple[Any, ...]] = [(SUCCESS, None, int(each.resource_type), each.name) for each in resources]
    return [ResourcesResponse(0, rows)]


def configs_described(found: Iterable[ConfigDescription]) -> list[ResourcesResponse]:
    """One response for each broker that is a resource, and one for all topics."""
    parts: dict[str, list[tuple[Any, ...]]] = {}
    for each in found:
        entries = [
            (e.name, e.value, e.is_read_only, int(e.source), e.is_sensitive, [(*s[:2], int(s[2])) for s in e.synonyms])
            for e in each.configs.values()
        ]
        broker = each.name if each.resource_type.name == "BROKER" else ""
        parts.setdefault(broker, []).append((SUCCESS, None, int(each.resource_type), each.name, entries))
    return [ResourcesResponse(0, rows) for rows in parts.values()]


def topic_described(topic: TopicMetadata) -> dict[str, Any]:
    return {
        "error_code": SUCCESS,
        "topic": topic.name,
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "error_code": SUCCESS,
                "partition": each.partition,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "offline_replicas": list(each.offline_replicas),
            }
            for each in topic.partitions
        ],
    }


def cluster_described(found: ClusterDescription) -> dict[str, Any]:
    brokers = [
        {"node_id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
        for each in found.brokers.values()
    ]
    return {
        "throttle_time_ms": 0,
        "brokers": brokers,
        "cluster_id": found.cluster_id,
        "controller_id": found.controller_id,
    }


def groups_described(found: Iterable[ConsumerGroupDescription]) -> list[DescribeGroupsResponse]:
    """One response for each coordinator. The subscription and assignment of a member are bytes, in version 0."""
    parts: dict[int, list[tuple[Any, ...]]] = {}
    for group in found:
        members = [
            (
                each.member_id,
                each.client_id,
                each.client_host,
                ConsumerProtocolMemberMetadata(0, list(each.subscription)).encode(),
                ConsumerProtocolMemberAssignment(
                    0, [(row.topic, row.partitions) for row in by_topic(each.assignment)]
                ).encode(),
            )
            for each in group.members
        ]
        row = (SUCCESS, group.group_id, group.state, group.protocol_type, group.protocol, members, NO_OPERATIONS)
        parts.setdefault(group.coordinator, []).append(row)
    return [DescribeGroupsResponse(0, rows) for rows in parts.values()]
