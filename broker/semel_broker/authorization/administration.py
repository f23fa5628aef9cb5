"""PURE: the table of administrative operations: what each request changes, and how its response says what became of it.

An API is here if it changes something for others than its caller. `NOT_AUDITED` has all other APIs, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

import msgspec
from semel_protocol.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from semel_protocol.schema import ZERO_UUID
from semel_protocol.scram import ScramMechanism

from semel_broker.authorization.rules import CONFIG_RESOURCES, group_prefix
from semel_broker.context import RequestContext

TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
Right = tuple[Operation, ResourceType, str]


class AdministrativeChange(msgspec.Struct):
    """One operation of a request. `rights`: any of them is enough. `key`: finds its error code among those of the
    response. `changes`: what is changed, by name.
    """

    rights: Sequence[Right]
    key: Hashable
    operation: Operation
    kind: ResourceType
    name: str
    changes: Sequence[str] = ()


Codes = dict[Hashable, int]
"""Error codes by key of the deed; a deed without one has the code of the whole response."""


class Administration(msgspec.Struct, frozen=True):
    """One API. `deeds`: what a request would do; called before anything is checked. `codes`: of its response."""

    deeds: Callable[[Any, RequestContext], list[AdministrativeChange]]
    codes: Callable[[Any, list[AdministrativeChange]], Codes]


def _deed(
    operation: Operation, kind: ResourceType, name: str, changes: Sequence[str] = (), key: Hashable = None
) -> AdministrativeChange:
    return AdministrativeChange([(operation, kind, name)], name if key is None else key, operation, kind, name, changes)


def _rows(field: str, name: str, code: str = "error_code") -> Callable[[Any, list[AdministrativeChange]], Codes]:
    """One code in each row of the response."""
    return lambda response, deeds: {getattr(row, name): getattr(row, code) for row in getattr(response, field)}


def _nested(field: str, name: str, rows: str) -> Callable[[Any, list[AdministrativeChange]], Codes]:
    """A code for each partition: the first one that is an error is that of the topic."""
    return lambda response, deeds: {
        getattr(topic, name): _first(row.error_code for row in getattr(topic, rows))
        for topic in getattr(response, field)
        if getattr(topic, rows)
    }


def _first(codes: Iterable[int]) -> int:
    return next((code for code in codes if code), 0)


def _whole(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    return {}


# --- topics ------------------------------------------------------------------------------------------------------


def _created(name: str, changes: Sequence[str] = ()) -> AdministrativeChange:
    rights = [(Operation.CREATE, CLUSTER, CLUSTER_NAME), (Operation.CREATE, TOPIC, name)]
    return AdministrativeChange(rights, name, Operation.CREATE, TOPIC, name, changes)


def _metadata(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    """The topics that the request creates because they do not exist."""
    if not request.topics or not request.allow_auto_topic_creation or not ctx.broker.config.auto_create_topics_enable:
        return []
    topics = ctx.broker.topics
    return [_created(row.name) for row in request.topics if row.name and topics.get(row.name) is None]


def _create_topics(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    if request.validate_only:
        return []
    return [_created(row.name, [f"{each.name} is set" for each in row.configs]) for row in request.topics]


def _delete_topics(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    deeds = [_deed(Operation.DELETE, TOPIC, name) for name in request.topic_names]
    for row in request.topics:
        found = ctx.broker.topics.get_by_id(row.topic_id) if row.topic_id != ZERO_UUID else None
        name = row.name if row.name is not None else (found.name if found is not None else None)
        if name is not None:
            deeds.append(_deed(Operation.DELETE, TOPIC, name, key=name if row.name is not None else row.topic_id))
    return deeds


def _deleted(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    by_name: Codes = {row.name: row.error_code for row in response.responses}
    return by_name | {row.topic_id: row.error_code for row in response.responses if row.topic_id != ZERO_UUID}


def _delete_records(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    return [
        _deed(
            Operation.DELETE,
            TOPIC,
            row.name,
            [f"partition {each.partition_index}: below offset {each.offset}" for each in row.partitions],
        )
        for row in request.topics
    ]


def _create_partitions(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    if request.validate_only:
        return []
    return [_deed(Operation.ALTER, TOPIC, row.name, [f"{row.count} partitions"]) for row in request.topics]


# --- settings and ACLs -------------------------------------------------------------------------------------------

EDITS: Final = ("is set", "follows its default", "gets elements", "loses elements")
"""By operation of IncrementalAlterConfigs."""


def _alter_configs(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    """The names of the settings. Their values may be secrets, so no line has them."""
    if request.validate_only:
        return []
    deeds = []
    for row in request.resources:
        kind = CONFIG_RESOURCES.get(row.resource_type, CLUSTER)
        right = (Operation.ALTER_CONFIGS, kind, CLUSTER_NAME if kind is CLUSTER else row.resource_name)
        changes = [f"{each.name} {_edit(each)}" for each in row.configs]
        if kind is CLUSTER:
            changes.insert(0, f"broker {row.resource_name}" if row.resource_name else "all brokers")
        deeds.append(
            AdministrativeChange(
                [right], (row.resource_type, row.resource_name), Operation.ALTER_CONFIGS, kind, right[2], changes
            )
        )
    return deeds


def _edit(row: Any) -> str:
    number = getattr(row, "config_operation", 0)
    return EDITS[number] if 0 <= number < len(EDITS) else f"has the unknown edit {number}"


def _altered(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    return {(row.resource_type, row.resource_name): row.error_code for row in response.responses}


def _create_acls(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    return [
        _deed(Operation.ALTER, CLUSTER, CLUSTER_NAME, [_acl(row, row.resource_pattern_type)], key=at)
        for at, row in enumerate(request.creations)
    ]


def _acl(row: Any, pattern: int) -> str:
    try:
        kinds = ResourceType(row.resource_type), PatternType(pattern)
        acl = Acl(
            kinds[0],
            row.resource_name,
            kinds[1],
            row.principal,
            row.host,
            Operation(row.operation),
            Permission(row.permission_type),
        )
    except ValueError:
        return "an entry with unknown numbers"
    return str(acl)


def _delete_acls(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    return [_deed(Operation.ALTER, CLUSTER, CLUSTER_NAME, key=at) for at, _ in enumerate(request.filters)]


def _acls_deleted(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    """The response has the entries that the filters have found."""
    for deed, row in zip(deeds, response.filter_results, strict=False):
        deed.changes = [f"without {_acl(each, each.pattern_type)}" for each in row.matching_acls] or ["no entry found"]
    return {at: row.error_code for at, row in enumerate(response.filter_results)}


# --- groups, transactions, replicas ------------------------------------------------------------------------------


def _delete_groups(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    return [_deed(Operation.DELETE, GROUP, name) for name in request.groups_names]


def _offset_delete(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    changes = [
        f"offset of {row.name}, partition {each.partition_index}" for row in request.topics for each in row.partitions
    ]
    return [_deed(Operation.DELETE, GROUP, request.group_id, changes)]


def _offsets_deleted(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    codes = (row.error_code for topic in response.topics for row in topic.partitions)
    return {deed.key: response.error_code or _first(codes) for deed in deeds}


def _init_producer_id(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    """It fences the earlier producer of the transactional id, and aborts its transaction."""
    name = request.transactional_id
    return [] if name is None else [_deed(Operation.WRITE, TXN, name, ["fences an earlier producer"])]


def _markers(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    rights = [(each, CLUSTER, CLUSTER_NAME) for each in (Operation.CLUSTER_ACTION, Operation.ALTER)]
    return [
        AdministrativeChange(
            rights,
            topic.name,
            Operation.ALTER,
            TOPIC,
            topic.name,
            [
                f"partition {index}: {'commit' if marker.transaction_result else 'abort'} of producer "
                f"{marker.producer_id}, epoch {marker.producer_epoch}"
                for index in topic.partition_indexes
            ],
        )
        for marker in request.markers
        for topic in marker.topics
    ]


def _marked(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    found: Codes = {}
    for marker in response.markers:
        for topic in marker.topics:
            found[topic.name] = found.get(topic.name) or _first(row.error_code for row in topic.partitions)
    return found


def _decide(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    decided = "commit" if request.committed else "abort"
    changes = [f"{decided} of {each.transactional_id}" for each in request.transactions]
    return [_deed(Operation.WRITE, TXN, group_prefix(request.group), changes or [decided])]


def _forget(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    return [_deed(Operation.WRITE, TXN, group_prefix(request.group), ["the group is forgotten"])]


def _elections(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    topics = [f"{row.topic}, partitions {row.partitions}" for row in request.topic_partitions or ()]
    return [_deed(Operation.ALTER, CLUSTER, CLUSTER_NAME, topics or ["leaders of all partitions"])]


def _elected(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    codes = (row.error_code for topic in response.replica_election_results for row in topic.partition_result)
    return {deed.key: response.error_code or _first(codes) for deed in deeds}


def _reassign(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    changes = [
        f"{row.name}, partition {each.partition_index}: "
        + ("its move is cancelled" if each.replicas is None else f"replicas {each.replicas}")
        for row in request.topics
        for each in row.partitions
    ]
    return [_deed(Operation.ALTER, CLUSTER, CLUSTER_NAME, changes)]


def _reassigned(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    codes = (row.error_code for topic in response.responses for row in topic.partitions)
    return {deed.key: response.error_code or _first(codes) for deed in deeds}


# --- users and quotas ---------------------------------------------------------------------------------------------


def _alter_users(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    """One deed per user. Salts and passwords are in no line."""
    changes: dict[str, list[str]] = {}
    for row in request.deletions:
        changes.setdefault(row.name, []).append(f"without {_mechanism(row.mechanism)}")
    for row in request.upsertions:
        changes.setdefault(row.name, []).append(f"{_mechanism(row.mechanism)}, {row.iterations} iterations")
    return [
        AdministrativeChange(
            [(Operation.ALTER, CLUSTER, CLUSTER_NAME)],
            name,
            Operation.ALTER,
            CLUSTER,
            CLUSTER_NAME,
            [f"User:{name}: {each}" for each in own],
        )
        for name, own in changes.items()
    ]


def _mechanism(number: int) -> str:
    try:
        return ScramMechanism(number).sasl_name
    except ValueError:
        return f"unknown mechanism {number}"


def _alter_quotas(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    if request.validate_only:
        return []
    return [
        _deed(
            Operation.ALTER_CONFIGS,
            CLUSTER,
            CLUSTER_NAME,
            [
                f"{_entity(entry)}: {each.key} {'is removed' if each.remove else f'= {each.value:g}'}"
                for each in entry.ops
            ],
            key=_entity(entry),
        )
        for entry in request.entries
    ]


def _entity(entry: Any) -> str:
    """The entity of a row of a request or a response, as text."""
    parts = sorted(((part.entity_type, part.entity_name) for part in entry.entity), key=lambda part: part[0])
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in parts)


ADMINISTRATION: Final[dict[int, Administration]] = {
    3: Administration(_metadata, _rows("topics", "name")),
    19: Administration(_create_topics, _rows("topics", "name")),
    20: Administration(_delete_topics, _deleted),
    21: Administration(_delete_records, _nested("topics", "name", "partitions")),
    22: Administration(_init_producer_id, _whole),
    27: Administration(_markers, _marked),
    30: Administration(
        _create_acls, lambda response, deeds: {at: row.error_code for at, row in enumerate(response.results)}
    ),
    31: Administration(_delete_acls, _acls_deleted),
    33: Administration(_alter_configs, _altered),
    37: Administration(_create_partitions, _rows("results", "name")),
    42: Administration(_delete_groups, _rows("results", "group_id")),
    43: Administration(_elections, _elected),
    44: Administration(_alter_configs, _altered),
    45: Administration(_reassign, _reassigned),
    47: Administration(_offset_delete, _offsets_deleted),
    49: Administration(
        _alter_quotas, lambda response, deeds: {_entity(row): row.error_code for row in response.entries}
    ),
    51: Administration(_alter_users, _rows("results", "user")),
    20_002: Administration(_decide, _whole),
    20_004: Administration(_forget, _whole),
}
"""API key -> what its requests change."""

_READS: Final = "changes nothing"
_RECORDS: Final = "writes records or the state of the caller's own transaction"
_LOGINS: Final = "a failed authentication has a line of its own, AUTHENTICATE"
_GROUPS: Final = "the caller is a member of the group, or commits its offsets"
NOT_AUDITED: Final[dict[int, str]] = {
    **dict.fromkeys((1, 2, 9, 10, 15, 16, 18, 23, 29, 32, 35, 46, 48, 50, 60, 61, 65, 66, 69, 74, 75, 20_003), _READS),
    **dict.fromkeys((17, 36), _LOGINS),
    **dict.fromkeys((71, 72), "metrics of the client itself"),
    **dict.fromkeys((0, 24, 25, 26, 28, 20_001), _RECORDS),
    **dict.fromkeys((8, 11, 12, 13, 14, 68), _GROUPS),
}
"""API key -> why its requests have no line when they are allowed."""
