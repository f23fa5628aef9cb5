"""PURE: the table of requirements: API key -> what the principal must be allowed, as in Kafka.

The order of a tuple is the order of the checks. The first one that refuses the whole request answers it. `make map`
writes docs/authorization.md from this table, and a test holds that every API is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from semel_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from semel_protocol.errors import ErrorCode
from semel_protocol.messages import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k27_write_txn_markers,
    k28_txn_offset_commit,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k32_describe_configs,
    k33_alter_configs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k42_delete_groups,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k47_offset_delete,
    k48_describe_client_quotas,
    k49_alter_client_quotas,
    k50_describe_user_scram_credentials,
    k51_alter_user_scram_credentials,
    k61_describe_producers,
    k65_describe_transactions,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k74_list_config_resources,
    k75_describe_topic_partitions,
    k20001_begin_transaction_group,
    k20002_decide_transaction_group,
    k20003_describe_transaction_groups,
    k20004_forget_transaction_group,
)
from semel_protocol.schema import ZERO_UUID, Message

from semel_broker.answers import CloseConnectionError
from semel_broker.authorization.access import Access
from semel_broker.authorization.requirements import (
    NEVER,
    REFUSAL_OF,
    UNKNOWN_ID,
    CheckedRequest,
    Complete,
    CustomRequirement,
    RequestRequirement,
    Requirement,
    RowsRequirement,
    Steps,
    VisibleRowsRequirement,
    cluster,
    explained,
)
from semel_broker.context import RequestContext

TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
ACKS_NONE = 0
ASKED_BY_ID_VERSION = 12
"""From this version of Metadata on, a topic with an id is asked for by it."""
PRODUCE_IDS_SINCE, FETCH_IDS_SINCE, OFFSET_IDS_SINCE, TXN_OFFSET_IDS_SINCE = 13, 13, 10, 6
"""From these versions on a row has the id of a topic instead of its name."""
COORDINATOR_KEYS_SINCE = 4
CONFIG_RESOURCES = {2: TOPIC, 32: GROUP}
"""Types of resources in requests about settings that have ACLs of their own; all others are settings of the cluster."""


def group_prefix(group: str) -> str:
    """The transactional id that stands for a transaction group: the prefix of its members."""
    return f"{group}/"


def _topic(
    operation: Operation,
    rows: str,
    refuse: Callable[[Any, ErrorCode], Message],
    response: type[Message],
    answers: str,
    *,
    ids_since: int = NEVER,
) -> RowsRequirement:
    """A topic for each row. The field of the name is `topic` or `name`."""
    return RowsRequirement(operation, TOPIC, rows, _name, answers, refuse, response, ids_since=ids_since)


def _name(row: Any) -> str:
    name: str = row.name if hasattr(row, "name") else row.topic
    return name


def _group(operation: Operation, response: type[Message]) -> RequestRequirement:
    """A group for the request, whose response has an error code."""
    return RequestRequirement(
        operation, GROUP, lambda request: request.group_id, lambda _, code: response(error_code=code)
    )


def _txn(operation: Operation, refuse: Callable[[Any, ErrorCode], Message]) -> RequestRequirement:
    return RequestRequirement(operation, TXN, lambda request: request.transactional_id, refuse)


# --- 0 to 3 ------------------------------------------------------------------------------------------------------


def _produce_row(topic: Any, code: ErrorCode) -> Any:
    return k00_produce.ProduceResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            k00_produce.ProduceResponsePartition(index=row.index, error_code=code, base_offset=-1)
            for row in topic.partition_data
        ],
    )


def _produce(request: Any, code: ErrorCode) -> Message:
    if request.acks == ACKS_NONE:
        raise CloseConnectionError("not_authorized", code=code.name)
    return k00_produce.ProduceResponse(responses=[_produce_row(topic, code) for topic in request.topic_data])


def _unanswered(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """acks=0 has no response that could carry a refusal: the connection is closed."""
    if request.acks == ACKS_NONE:
        for topic in request.topic_data:
            yield 1
            has_id = ctx.api_version >= PRODUCE_IDS_SINCE
            name = ctx.broker.topics.name_of(topic.topic_id) if has_id else topic.name
            if name is None:
                raise CloseConnectionError("refused", code=ErrorCode.UNKNOWN_TOPIC_ID.name)
            if not access.allows(Operation.WRITE, TOPIC, name):
                raise CloseConnectionError("not_authorized", code=REFUSAL_OF[TOPIC].name, topic=name)
    return CheckedRequest(request)


def _fetch_row(topic: Any, code: ErrorCode) -> Message:
    return k01_fetch.FetchResponseTopic(
        topic=topic.topic,
        topic_id=topic.topic_id,
        partitions=[
            k01_fetch.FetchResponsePartition(
                partition_index=row.partition, error_code=code, high_watermark=-1, last_stable_offset=-1, records=b""
            )
            for row in topic.partitions
        ],
    )


def _list_offsets_row(topic: Any, code: ErrorCode) -> Message:
    return k02_list_offsets.ListOffsetsResponseTopic(
        name=topic.name,
        partitions=[
            k02_list_offsets.ListOffsetsResponsePartition(partition_index=row.partition_index, error_code=code)
            for row in topic.partitions
        ],
    )


def _metadata(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """A topic that the request would create needs Create, too. A request for all topics shows those with Describe.
    Authorized operations are those of the principal (KIP-430).

    A refused topic that was asked for by its id is answered without its name.
    """
    complete: list[Complete] = [partial(_with_operations, request, access)]
    everything = request.topics is None or (ctx.api_version == 0 and not request.topics)
    if everything:
        yield 1
        return CheckedRequest(
            request,
            complete=[VisibleRowsRequirement(Operation.DESCRIBE, TOPIC, "topics", _name).only(access), *complete],
        )
    may_create = request.allow_auto_topic_creation and ctx.broker.config.auto_create_topics_enable
    allowed: list[Any] = []
    rows: list[Any] = []
    for topic in request.topics:
        yield 1
        name = _asked_name(topic, ctx)
        if name is None:
            unknown = k03_metadata.MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic.topic_id
            )
            rows.append(unknown)
            continue
        is_allowed = access.allows(Operation.DESCRIBE, TOPIC, name)
        if is_allowed and may_create and ctx.broker.topics.get(name) is None:
            is_allowed = may_create_topic(access, name)
        if is_allowed:
            allowed.append(topic)
            continue
        row = k03_metadata.MetadataResponseTopic(
            error_code=REFUSAL_OF[TOPIC],
            name=None if _is_asked_by_id(topic, ctx) else topic.name,  # an id tells no name
            topic_id=topic.topic_id,
        )
        rows.append(row)
    if not rows:
        return CheckedRequest(request, complete=complete)

    def with_refused(response: Any) -> Message:
        response.topics = [*response.topics, *rows]
        made: Message = response
        return made

    request.topics = allowed
    return CheckedRequest(
        request, complete=[*complete, with_refused]
    )  # the handler runs: all responses have the brokers


def _by_handler(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """The handler leaves out what the sender may not see, because it asks before it does work for a row."""
    yield 1
    return CheckedRequest(request)


def _topic_partitions(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Describe on each topic that is named, from the cursor on; a refused one is on the page where it would be.

    If the request asks for all topics, the handler leaves out those without Describe, because they do not count for the
    limit of the page. Authorized operations are those of the principal (KIP-430).
    """
    made = k75_describe_topic_partitions
    cursor = request.cursor
    before: list[Any] = []
    allowed: list[Any] = []
    refused: dict[str, Any] = {}
    for topic in request.topics:
        yield 1
        if cursor is not None and topic.name < cursor.topic_name:
            before.append(topic)  # the handler leaves it out
        elif access.allows(Operation.DESCRIBE, TOPIC, topic.name):
            allowed.append(topic)
        else:
            row = made.DescribeTopicPartitionsResponseTopic(error_code=REFUSAL_OF[TOPIC], name=topic.name)
            refused[topic.name] = row
    if cursor is not None and cursor.topic_name in refused:
        request.cursor = None  # all that is left is behind it
        request.topics = allowed
    else:
        request.topics = before + allowed

    def complete(response: Any) -> Message:
        for topic in response.topics:
            if not topic.error_code:
                topic.topic_authorized_operations = access.operations(TOPIC, topic.name)
        end = response.next_cursor
        shown = [row for name, row in refused.items() if end is None or name < end.topic_name]
        response.topics = sorted([*response.topics, *shown], key=_name)
        completed: Message = response
        return completed

    is_answered = bool(refused) and not request.topics
    answer = complete(made.DescribeTopicPartitionsResponse()) if is_answered else None
    return CheckedRequest(request, answer, [complete])


def _is_asked_by_id(topic: Any, ctx: RequestContext) -> bool:
    return ctx.api_version >= ASKED_BY_ID_VERSION and topic.topic_id != ZERO_UUID


def _asked_name(topic: Any, ctx: RequestContext) -> str | None:
    """The name of a topic that Metadata is asked for; None: it is asked for by an id that no topic has."""
    if not _is_asked_by_id(topic, ctx):
        return topic.name or ""
    found = ctx.broker.topics.get_by_id(topic.topic_id)
    return None if found is None else found.name


def _with_operations(request: Any, access: Access, response: Any) -> Message:
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if not topic.error_code:
                topic.topic_authorized_operations = access.operations(TOPIC, topic.name)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _operations_of_cluster(access)
    made: Message = response
    return made


def _operations_of_cluster(access: Access) -> int:
    """They need Describe on the cluster."""
    return access.operations(CLUSTER) if access.allows_quietly(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME) else 0


def may_create_topic(access: Access, name: str) -> bool:
    """Create on the cluster allows to create any topic; Create on the topic allows that one."""
    return access.allows_quietly(Operation.CREATE, CLUSTER, CLUSTER_NAME) or access.allows(
        Operation.CREATE, TOPIC, name
    )


# --- groups ------------------------------------------------------------------------------------------------------


def _offset_rows(response: Any, topic_kind: Any, row_kind: Any, **fields: Any) -> Callable[[Any, ErrorCode], Message]:
    """The whole response of an API whose error codes are in its partitions."""

    def refuse(request: Any, code: ErrorCode) -> Message:
        made: Message = response(
            topics=[_rows_of(topic_kind, row_kind, **fields)(topic, code) for topic in request.topics]
        )
        return made

    return refuse


def _rows_of(topic_kind: Any, row_kind: Any, **fields: Any) -> Callable[[Any, ErrorCode], Any]:
    """A topic of the response whose partitions all have the error code."""

    def refuse(topic: Any, code: ErrorCode) -> Any:
        rows = [row_kind(partition_index=index, error_code=code, **fields) for index in _indexes(topic)]
        ids = {"topic_id": topic.topic_id} if hasattr(topic, "topic_id") else {}
        return topic_kind(name=topic.name, partitions=rows, **ids)

    return refuse


def _indexes(topic: Any) -> Iterable[int]:
    if hasattr(topic, "partition_indexes"):
        indexes: list[int] = topic.partition_indexes
        return indexes
    return [row.partition_index for row in topic.partitions]


def _find_coordinator(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Describe on the group or the transactional id, whichever the key is."""
    kind = TXN if request.key_type else GROUP
    code = REFUSAL_OF[kind]
    if ctx.api_version < COORDINATOR_KEYS_SINCE:
        yield 1
        if access.allows(Operation.DESCRIBE, kind, request.key):
            return CheckedRequest(request)
        refused = k10_find_coordinator.FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
        return CheckedRequest(request, explained(refused, access.refusal(Operation.DESCRIBE, kind, request.key)))
    allowed, rows = [], []
    for key in request.coordinator_keys:
        yield 1
        if access.allows(Operation.DESCRIBE, kind, key):
            allowed.append(key)
        else:
            row = k10_find_coordinator.FindCoordinatorResponseCoordinator
            rows.append(row(key=key, node_id=-1, port=-1, error_code=code))
    request.coordinator_keys = allowed

    def complete(response: Any) -> Message:
        response.coordinators = [*response.coordinators, *rows]
        made: Message = response
        return made

    if not rows:
        return CheckedRequest(request)
    return CheckedRequest(
        request, None if allowed else complete(k10_find_coordinator.FindCoordinatorResponse()), [complete]
    )


def _offset_fetch(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Describe on the group, and Describe on each topic; a request for all topics shows those with Describe."""
    if request.groups:
        return (yield from _offset_fetch_groups(request, ctx, access))
    yield 1
    if not access.allows(Operation.DESCRIBE, GROUP, request.group_id):
        code = REFUSAL_OF[GROUP]
        rows = [_OFFSET_FETCH_ROW(topic, code) for topic in request.topics or ()]
        return CheckedRequest(request, k09_offset_fetch.OffsetFetchResponse(error_code=code, topics=rows))
    named = RowsRequirement(
        Operation.DESCRIBE,
        TOPIC,
        "topics",
        _name,
        "topics",
        _OFFSET_FETCH_ROW,
        k09_offset_fetch.OffsetFetchResponse,
        named=_name,
    )
    return (yield from named.check(request, ctx, access))


def _offset_fetch_groups(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """As `_offset_fetch`, for each of several groups (v8)."""
    allowed: list[Any] = []
    refused: list[Any] = []
    hidden: dict[str, list[Any]] = {}
    everything: dict[str, None] = {}
    has_ids = ctx.api_version >= OFFSET_IDS_SINCE
    made = k09_offset_fetch.OffsetFetchResponseGroup
    for group in request.groups:
        yield 1
        if not access.allows(Operation.DESCRIBE, GROUP, group.group_id):
            refused.append(made(group_id=group.group_id, error_code=REFUSAL_OF[GROUP]))
            continue
        allowed.append(group)
        if group.topics is None:
            everything[group.group_id] = None
            continue
        kept = []
        for topic in group.topics:
            yield 1
            name = ctx.broker.topics.name_of(topic.topic_id) if has_ids else topic.name
            if name is not None and access.allows(Operation.DESCRIBE, TOPIC, name):
                kept.append(topic)
            else:
                code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else REFUSAL_OF[TOPIC]
                hidden.setdefault(group.group_id, []).append(_OFFSET_FETCH_ROW(topic, code))
        group.topics = kept
    request.groups = allowed

    def complete(response: Any) -> Message:
        for group in response.groups:
            if group.group_id in everything:
                group.topics = [each for each in group.topics if access.allows_quietly(DESCRIBE, TOPIC, each.name)]
            if not group.error_code:
                group.topics = [*group.topics, *hidden.get(group.group_id, ())]
        response.groups = [*response.groups, *refused]
        completed: Message = response
        return completed

    return CheckedRequest(request, None if allowed else complete(k09_offset_fetch.OffsetFetchResponse()), [complete])


_OFFSET_FETCH_ROW = _rows_of(
    k09_offset_fetch.OffsetFetchResponseTopic,
    k09_offset_fetch.OffsetFetchResponsePartition,
    committed_offset=-1,
    metadata="",
)


def _describe_groups(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Describe on each group; with the authorized operations if the request asks for them (KIP-430)."""
    rows = RowsRequirement(
        Operation.DESCRIBE,
        GROUP,
        "groups",
        lambda group: group,
        "groups",
        lambda group, code: k15_describe_groups.DescribeGroupsResponseGroup(error_code=code, group_id=group),
        k15_describe_groups.DescribeGroupsResponse,
    )
    permitted = yield from rows.check(request, ctx, access)
    if not request.include_authorized_operations:
        return permitted

    def with_operations(response: Any) -> Message:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = access.operations(GROUP, group.group_id)
        made: Message = response
        return made

    return CheckedRequest(permitted.request, permitted.answer, [*permitted.complete, with_operations])


def _consumer_heartbeat(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Read on the group, and Describe on each topic that the member names. A regular expression needs no right: it
    matches among the topics with Describe."""
    made = k68_consumer_group_heartbeat.ConsumerGroupHeartbeatResponse
    yield 1
    if not access.allows(Operation.READ, GROUP, request.group_id):
        why = access.refusal(Operation.READ, GROUP, request.group_id)
        return CheckedRequest(request, made(error_code=REFUSAL_OF[GROUP], error_message=why))
    for name in request.subscribed_topic_names or ():
        yield 1
        if not access.allows(Operation.DESCRIBE, TOPIC, name):
            why = access.refusal(Operation.DESCRIBE, TOPIC, name)
            return CheckedRequest(request, made(error_code=REFUSAL_OF[TOPIC], error_message=why))
    return CheckedRequest(request)


def _consumer_describe(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Describe on each group, and on the topics of its members; with the authorized operations if asked for."""
    made = k69_consumer_group_describe.ConsumerGroupDescribeResponseGroup
    rows = RowsRequirement(
        Operation.DESCRIBE,
        GROUP,
        "group_ids",
        lambda group: group,
        "groups",
        lambda group, code: made(error_code=code, group_id=group),
        k69_consumer_group_describe.ConsumerGroupDescribeResponse,
    )
    permitted = yield from rows.check(request, ctx, access)

    def complete(response: Any) -> Message:
        for at, group in enumerate(response.groups):
            if group.error_code:
                continue
            if not all(access.allows_quietly(Operation.DESCRIBE, TOPIC, name) for name in _topics_shown(group)):
                response.groups[at] = made(
                    group_id=group.group_id,
                    error_code=REFUSAL_OF[TOPIC],
                    error_message="members read topics that you may not describe",
                )
            elif request.include_authorized_operations:
                group.authorized_operations = access.operations(GROUP, group.group_id)
        completed: Message = response
        return completed

    return CheckedRequest(permitted.request, permitted.answer, [complete, *permitted.complete])


def _topics_shown(group: Any) -> set[str]:
    """The names of the topics in a described group."""
    found: set[str] = set()
    for member in group.members:
        found.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            found.update(row.topic_name for row in assignment.topic_partitions if row.topic_name)
    return found


# --- topics ------------------------------------------------------------------------------------------------------


def _create_topics(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Create on the cluster, or on each topic. Settings are shown with DescribeConfigs on the topic (KIP-525)."""
    yield 1
    everywhere = access.allows_quietly(Operation.CREATE, CLUSTER, CLUSTER_NAME)
    allowed, rows = [], []
    for topic in request.topics:
        yield 1
        if everywhere or access.allows(Operation.CREATE, TOPIC, topic.name):
            allowed.append(topic)
        else:
            row = k19_create_topics.CreateTopicsResponseTopic(name=topic.name, error_code=REFUSAL_OF[TOPIC])
            rows.append(explained(row, access.refusal(Operation.CREATE, TOPIC, topic.name)))
    request.topics = allowed

    def complete(response: Any) -> Message:
        for topic in response.topics:
            if not topic.error_code and not access.allows_quietly(Operation.DESCRIBE_CONFIGS, TOPIC, topic.name):
                topic.topic_config_error_code = REFUSAL_OF[TOPIC]
                topic.configs, topic.num_partitions, topic.replication_factor = [], -1, -1
        response.topics = [*response.topics, *rows]
        made: Message = response
        return made

    answer = None if allowed or not rows else complete(k19_create_topics.CreateTopicsResponse())
    return CheckedRequest(request, answer, [complete])


def _delete_topics(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Delete on each topic. An id of a topic that the principal may not describe is refused without its name."""
    code = REFUSAL_OF[TOPIC]
    names, topics, rows = [], [], []
    for name in request.topic_names:
        yield 1
        if access.allows(Operation.DELETE, TOPIC, name):
            names.append(name)
        else:
            rows.append(k20_delete_topics.DeleteTopicsResponseTopic(name=name, error_code=code))
    for asked in request.topics:
        yield 1
        if asked.name is None and asked.topic_id == ZERO_UUID:
            topics.append(asked)  # it names nothing: the handler refuses it
            continue
        name = asked.name if asked.name is not None else ctx.broker.topics.name_of(asked.topic_id)
        if name is None:
            unknown = k20_delete_topics.DeleteTopicsResponseTopic(
                name=None, topic_id=asked.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            rows.append(explained(unknown, UNKNOWN_ID))
            continue
        if access.allows(Operation.DELETE, TOPIC, name):
            topics.append(asked)
            continue
        shown = asked.name if asked.name is not None or access.allows_quietly(Operation.DESCRIBE, TOPIC, name) else None
        rows.append(k20_delete_topics.DeleteTopicsResponseTopic(name=shown, topic_id=asked.topic_id, error_code=code))
    if not rows:
        return CheckedRequest(request)
    request.topic_names, request.topics = names, topics

    def complete(response: Any) -> Message:
        response.responses = [*response.responses, *rows]
        made: Message = response
        return made

    left = names or topics
    return CheckedRequest(request, None if left else complete(k20_delete_topics.DeleteTopicsResponse()), [complete])


def _configs(operation: Operation, result: Any, response: Any, answers: str) -> CustomRequirement:
    """`operation` on the topic or the group, or on the cluster for a broker's settings."""

    def steps(request: Any, ctx: RequestContext, access: Access) -> Steps:
        allowed, rows = [], []
        for asked in request.resources:
            yield 1
            kind = CONFIG_RESOURCES.get(asked.resource_type, CLUSTER)
            name = CLUSTER_NAME if kind is CLUSTER else asked.resource_name
            if access.allows(operation, kind, name):
                allowed.append(asked)
            else:
                row = result(
                    error_code=REFUSAL_OF[kind],
                    resource_type=asked.resource_type,
                    resource_name=asked.resource_name,
                )
                rows.append(explained(row, access.refusal(operation, kind, name)))
        if not rows:
            return CheckedRequest(request)
        request.resources = allowed

        def complete(made: Any) -> Message:
            setattr(made, answers, [*getattr(made, answers), *rows])
            completed: Message = made
            return completed

        return CheckedRequest(request, None if allowed else complete(response()), [complete])

    return CustomRequirement(
        [(operation, TOPIC, "topics"), (operation, GROUP, "groups"), (operation, CLUSTER, "brokers")], steps
    )


# --- transactions ------------------------------------------------------------------------------------------------


def _init_producer_id(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Write on the transactional id; without one IdempotentWrite on the cluster, or Write on any topic (KIP-679)."""
    yield 1
    response = k22_init_producer_id.InitProducerIdResponse
    if request.transactional_id is not None:
        if access.allows(Operation.WRITE, TXN, request.transactional_id):
            return CheckedRequest(request)
        why = access.refusal(Operation.WRITE, TXN, request.transactional_id)
        return CheckedRequest(request, explained(response(error_code=REFUSAL_OF[TXN]), why))
    if access.allows_any(Operation.WRITE, TOPIC) or access.allows(Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME):
        return CheckedRequest(request)
    why = access.refusal(Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
    return CheckedRequest(request, explained(response(error_code=REFUSAL_OF[CLUSTER]), why))


def _add_partitions_answer(request: Any, code_of: Callable[[str], ErrorCode]) -> Message:
    response = k24_add_partitions_to_txn
    return response.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            response.AddPartitionsToTxnResponseTopic(
                name=topic.name,
                results_by_partition=[
                    response.AddPartitionsToTxnResponsePartition(
                        partition_index=index, partition_error_code=code_of(topic.name)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _add_partitions(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Write on the transactional id and on each topic. All partitions are added, or none."""
    yield 1
    if not access.allows(Operation.WRITE, TXN, request.v3_and_below_transactional_id):
        return CheckedRequest(request, _add_partitions_answer(request, lambda name: REFUSAL_OF[TXN]))
    refused: set[str] = set()
    for topic in request.v3_and_below_topics:
        yield 1
        if not access.allows(Operation.WRITE, TOPIC, topic.name):
            refused.add(topic.name)
    if not refused:
        return CheckedRequest(request)
    return CheckedRequest(
        request,
        _add_partitions_answer(
            request, lambda name: REFUSAL_OF[TOPIC] if name in refused else ErrorCode.OPERATION_NOT_ATTEMPTED
        ),
    )


def _markers(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """ClusterAction, or Alter on the cluster: an operator's tool aborts a hanging transaction with this request."""
    yield 1
    if access.allows_quietly(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME) or access.allows(
        Operation.ALTER, CLUSTER, CLUSTER_NAME
    ):
        return CheckedRequest(request)
    made = k27_write_txn_markers
    rows = _rows_of(made.WriteTxnMarkersResponseTopic, made.WriteTxnMarkersResponsePartition)
    markers = [
        made.WriteTxnMarkersResponseMarker(
            producer_id=marker.producer_id, topics=[rows(topic, REFUSAL_OF[CLUSTER]) for topic in marker.topics]
        )
        for marker in request.markers
    ]
    return CheckedRequest(request, made.WriteTxnMarkersResponse(markers=markers))


def _describe_transactions(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Describe on each transactional id. Topics without Describe are left out of a transaction's list."""
    made = k65_describe_transactions
    rows = RowsRequirement(
        Operation.DESCRIBE,
        TXN,
        "transactional_ids",
        lambda name: name,
        "transaction_states",
        lambda name, code: made.DescribeTransactionsResponseTransaction(error_code=code, transactional_id=name),
        made.DescribeTransactionsResponse,
    )
    permitted = yield from rows.check(request, ctx, access)

    def visible_topics(response: Any) -> Message:
        for transaction in response.transaction_states:
            transaction.topics = [
                topic for topic in transaction.topics if access.allows_quietly(Operation.DESCRIBE, TOPIC, topic.topic)
            ]
        shown: Message = response
        return shown

    return CheckedRequest(permitted.request, permitted.answer, [*permitted.complete, visible_topics])


# --- the cluster -------------------------------------------------------------------------------------------------


def _describe_cluster(request: Any, ctx: RequestContext, access: Access) -> Steps:
    """Nothing: the brokers are known to every client. Authorized operations need Describe on the cluster (KIP-430)."""
    yield 1
    if not request.include_cluster_authorized_operations:
        return CheckedRequest(request)

    def with_operations(response: Any) -> Message:
        response.cluster_authorized_operations = _operations_of_cluster(access)
        made: Message = response
        return made

    return CheckedRequest(request, complete=[with_operations])


def _error(response: Any) -> Callable[[Any, ErrorCode], Message]:
    """The whole response with an error code at its top."""
    return lambda request, code: response(error_code=code)


READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
)
_COMMIT_ROWS = (k08_offset_commit.OffsetCommitResponseTopic, k08_offset_commit.OffsetCommitResponsePartition)
_TXN_COMMIT_ROWS = (
    k28_txn_offset_commit.TxnOffsetCommitResponseTopic,
    k28_txn_offset_commit.TxnOffsetCommitResponsePartition,
)
_TXN_COMMIT = _offset_rows(k28_txn_offset_commit.TxnOffsetCommitResponse, *_TXN_COMMIT_ROWS)

RULES: dict[int, tuple[Requirement, ...]] = {
    0: (
        CustomRequirement([], _unanswered),
        _txn(WRITE, _produce),
        _topic(
            WRITE, "topic_data", _produce_row, k00_produce.ProduceResponse, "responses", ids_since=PRODUCE_IDS_SINCE
        ),
    ),
    1: (_topic(READ, "topics", _fetch_row, k01_fetch.FetchResponse, "responses", ids_since=FETCH_IDS_SINCE),),
    2: (_topic(DESCRIBE, "topics", _list_offsets_row, k02_list_offsets.ListOffsetsResponse, "topics"),),
    3: (
        CustomRequirement(
            [(DESCRIBE, TOPIC, "each row"), (CREATE, TOPIC, "a topic that is created; or on the cluster")], _metadata
        ),
    ),
    8: (
        RequestRequirement(
            READ, GROUP, lambda r: r.group_id, _offset_rows(k08_offset_commit.OffsetCommitResponse, *_COMMIT_ROWS)
        ),
        _topic(
            READ,
            "topics",
            _rows_of(*_COMMIT_ROWS),
            k08_offset_commit.OffsetCommitResponse,
            "topics",
            ids_since=OFFSET_IDS_SINCE,
        ),
    ),
    9: (CustomRequirement([(DESCRIBE, GROUP, ""), (DESCRIBE, TOPIC, "each row")], _offset_fetch),),
    10: (CustomRequirement([(DESCRIBE, GROUP, "groups"), (DESCRIBE, TXN, "transactional ids")], _find_coordinator),),
    11: (_group(READ, k11_join_group.JoinGroupResponse),),
    12: (_group(READ, k12_heartbeat.HeartbeatResponse),),
    13: (_group(READ, k13_leave_group.LeaveGroupResponse),),
    14: (_group(READ, k14_sync_group.SyncGroupResponse),),
    15: (CustomRequirement([(DESCRIBE, GROUP, "each row")], _describe_groups),),
    16: (VisibleRowsRequirement(DESCRIBE, GROUP, "groups", lambda row: row.group_id, unless_cluster=DESCRIBE),),
    17: (),  # before there is a principal
    18: (),
    19: (CustomRequirement([(CREATE, CLUSTER, "or:"), (CREATE, TOPIC, "each row")], _create_topics),),
    20: (CustomRequirement([(DELETE, TOPIC, "each row")], _delete_topics),),
    21: (
        _topic(
            DELETE,
            "topics",
            _rows_of(
                k21_delete_records.DeleteRecordsResponseTopic,
                k21_delete_records.DeleteRecordsResponsePartition,
                low_watermark=-1,
            ),
            k21_delete_records.DeleteRecordsResponse,
            "topics",
        ),
    ),
    22: (
        CustomRequirement(
            [
                (WRITE, TXN, "with a transactional id"),
                (Operation.IDEMPOTENT_WRITE, CLUSTER, "without one; or Write on any topic"),
            ],
            _init_producer_id,
        ),
    ),
    23: (
        _topic(
            DESCRIBE,
            "topics",
            lambda topic, code: k23_offset_for_leader_epoch.OffsetForLeaderEpochResponseTopic(
                topic=topic.topic,
                partitions=[
                    k23_offset_for_leader_epoch.OffsetForLeaderEpochResponsePartition(
                        partition=row.partition, error_code=code
                    )
                    for row in topic.partitions
                ],
            ),
            k23_offset_for_leader_epoch.OffsetForLeaderEpochResponse,
            "topics",
        ),
    ),
    24: (CustomRequirement([(WRITE, TXN, ""), (WRITE, TOPIC, "each row")], _add_partitions),),
    25: (
        _txn(WRITE, _error(k25_add_offsets_to_txn.AddOffsetsToTxnResponse)),
        _group(READ, k25_add_offsets_to_txn.AddOffsetsToTxnResponse),
    ),
    26: (_txn(WRITE, _error(k26_end_txn.EndTxnResponse)),),
    27: (CustomRequirement([(Operation.CLUSTER_ACTION, CLUSTER, "or:"), (ALTER, CLUSTER, "")], _markers),),
    28: (
        _txn(WRITE, _TXN_COMMIT),
        RequestRequirement(READ, GROUP, lambda request: request.group_id, _TXN_COMMIT),
        _topic(
            READ,
            "topics",
            _rows_of(*_TXN_COMMIT_ROWS),
            k28_txn_offset_commit.TxnOffsetCommitResponse,
            "topics",
            ids_since=TXN_OFFSET_IDS_SINCE,
        ),
    ),
    29: (cluster(DESCRIBE, _error(k29_describe_acls.DescribeAclsResponse)),),
    30: (
        cluster(
            ALTER,
            lambda request, code: k30_create_acls.CreateAclsResponse(
                results=[k30_create_acls.CreateAclsResponseResult(error_code=code) for _ in request.creations]
            ),
        ),
    ),
    31: (
        cluster(
            ALTER,
            lambda request, code: k31_delete_acls.DeleteAclsResponse(
                filter_results=[
                    k31_delete_acls.DeleteAclsResponseFilterResult(error_code=code) for _ in request.filters
                ]
            ),
        ),
    ),
    32: (
        _configs(
            Operation.DESCRIBE_CONFIGS,
            k32_describe_configs.DescribeConfigsResponseResult,
            k32_describe_configs.DescribeConfigsResponse,
            "results",
        ),
    ),
    33: (
        _configs(
            Operation.ALTER_CONFIGS,
            k33_alter_configs.AlterConfigsResponseResource,
            k33_alter_configs.AlterConfigsResponse,
            "responses",
        ),
    ),
    35: (cluster(DESCRIBE, _error(k35_describe_log_dirs.DescribeLogDirsResponse)),),
    36: (),  # before there is a principal
    37: (
        _topic(
            ALTER,
            "topics",
            lambda topic, code: k37_create_partitions.CreatePartitionsResponseResult(name=topic.name, error_code=code),
            k37_create_partitions.CreatePartitionsResponse,
            "results",
        ),
    ),
    42: (
        RowsRequirement(
            DELETE,
            GROUP,
            "groups_names",
            lambda group: group,
            "results",
            lambda group, code: k42_delete_groups.DeleteGroupsResponseResult(group_id=group, error_code=code),
            k42_delete_groups.DeleteGroupsResponse,
        ),
    ),
    43: (
        cluster(
            ALTER,
            lambda request, code: k43_elect_leaders.ElectLeadersResponse(
                error_code=code,
                replica_election_results=[
                    k43_elect_leaders.ElectLeadersResponseTopic(
                        topic=topic.topic,
                        partition_result=[
                            k43_elect_leaders.ElectLeadersResponsePartition(partition_id=index, error_code=code)
                            for index in topic.partitions
                        ],
                    )
                    for topic in request.topic_partitions or ()
                ],
            ),
        ),
    ),
    44: (
        _configs(
            Operation.ALTER_CONFIGS,
            k44_incremental_alter_configs.IncrementalAlterConfigsResponseResource,
            k44_incremental_alter_configs.IncrementalAlterConfigsResponse,
            "responses",
        ),
    ),
    45: (cluster(ALTER, _error(k45_alter_partition_reassignments.AlterPartitionReassignmentsResponse)),),
    46: (cluster(DESCRIBE, _error(k46_list_partition_reassignments.ListPartitionReassignmentsResponse)),),
    47: (
        _group(DELETE, k47_offset_delete.OffsetDeleteResponse),
        _topic(
            READ,
            "topics",
            _rows_of(k47_offset_delete.OffsetDeleteResponseTopic, k47_offset_delete.OffsetDeleteResponsePartition),
            k47_offset_delete.OffsetDeleteResponse,
            "topics",
        ),
    ),
    48: (cluster(Operation.DESCRIBE_CONFIGS, _error(k48_describe_client_quotas.DescribeClientQuotasResponse)),),
    49: (
        cluster(
            Operation.ALTER_CONFIGS,
            lambda request, code: k49_alter_client_quotas.AlterClientQuotasResponse(
                entries=[
                    k49_alter_client_quotas.AlterClientQuotasResponseEntry(
                        error_code=code,
                        entity=[
                            k49_alter_client_quotas.AlterClientQuotasResponseEntity(
                                entity_type=part.entity_type, entity_name=part.entity_name
                            )
                            for part in entry.entity
                        ],
                    )
                    for entry in request.entries
                ]
            ),
        ),
    ),
    50: (cluster(DESCRIBE, _error(k50_describe_user_scram_credentials.DescribeUserScramCredentialsResponse)),),
    51: (
        cluster(
            ALTER,
            lambda request, code: k51_alter_user_scram_credentials.AlterUserScramCredentialsResponse(
                results=[
                    k51_alter_user_scram_credentials.AlterUserScramCredentialsResponseResult(user=name, error_code=code)
                    for name in dict.fromkeys(row.name for row in (*request.deletions, *request.upsertions))
                ]
            ),
        ),
    ),
    60: (CustomRequirement([(DESCRIBE, CLUSTER, "for authorized operations only")], _describe_cluster),),
    61: (
        _topic(
            READ,
            "topics",
            _rows_of(
                k61_describe_producers.DescribeProducersResponseTopic,
                k61_describe_producers.DescribeProducersResponsePartition,
            ),
            k61_describe_producers.DescribeProducersResponse,
            "topics",
        ),
    ),
    65: (
        CustomRequirement([(DESCRIBE, TXN, "each row"), (DESCRIBE, TOPIC, "each topic shown")], _describe_transactions),
    ),
    66: (CustomRequirement([(DESCRIBE, TXN, "each row shown")], _by_handler),),
    68: (CustomRequirement([(READ, GROUP, ""), (DESCRIBE, TOPIC, "each topic that is named")], _consumer_heartbeat),),
    69: (
        CustomRequirement(
            [(DESCRIBE, GROUP, "each row"), (DESCRIBE, TOPIC, "the topics of members")], _consumer_describe
        ),
    ),
    71: (),  # as in Kafka, every client may push its metrics
    72: (),
    74: (cluster(Operation.DESCRIBE_CONFIGS, _error(k74_list_config_resources.ListConfigResourcesResponse)),),
    75: (CustomRequirement([(DESCRIBE, TOPIC, "each row")], _topic_partitions),),
    20_001: (
        RequestRequirement(
            WRITE,
            TXN,
            lambda request: group_prefix(request.group),
            _error(k20001_begin_transaction_group.BeginTransactionGroupResponse),
        ),
    ),
    20_002: (
        RequestRequirement(
            WRITE,
            TXN,
            lambda request: group_prefix(request.group),
            _error(k20002_decide_transaction_group.DecideTransactionGroupResponse),
        ),
    ),
    20_003: (
        RowsRequirement(
            DESCRIBE,
            TXN,
            "groups",
            group_prefix,
            "groups",
            lambda group, code: k20003_describe_transaction_groups.DescribeTransactionGroupsResponseGroup(
                error_code=code, group=group
            ),
            k20003_describe_transaction_groups.DescribeTransactionGroupsResponse,
            named=lambda row: group_prefix(row.group),
        ),
    ),
    20_004: (
        RequestRequirement(
            WRITE,
            TXN,
            lambda request: group_prefix(request.group),
            _error(k20004_forget_transaction_group.ForgetTransactionGroupResponse),
        ),
    ),
}
"""API key -> requirements. An empty tuple: every client may ask."""

__all__ = ["RULES", "Complete", "may_create_topic"]
