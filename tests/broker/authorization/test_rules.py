"""Every API is behind its requirement: without rights a request learns nothing and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from broker.authorization.samples import error_codes, sample
from broker.conftest import StartBroker
from broker.consumers import HeartbeatingMember
from broker.harness import Harness, Wire
from broker.wire import batch, fetch_request, records_of
from msgspec.structs import replace
from semel_broker.authorization import guard
from semel_broker.authorization.requirements import REFUSAL_OF
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.context import RequestContext
from semel_broker.handlers import HANDLERS, NEEDS
from semel_broker.handlers.api_versions import offered
from semel_broker.handlers.k01_fetch import PARTITIONS_AT_ONCE_MAX
from semel_broker.node import FETCH
from semel_broker.partitions.disk_hangs import DiskHangs
from semel_protocol.acls import (
    CLUSTER_NAME,
    NOT_ASKED,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    bits_of,
)
from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode
from semel_protocol.messages import (
    k03_metadata,
    k09_offset_fetch,
    k10_find_coordinator,
    k19_create_topics,
    k20_delete_topics,
    k22_init_producer_id,
    k75_describe_topic_partitions,
)
from semel_protocol.messages.k01_fetch import FetchRequestTopic
from semel_protocol.messages.k60_describe_cluster import DescribeClusterRequest
from semel_protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from semel_protocol.schema import Message

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANONYMOUS = "User:ANONYMOUS"
REFUSALS = set(REFUSAL_OF.values())
UNREFUSED = {3, 16, 17, 18, 36, 60, 66, 71, 72}
"""APIs that every client may use. Their responses contain only what the client may see, or who it is."""
TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


async def guarded(start_broker: StartBroker, **settings: str) -> Harness:
    """A broker with an authorizer and the topic `t`. No principal has rights on the topic."""
    harness = await start_broker(
        durability="os",
        authorizer_class_name=AUTHORIZER,
        group_initial_rebalance_delay_ms="0",
        **{"super_users": "User:root", **settings},
    )
    node = harness.node
    assert node is not None
    await node.broker.topics.ensure("t")
    return harness


async def allow(
    harness: Harness, operation: Operation, kind: ResourceType, name: str, pattern: PatternType = PatternType.LITERAL
) -> None:
    await change(harness, Acl(kind, name, pattern, ANONYMOUS, WILDCARD, operation, Permission.ALLOW))


async def change(harness: Harness, *acls: Acl, delete: bool = False) -> None:
    assert harness.node is not None
    store = harness.node.broker.acls
    assert store is not None
    await (store.delete(acls) if delete else store.create(acls))


@pytest.mark.proves("hidden-topics")
def test_the_table_has_every_api_that_is_served_and_no_other() -> None:
    assert set(NEEDS) == set(HANDLERS)


@pytest.mark.proves("hidden-topics")
def test_every_api_but_those_before_authentication_requires_something() -> None:
    pushes = {71, 72}  # metrics of the client itself
    assert {key for key, rules in NEEDS.items() if not rules} == {17, 18, 36} | pushes


@pytest.mark.proves("right-to-the-transactional-id")
@pytest.mark.parametrize("key", sorted(set(HANDLERS) - UNREFUSED))
async def test_without_rights_every_row_is_refused_in_every_version(start_broker: StartBroker, key: int) -> None:
    harness = await guarded(start_broker)
    wire = await harness.wire()
    assert harness.node is not None
    topics = harness.node.broker.topics
    topic_id = topics.required("t").topic_id
    for version in range(APIS[key].low, offered(harness.node.broker.config)[key][1] + 1):
        answer = await wire.call(sample(key, topic_id), version)
        if key == 35 and version < 3:  # without a field for the error: as in Kafka there is no directory
            assert answer.results == []
            continue
        codes = set(error_codes(answer))
        assert codes - {ErrorCode.NONE} <= REFUSALS
        assert codes & REFUSALS, f"{APIS[key].name} v{version}: {codes}"
    assert topics.names() == ["t"]  # nothing was made or deleted
    assert topics.partition("t", 0).log.end_offset == 0
    assert topics.required("t").partition_count == 1


@pytest.mark.parametrize("asks_operations", [False, True])
async def test_the_path_of_a_disk_that_hangs_is_for_principals_with_describe_on_the_cluster(
    start_broker: StartBroker, asks_operations: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await guarded(start_broker)
    assert harness.node is not None
    wire = await harness.wire()
    monkeypatch.setattr(DiskHangs, "stops_writes", True)
    request = DescribeClusterRequest(include_cluster_authorized_operations=asks_operations)
    told = await wire.call(request)
    assert (told.disk_hangs_ms, told.disk_path) == (0, "")
    await allow(harness, Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
    told = await wire.call(request)
    assert told.disk_path == harness.node.broker.config.log_dir


@pytest.mark.proves("hidden-topics")
async def test_listings_show_nothing_without_rights(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    wire = await harness.wire()
    assert (await wire.call(sample(16))).groups == []
    assert (await wire.call(sample(66))).transaction_states == []
    everything = k03_metadata.MetadataRequest(topics=None, allow_auto_topic_creation=True)
    metadata = await wire.call(everything)
    assert metadata.topics == []
    assert metadata.brokers  # a client has to find them
    assert (await wire.call(sample(60))).cluster_authorized_operations == 0


@pytest.mark.proves("hidden-topics")
async def test_a_topic_that_is_not_there_and_one_that_may_not_be_seen_look_alike(start_broker: StartBroker) -> None:
    wire = await (await guarded(start_broker)).wire()
    asked = [k03_metadata.MetadataRequestTopic(name=name) for name in ("t", "missing")]
    found = (await wire.call(k03_metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=True))).topics
    there, missing = found
    assert there.error_code == missing.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (there.partitions, there.topic_id) == (missing.partitions, missing.topic_id)


async def test_metadata_tells_the_operations_of_the_principal_and_hides_the_name_behind_a_refused_id(
    start_broker: StartBroker,
) -> None:
    harness = await guarded(start_broker)
    assert harness.node is not None
    topic_id = harness.node.broker.topics.required("t").topic_id
    wire = await harness.wire()

    async def asked(version: int, **fields: Any) -> Any:
        topics = [k03_metadata.MetadataRequestTopic(**fields)]
        return await wire.call(
            k03_metadata.MetadataRequest(
                topics=topics,
                include_cluster_authorized_operations=True,
                include_topic_authorized_operations=True,
                allow_auto_topic_creation=False,
            ),
            version,
        )

    (refused,) = (await asked(12, name=None, topic_id=topic_id)).topics
    assert (refused.error_code, refused.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    (unknown,) = (await asked(12, name=None, topic_id=bytes(15) + b"x")).topics
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    await allow(harness, Operation.WRITE, TOPIC, "t")
    answer = await asked(10, name="t")
    assert answer.topics[0].topic_authorized_operations == bits_of({Operation.WRITE, Operation.DESCRIBE})
    assert answer.cluster_authorized_operations == 0  # it needs Describe on the cluster
    await allow(harness, Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
    assert (await asked(10, name="t")).cluster_authorized_operations == bits_of({Operation.DESCRIBE})


ENOUGH: Sequence[tuple[int, Sequence[tuple[Operation, ResourceType, str]]]] = [
    (0, [(Operation.WRITE, TOPIC, "t")]),
    (1, [(Operation.READ, TOPIC, "t")]),
    (2, [(Operation.DESCRIBE, TOPIC, "t")]),
    (3, [(Operation.DESCRIBE, TOPIC, "t")]),
    (8, [(Operation.READ, GROUP, "g"), (Operation.READ, TOPIC, "t")]),
    (9, [(Operation.DESCRIBE, GROUP, "g"), (Operation.DESCRIBE, TOPIC, "t")]),
    (10, [(Operation.DESCRIBE, GROUP, "g")]),
    (11, [(Operation.READ, GROUP, "g")]),
    (12, [(Operation.READ, GROUP, "g")]),
    (13, [(Operation.READ, GROUP, "g")]),
    (14, [(Operation.READ, GROUP, "g")]),
    (15, [(Operation.DESCRIBE, GROUP, "g")]),
    (19, [(Operation.CREATE, CLUSTER, CLUSTER_NAME)]),
    (19, [(Operation.CREATE, TOPIC, "t")]),
    (20, [(Operation.DELETE, TOPIC, "t")]),
    (21, [(Operation.DELETE, TOPIC, "t")]),
    (22, [(Operation.WRITE, TXN, "x")]),
    (23, [(Operation.DESCRIBE, TOPIC, "t")]),
    (24, [(Operation.WRITE, TXN, "x"), (Operation.WRITE, TOPIC, "t")]),
    (25, [(Operation.WRITE, TXN, "x"), (Operation.READ, GROUP, "g")]),
    (26, [(Operation.WRITE, TXN, "x")]),
    (27, [(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)]),
    (27, [(Operation.ALTER, CLUSTER, CLUSTER_NAME)]),
    (28, [(Operation.WRITE, TXN, "x"), (Operation.READ, GROUP, "g"), (Operation.READ, TOPIC, "t")]),
    (29, [(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)]),
    (30, [(Operation.ALTER, CLUSTER, CLUSTER_NAME)]),
    (31, [(Operation.ALTER, CLUSTER, CLUSTER_NAME)]),
    (32, [(Operation.DESCRIBE_CONFIGS, TOPIC, "t")]),
    (33, [(Operation.ALTER_CONFIGS, TOPIC, "t")]),
    (37, [(Operation.ALTER, TOPIC, "t")]),
    (42, [(Operation.DELETE, GROUP, "g")]),
    (43, [(Operation.ALTER, CLUSTER, CLUSTER_NAME)]),
    (44, [(Operation.ALTER_CONFIGS, TOPIC, "t")]),
    (45, [(Operation.ALTER, CLUSTER, CLUSTER_NAME)]),
    (35, [(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)]),
    (46, [(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)]),
    (47, [(Operation.DELETE, GROUP, "g"), (Operation.READ, TOPIC, "t")]),
    (48, [(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_NAME)]),
    (49, [(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME)]),
    (50, [(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)]),
    (51, [(Operation.ALTER, CLUSTER, CLUSTER_NAME)]),
    (61, [(Operation.READ, TOPIC, "t")]),
    (65, [(Operation.DESCRIBE, TXN, "x")]),
    (68, [(Operation.READ, GROUP, "g"), (Operation.DESCRIBE, TOPIC, "t")]),
    (69, [(Operation.DESCRIBE, GROUP, "g")]),
    (74, [(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_NAME)]),
    (75, [(Operation.DESCRIBE, TOPIC, "t")]),
    (20_001, [(Operation.WRITE, TXN, "s/")]),
    (20_002, [(Operation.WRITE, TXN, "s/")]),
    (20_003, [(Operation.DESCRIBE, TXN, "s/")]),
    (20_004, [(Operation.WRITE, TXN, "s/")]),
]


def test_the_list_of_rights_has_every_api() -> None:
    assert {key for key, _ in ENOUGH} == set(HANDLERS) - UNREFUSED | {3}


@pytest.mark.parametrize(
    ("key", "rights"), ENOUGH, ids=lambda value: APIS[value].name if isinstance(value, int) else ""
)
async def test_exactly_these_rights_are_enough(
    start_broker: StartBroker, key: int, rights: Sequence[tuple[Operation, ResourceType, str]]
) -> None:
    """With all of these rights nothing is refused. Without any one of them the request is refused."""
    harness = await guarded(start_broker)
    wire = await harness.wire()
    for missing in rights:
        others = [acl(*right) for right in rights if right != missing]
        await change(harness, *others)
        assert set(error_codes(await wire.call(sample(key)))) & REFUSALS, missing
        await change(harness, *others, delete=True)
    await change(harness, *(acl(*right) for right in rights))
    assert not set(error_codes(await wire.call(sample(key)))) & REFUSALS


def acl(operation: Operation, kind: ResourceType, name: str) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, ANONYMOUS, WILDCARD, operation, Permission.ALLOW)


async def test_refused_rows_are_answered_beside_those_that_are_allowed(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    await allow(harness, Operation.WRITE, TOPIC, "t")
    wire = await harness.wire()
    request = sample(0)
    other = sample(0).topic_data[0]
    other.name = "forbidden"
    request.topic_data = [other, *request.topic_data]
    rows = {row.name: row.partition_responses[0] for row in (await wire.call(request)).responses}
    assert rows["t"].error_code == ErrorCode.NONE
    assert (rows["forbidden"].error_code, rows["forbidden"].base_offset) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


@pytest.mark.proves("right-to-the-transactional-id")
async def test_a_transactional_produce_needs_the_right_to_the_transactional_id(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    await allow(harness, Operation.WRITE, TOPIC, "t")
    wire = await harness.wire()
    request = sample(0)
    request.transactional_id = "x"
    assert set(error_codes(await wire.call(request))) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    await allow(harness, Operation.WRITE, TXN, "x")
    assert not set(error_codes(await wire.call(request))) & REFUSALS


async def test_acks_0_without_rights_closes_the_connection_and_appends_nothing(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    wire = await harness.wire()
    request = sample(0)
    request.acks = 0
    wire.forget(wire.send(request))
    assert await wire.reader.read() == b""
    assert harness.node is not None
    assert harness.node.broker.topics.partition("t", 0).log.end_offset == 0
    assert harness.log.of("connection_closed")[0]["reason"] == "not_authorized"


@pytest.mark.proves("records-before-the-right-to-write")
async def test_records_are_not_looked_at_before_the_right_to_write_them(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a client without rights could make the broker decompress records."""
    from semel_broker.handlers import k00_appends

    def looked_at(*arguments: Any) -> Any:
        raise AssertionError("a batch was looked at")

    monkeypatch.setattr(k00_appends, "inspect", looked_at)
    wire = await (await guarded(start_broker)).wire()
    assert set(error_codes(await wire.call(sample(0)))) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


async def test_a_topic_is_made_by_use_only_with_the_right_to_create_it(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker, auto_create_topics_enable="true")
    await allow(harness, Operation.DESCRIBE, TOPIC, "made", PatternType.PREFIXED)
    wire = await harness.wire()

    async def ask(name: str) -> Any:
        topics = [k03_metadata.MetadataRequestTopic(name=name)]
        return (await wire.call(k03_metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=True))).topics[0]

    assert (await ask("made-1")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await allow(harness, Operation.CREATE, TOPIC, "made", PatternType.PREFIXED)
    assert (await ask("made-2")).error_code == ErrorCode.NONE


async def test_an_idempotent_producer_needs_the_right_to_write_to_some_topic(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    wire = await harness.wire()
    request = k22_init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    assert (await wire.call(request)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await allow(harness, Operation.WRITE, TOPIC, "t")
    assert (await wire.call(request)).error_code == ErrorCode.NONE


async def test_the_coordinator_of_a_transactional_id_is_returned_with_a_right_on_that_id(
    start_broker: StartBroker,
) -> None:
    harness = await guarded(start_broker)
    await allow(harness, Operation.DESCRIBE, GROUP, "x")
    wire = await harness.wire()
    request = k10_find_coordinator.FindCoordinatorRequest(key="x", key_type=1)
    assert (await wire.call(request)).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    await allow(harness, Operation.WRITE, TXN, "x")
    assert (await wire.call(request)).error_code == ErrorCode.NONE


async def test_of_several_coordinators_those_with_a_right_are_returned(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    await allow(harness, Operation.DESCRIBE, GROUP, "mine")
    wire = await harness.wire()
    request = k10_find_coordinator.FindCoordinatorRequest(coordinator_keys=["mine", "other"])
    found = await wire.call(request, 4)
    assert {row.key: row.error_code for row in found.coordinators} == {
        "mine": ErrorCode.NONE,
        "other": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
    request = k10_find_coordinator.FindCoordinatorRequest(coordinator_keys=[])
    assert (await wire.call(request, 4)).coordinators == []


@pytest.mark.proves("right-to-the-transactional-id")
async def test_a_partly_allowed_transaction_adds_no_partition(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    await allow(harness, Operation.WRITE, TXN, "x")
    await allow(harness, Operation.WRITE, TOPIC, "t")
    wire = await harness.wire()
    request = sample(24)
    forbidden = sample(24).v3_and_below_topics[0]
    forbidden.name = "forbidden"
    request.v3_and_below_topics = [*request.v3_and_below_topics, forbidden]
    rows = (await wire.call(request)).results_by_topic_v3_and_below
    assert {row.name: row.results_by_partition[0].partition_error_code for row in rows} == {
        "t": ErrorCode.OPERATION_NOT_ATTEMPTED,
        "forbidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


async def test_settings_of_a_new_topic_are_shown_with_the_right_to_see_them(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    await allow(harness, Operation.CREATE, CLUSTER, CLUSTER_NAME)
    wire = await harness.wire()
    request = sample(19)
    request.topics[0].name = "made"
    response: k19_create_topics.CreateTopicsResponse = await wire.call(request)
    assert response.topics[0].error_code == ErrorCode.NONE
    assert response.topics[0].configs in (None, [])


@pytest.mark.proves("right-taken-away")
async def test_a_right_that_is_taken_away_is_gone_on_open_connections(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    right = acl(Operation.WRITE, TOPIC, "t")
    await change(harness, right)
    wire = await harness.wire()
    assert set(error_codes(await wire.call(sample(0)))) == {ErrorCode.NONE}
    await change(harness, right, delete=True)
    assert set(error_codes(await wire.call(sample(0)))) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.proves("fetch-after-a-right-is-gone")
@pytest.mark.parametrize("partitions", [1, PARTITIONS_AT_ONCE_MAX + 1])
@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_a_waiting_fetch_returns_nothing_that_came_after_its_right_was_taken_away(
    start_broker: StartBroker, partitions: int, session_epoch: int
) -> None:
    """The client sets the wait time of a fetch, so a late response could return records that it may no longer read."""
    harness = await guarded(start_broker)
    assert harness.node is not None
    topics = harness.node.broker.topics
    for name, count in (("wide", partitions), ("hidden", 1)):
        await topics.create(NewTopic(name=name, partitions=count))
    read = acl(Operation.READ, TOPIC, "wide")
    await change(harness, read, acl(Operation.READ, TOPIC, "t"), acl(Operation.WRITE, TOPIC, "wide"))
    request = fetch_request("wide", 0, max_wait_ms=60_000, session_epoch=session_epoch)
    (row,) = request.topics[0].partitions
    counts = {"wide": partitions, "hidden": 1, "t": 1}
    request.topics = [
        FetchRequestTopic(topic=name, partitions=[replace(row, partition=index) for index in range(count)])
        for name, count in counts.items()
    ]
    wire, writer = await harness.wire(), await harness.wire()
    wire.send(request, 12)
    while not topics.partition("wide", 0).view._waiters:
        await asyncio.sleep(0)
    await change(harness, read, delete=True)
    await writer.produce("wide", batch(b"secret"))
    answer = await wire.receive()
    rows = {topic.topic: topic.partitions for topic in answer.responses}
    assert {name: len(found) for name, found in rows.items()} == counts
    for name in ("wide", "hidden"):
        assert {each.error_code for each in rows[name]} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert not any(each.records for each in rows[name])
    assert rows["t"][0].error_code == ErrorCode.NONE


async def test_a_waiting_fetch_returns_what_it_may_after_a_change_of_other_rights(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    assert harness.node is not None
    await change(harness, acl(Operation.READ, TOPIC, "t"), acl(Operation.WRITE, TOPIC, "t"))
    wire, writer = await harness.wire(), await harness.wire()
    wire.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
    while not harness.node.broker.topics.partition("t", 0).view._waiters:
        await asyncio.sleep(0)
    await change(harness, acl(Operation.READ, TOPIC, "other"))
    await writer.produce("t", batch(b"news"))
    row = (await wire.receive()).responses[0].partitions[0]
    assert [record.value for record in records_of(row.records)] == [b"news"]


@pytest.mark.proves("refusal-without-a-session")
async def test_a_broker_without_a_session_refuses_nothing_for_a_right_that_may_have_been_given(
    start_broker: StartBroker,
) -> None:
    """A broker without a session does not get changes of rights.

    A producer drops a record that is refused, but retries other errors at another broker.
    """

    class Ended:
        def is_valid(self) -> bool:
            return False

    harness = await guarded(start_broker)
    assert harness.node is not None
    harness.node.broker.registration = Ended()  # type: ignore[assignment]
    wire = await harness.wire()
    wire.send(sample(0))
    assert await wire.closed_by_peer()
    assert not harness.log.of("not_authorized")
    harness.node.broker.registration = None
    assert set(error_codes(await (await harness.wire()).call(sample(0)))) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.proves("right-taken-away")
async def test_rights_outlive_a_restart(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    await change(harness, acl(Operation.WRITE, TOPIC, "t"))
    await harness.restart()
    assert set(error_codes(await (await harness.wire()).call(sample(0)))) == {ErrorCode.NONE}


async def test_very_many_topics_are_checked_in_slices(start_broker: StartBroker) -> None:
    """The response has all of the topics."""
    harness = await guarded(start_broker)
    wire = await harness.wire()
    request = sample(2)
    (one,) = request.topics
    request.topics = [type(one)(name=f"t{number}", partitions=one.partitions) for number in range(5_000)]
    response = await wire.call(request)
    assert len(response.topics) == 5_000
    assert set(error_codes(response)) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


async def test_a_refusal_is_logged_once_with_principal_and_resource(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    wire: Wire = await harness.wire()
    for _ in range(3):
        await wire.call(sample(0))
    (line,) = harness.log.of("not_authorized")
    assert line["principal"] == ANONYMOUS
    assert line["operation"] == "WRITE"
    assert line["resource"] == "TOPIC:t"


async def test_without_an_authorizer_handlers_are_called_directly(broker: Harness) -> None:
    """A broker without an authorizer pays nothing for authorization."""
    assert broker.node is not None
    handlers = broker.node.server.context.dispatcher._handlers
    assert all(handlers[key] is handler for key, handler in HANDLERS.items() if key != FETCH)


@pytest.mark.proves("hidden-topics")
async def test_an_id_does_not_tell_the_name_of_a_topic_that_may_not_be_seen(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    wire = await harness.wire()
    assert harness.node is not None
    topic_id = harness.node.broker.topics.required("t").topic_id
    asked = [k03_metadata.MetadataRequestTopic(name=None, topic_id=each) for each in (topic_id, b"x" * 16)]
    found = (await wire.call(k03_metadata.MetadataRequest(topics=asked), 12)).topics
    assert {each.topic_id: (each.error_code, each.name) for each in found} == {
        topic_id: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None),  # as of Kafka: ids are no secret, names are
        b"x" * 16: (ErrorCode.UNKNOWN_TOPIC_ID, None),
    }
    await allow(harness, Operation.DESCRIBE, TOPIC, "t")
    found = (await wire.call(k03_metadata.MetadataRequest(topics=asked[:1]), 12)).topics
    assert [(each.error_code, each.name) for each in found] == [(0, "t")]


async def test_a_pattern_matches_only_topics_that_the_member_may_describe(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    await allow(harness, Operation.READ, GROUP, "g")
    one = HeartbeatingMember(await harness.wire(), "a", topics=None, regex=".*")
    assert await one.beat(subscribed_topic_names=None) == 0
    assert one.owned == frozenset()
    await allow(harness, Operation.DESCRIBE, TOPIC, "t")
    two = HeartbeatingMember(await harness.wire(), "b", topics=None, regex="t|x")
    assert await two.beat(subscribed_topic_names=None) == 0
    assert two.partitions == [0]


async def test_groups_that_read_hidden_topics_are_not_described(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    for operation, kind, name in ((Operation.READ, GROUP, "g"), (Operation.READ, TOPIC, "t")):
        await allow(harness, operation, kind, name)
    one = HeartbeatingMember(await harness.wire(), "a")
    assert await one.beat() == 0
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    (found,) = (await one.wire.call(request, 1)).groups
    assert (found.error_code, len(found.members)) == (0, 1)
    assert found.authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE
    right = Acl(TOPIC, "t", PatternType.LITERAL, ANONYMOUS, WILDCARD, Operation.READ, Permission.ALLOW)
    await change(harness, right, delete=True)
    (found,) = (await one.wire.call(request, 1)).groups
    assert (found.error_code, found.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


async def test_offsets_of_several_groups_are_fetched_as_far_as_allowed(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    await allow(harness, Operation.DESCRIBE, GROUP, "g")
    wire = await harness.wire()
    asked = k09_offset_fetch.OffsetFetchRequest(
        groups=[
            k09_offset_fetch.OffsetFetchRequestGroup(
                group_id=group, topics=[k09_offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
            )
            for group in ("g", "other")
        ]
    )
    mine, other = (await wire.call(asked, 9)).groups
    assert [row.error_code for row in mine.topics[0].partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert (other.error_code, other.topics) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    await allow(harness, Operation.DESCRIBE, TOPIC, "t")
    mine, _ = (await wire.call(asked, 9)).groups
    assert [row.error_code for row in mine.topics[0].partitions] == [0]


async def test_pages_of_topics_show_and_count_only_those_that_may_be_described(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    assert harness.node is not None
    for name in ("a", "b", "c", "d"):
        await harness.node.broker.topics.ensure(name)
    wire = await harness.wire()
    for name in ("b", "d"):
        await allow(harness, Operation.DESCRIBE, TOPIC, name)
    made = k75_describe_topic_partitions

    async def page(*names: str, cursor: str | None = None) -> Any:
        request = made.DescribeTopicPartitionsRequest(
            topics=[made.DescribeTopicPartitionsRequestTopic(name=name) for name in names],
            response_partition_limit=1,
            cursor=None
            if cursor is None
            else made.DescribeTopicPartitionsRequestCursor(topic_name=cursor, partition_index=0),
        )
        answer = await wire.call(request)
        rows = [(row.name, ErrorCode(row.error_code), row.topic_authorized_operations) for row in answer.topics]
        return rows, None if answer.next_cursor is None else answer.next_cursor.topic_name

    operations = bits_of({Operation.DESCRIBE})

    def shown(name: str) -> tuple[str, ErrorCode, int]:
        return (name, ErrorCode.NONE, operations)

    def refused(name: str) -> tuple[str, ErrorCode, int]:
        return (name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_ASKED)

    assert await page() == ([shown("b")], "d")  # neither c nor its name
    assert await page(cursor="d") == ([shown("d")], None)
    assert await page(cursor="c") == ([shown("d")], None)
    named = ("d", "c", "missing", "b", "a")
    assert await page(*named) == ([refused("a"), shown("b"), refused("c")], "d")
    assert await page(*named, cursor="d") == ([shown("d"), refused("missing")], None)
    assert await page(*named, cursor="c") == ([refused("c"), shown("d"), refused("missing")], None)
    assert await page("a", "c", cursor="c") == ([refused("c")], None)


@pytest.mark.proves("topic-after-the-check")
@pytest.mark.parametrize("key", [0, 1, 3, 8, 9, 20])
async def test_a_topic_that_comes_after_the_check_is_not_reached_by_its_id(start_broker: StartBroker, key: int) -> None:
    """The right for a row with an unknown topic id is never checked, so the handler must not get that row."""
    harness = await guarded(start_broker)
    assert harness.node is not None
    broker = harness.node.broker
    version = offered(broker.config)[key][1]
    ctx = RequestContext(broker, version, "", "", "")
    assert broker.acls is not None
    reached: list[Any] = []

    async def handler(request: Any, ctx: RequestContext) -> None:
        reached.append(request)

    handle = guard.guarded({key: handler}, NEEDS, broker.acls.authorizer, lambda *_: None)[key]
    await allow(harness, Operation.ALL, GROUP, WILDCARD)
    request = sample(key, b"x" * 16)
    if key == 9:
        request.groups[0].topics = [k09_offset_fetch.OffsetFetchRequestTopic(topic_id=b"x" * 16, partition_indexes=[0])]
    if key == 20:
        request.topic_names = []
        request.topics = [k20_delete_topics.DeleteTopicsRequestTopic(name=None, topic_id=b"x" * 16)]
    answer = await handle(request, ctx)
    assert list(rows_with_ids(reached)) == []
    if key in (3, 9):  # the handler adds the brokers, and checks the group
        assert len(reached) == 1
    else:
        assert reached == []
        assert set(error_codes(answer)) - {ErrorCode.NONE} == {ErrorCode.UNKNOWN_TOPIC_ID}


def rows_with_ids(value: object) -> Iterator[Message]:
    """The rows of requests that are about a topic's id."""
    if isinstance(value, list):
        for each in value:
            yield from rows_with_ids(each)
    elif isinstance(value, Message):
        if hasattr(value, "topic_id"):
            yield value
        fields = [each for each in value.__struct_fields__ if not (each == "topics" and hasattr(value, "groups"))]
        for name in fields:  # the other topics of OffsetFetch are of older versions
            yield from rows_with_ids(getattr(value, name))


async def test_records_for_an_unknown_id_that_are_not_answered_close_the_connection(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    assert harness.node is not None
    await allow(harness, Operation.WRITE, TOPIC, "t")
    request = sample(0, b"x" * 16)
    request.acks = 0
    wire = await harness.wire()
    wire.forget(wire.send(request, offered(harness.node.broker.config)[0][1]))
    assert await wire.closed_by_peer()
