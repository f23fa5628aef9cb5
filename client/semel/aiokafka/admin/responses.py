"""The results of aiokafka's admin client: Kafka's responses as tuples and dicts, made of semel's values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from semel_protocol.consumer_protocol import by_topic

from semel._admin.configs import ConfigKey
from semel._admin.types import (
    ClusterDescription,
    ConfigDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConsumerGroupDescription,
)
from semel._net.calls import CallOutcomes, Calls, Refusal
from semel.aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from semel.structs import TopicMetadata

SUCCESS = 0
NO_OPERATIONS = -(2**31)
"""In a described group: the authorized operations were not asked for."""


Names: TypeAlias = "tuple[str | tuple[str, Names], ...]"
"""The names of a row's fields in aiokafka. A pair: the name of a field that is a list of rows, and their names."""

TOPIC_ERROR: Names = ("topic", "error_code", "error_message")
TOPIC_ERROR_CODE: Names = ("topic", "error_code")
SYNONYM: Names = ("config_name", "config_value", "config_source")
CONFIG_ENTRY: Names = (
    "config_names",
    "config_value",
    "read_only",
    "config_source",
    "is_sensitive",
    ("config_synonyms", SYNONYM),
)
RESOURCE: Names = ("error_code", "error_message", "resource_type", "resource_name", ("config_entries", CONFIG_ENTRY))
MEMBER: Names = ("member_id", "client_id", "client_host", "member_metadata", "member_assignment")
GROUP: Names = (
    "error_code",
    "group",
    "state",
    "protocol_type",
    "protocol",
    ("members", MEMBER),
    "authorized_operations",
)


def _named(rows: Iterable[tuple[Any, ...]], names: Names) -> list[dict[str, Any]]:
    """The rows as dicts. A row may end before its last names do."""
    return [dict(_field(*pair) for pair in zip(names, row, strict=False)) for row in rows]


def _field(name: str | tuple[str, Names], value: Any) -> tuple[str, Any]:
    return (name, value) if isinstance(name, str) else (name[0], _named(value, name[1]))


class TopicErrorsResponse(NamedTuple):
    """topic_errors: (topic, error code, message), with code 0 for a success."""

    throttle_time_ms: int
    topic_errors: list[tuple[str, int, str | None]]

    def to_object(self) -> dict[str, Any]:
        """The fields by their names, as of aiokafka's responses."""
        return {"throttle_time_ms": self.throttle_time_ms, "topic_errors": _named(self.topic_errors, TOPIC_ERROR)}


class DeleteTopicsResponse(NamedTuple):
    """topic_error_codes: (topic, error code), with code 0 for a success."""

    throttle_time_ms: int
    topic_error_codes: list[tuple[str, int]]

    def to_object(self) -> dict[str, Any]:
        """The fields by their names, as of aiokafka's responses."""
        rows = _named(self.topic_error_codes, TOPIC_ERROR_CODE)
        return {"throttle_time_ms": self.throttle_time_ms, "topic_error_codes": rows}


class ResourcesResponse(NamedTuple):
    """resources: (error code, message, type, name), with `describe_configs` also the list of settings."""

    throttle_time_ms: int
    resources: list[tuple[Any, ...]]

    def to_object(self) -> dict[str, Any]:
        """The fields by their names, as of aiokafka's responses."""
        return {"throttle_time_ms": self.throttle_time_ms, "resources": _named(self.resources, RESOURCE)}


class DescribeGroupsResponse(NamedTuple):
    """groups: (error code, group, state, protocol type, protocol, members, authorized operations)."""

    throttle_time_ms: int
    groups: list[tuple[Any, ...]]

    def to_object(self) -> dict[str, Any]:
        """The fields by their names, as of aiokafka's responses."""
        return {"throttle_time_ms": self.throttle_time_ms, "groups": _named(self.groups, GROUP)}


class CodedCalls(Calls):
    """Calls whose results have a Refusal in place of each error of a broker, as aiokafka's responses have codes."""

    def results(self, outcomes: CallOutcomes[Any, Any]) -> dict[Any, Any]:
        return outcomes.results_and_refusals()


def code_and_message(outcome: object) -> Refusal:
    """Of a part of a call, which has a Refusal or a result."""
    return outcome if isinstance(outcome, Refusal) else Refusal(SUCCESS, None)


def topics_done(outcomes: Mapping[str, object]) -> TopicErrorsResponse:
    return TopicErrorsResponse(0, [(name, *code_and_message(outcome)) for name, outcome in outcomes.items()])


def topics_deleted(outcomes: Mapping[str, object]) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(0, [(name, code_and_message(outcome).code) for name, outcome in outcomes.items()])


def configs_altered(outcomes: Mapping[ConfigKey, object]) -> list[ResourcesResponse]:
    """One response for all topics, and one for each broker that is a resource."""
    rows = [(key, (*code_and_message(outcome), int(key[0]), key[1])) for key, outcome in outcomes.items()]
    return _by_broker(rows, first=("",))


def configs_described(
    resources: Iterable[ConfigResource], found: Iterable[ConfigDescription | Refusal]
) -> list[ResourcesResponse]:
    """One response for each broker that is a resource, and one for all topics."""
    rows = []
    for resource, each in zip(resources, found, strict=True):
        key = (resource.resource_type, resource.name)
        entries = [] if isinstance(each, Refusal) else [_entry(entry) for entry in each.configs.values()]
        rows.append((key, (*code_and_message(each), int(key[0]), key[1], entries)))
    rows.sort(key=lambda row: row[0][0] is not ConfigResourceType.BROKER)
    return _by_broker(rows)


def _by_broker(rows: Iterable[tuple[ConfigKey, tuple[Any, ...]]], first: Iterable[str] = ()) -> list[ResourcesResponse]:
    """The rows by broker. Those of other resources belong to the broker ""."""
    parts: dict[str, list[tuple[Any, ...]]] = {broker: [] for broker in first}
    for (kind, name), row in rows:
        parts.setdefault(name if kind is ConfigResourceType.BROKER else "", []).append(row)
    return [ResourcesResponse(0, part) for part in parts.values()]


def _entry(entry: ConfigEntry) -> tuple[Any, ...]:
    synonyms = [(each.name, each.value, int(each.source)) for each in entry.synonyms]
    return entry.name, entry.value, entry.is_read_only, int(entry.source), entry.is_sensitive, synonyms


def topic_described(name: str, topic: TopicMetadata | Refusal) -> dict[str, Any]:
    if isinstance(topic, Refusal):
        return {"error_code": topic.code, "topic": name, "is_internal": False, "partitions": []}
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
