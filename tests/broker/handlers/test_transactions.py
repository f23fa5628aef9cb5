"""Transactions over the wire: the coordinator's requests, their versions and errors, and restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire
from broker.transactional import TransactionalProducer
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
)
from semel_protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from semel_protocol.messages.k26_end_txn import EndTxnRequest
from semel_protocol.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
)
from semel_protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from semel_protocol.messages.k66_list_transactions import ListTransactionsRequest

TIMEOUT_MS = 60_000


async def init(wire: Wire, name: str | None = "t", version: int = 4, **fields: Any) -> Any:
    timeout_ms = fields.pop("timeout_ms", TIMEOUT_MS)
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **fields)
    return await wire.call(request, version)


async def add(wire: Wire, mine: Any, partitions: dict[str, list[int]], name: str = "t") -> dict[tuple[str, int], int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=mine.producer_id,
        v3_and_below_producer_epoch=mine.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequestTopic(name=topic, partitions=indexes) for topic, indexes in partitions.items()
        ],
    )
    answer = await wire.call(request, 0)
    return {
        (topic.name, row.partition_index): row.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }


async def end(wire: Wire, mine: Any, commit: bool = True, version: int = 1, name: str = "t") -> Any:
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=mine.producer_id,
        producer_epoch=mine.producer_epoch,
        committed=commit,
    )
    return await wire.call(request, version)


async def describe(wire: Wire, name: str = "t") -> Any:
    return (await wire.call(DescribeTransactionsRequest(transactional_ids=[name]))).transaction_states[0]


async def begun(broker: Harness, name: str = "t") -> tuple[Wire, Any]:
    """A producer with an open transaction that includes out-0."""
    wire = await broker.wire()
    await wire.create_topic("out", 3)
    mine = await init(wire, name)
    assert await add(wire, mine, {"out": [0]}, name) == {("out", 0): 0}
    return wire, mine


# --- versions ---


async def versions(wire: Wire, version: int = 4) -> tuple[dict[int, tuple[int, int]], Any]:
    answer = await wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), version)
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}, answer


async def test_kip890_transaction_version_2_is_offered_with_the_requests_that_it_needs(broker: Harness) -> None:
    served, answer = await versions(await broker.wire())
    assert [served[key] for key in (0, 22, 24, 25, 26, 28)] == [(0, 13), (0, 5), (0, 3), (0, 4), (0, 5), (0, 6)]
    (finalized,) = [each for each in answer.finalized_features if each.name != "group.version"]
    assert (finalized.name, finalized.max_version_level) == ("transaction.version", 2)
    assert answer.finalized_features_epoch >= 0
    (supported,) = [each for each in answer.supported_features if each.name != "group.version"]
    assert (supported.name, supported.min_version, supported.max_version) == ("transaction.version", 0, 2)


async def test_a_feature_of_level_0_is_hidden_from_old_clients(broker: Harness) -> None:
    _, answer = await versions(await broker.wire(), 3)
    assert answer.supported_features == []
    assert {each.name: each.max_version_level for each in answer.finalized_features}["transaction.version"] == 2
    _, answer = await versions(await broker.wire(), 2)
    assert (answer.finalized_features, answer.finalized_features_epoch) == ([], -1)


async def test_transaction_version_1_offers_only_its_versions(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", transaction_version="1")
    wire = await broker.wire()
    served, answer = await versions(wire)
    assert [served[key] for key in (0, 22, 26, 28)] == [(0, 7), (0, 4), (0, 1), (0, 3)]
    assert {each.name: each.max_version_level for each in answer.finalized_features}["transaction.version"] == 1
    await end(wire, await init(wire), version=1)
    with pytest.raises(asyncio.IncompleteReadError):
        await end(wire, await init(wire), version=5)


@pytest.mark.parametrize(("enabled", "version"), [("false", 5), ("true", 6)])
async def test_kip939_two_phase_commit_is_offered_only_if_enabled(
    start_broker: StartBroker, enabled: str, version: int
) -> None:
    broker = await start_broker(durability="os", transaction_two_phase_commit_enable=enabled)
    served, _ = await versions(await broker.wire())
    assert served[22] == (0, version)


async def test_kip939_over_the_wire(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", transaction_two_phase_commit_enable="true")
    wire = await broker.wire()
    await wire.create_topic("out")
    mine = await init(wire, version=6, enable2_pc=True, timeout_ms=0)
    assert (mine.error_code, mine.ongoing_txn_producer_id) == (0, -1)
    await add(wire, mine, {"out": [0]})
    heir = await init(wire, version=6, enable2_pc=True, keep_prepared_txn=True)
    assert (heir.ongoing_txn_producer_id, heir.ongoing_txn_producer_epoch) == (mine.producer_id, mine.producer_epoch)
    done = await end(wire, heir, version=5)
    assert (done.error_code, done.producer_epoch) == (0, heir.producer_epoch + 1)
    assert (await describe(wire)).transaction_state == "CompleteCommit"


# --- the requests ---


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_a_transaction_in_every_version(broker: Harness, version: int, commit: bool) -> None:
    wire, mine = await begun(broker)
    row = await describe(wire)
    assert (row.transaction_state, row.producer_id, row.client_id) == ("Ongoing", mine.producer_id, "wire")
    assert [(topic.topic, topic.partitions) for topic in row.topics] == [("out", [0])]
    assert row.transaction_start_time_ms > 0
    done = await end(wire, mine, commit, version)
    expected = (mine.producer_id, mine.producer_epoch + 1) if version == 5 else (-1, -1)
    assert (done.error_code, done.producer_id, done.producer_epoch) == (0, *expected)
    assert (await describe(wire)).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")


async def test_invalid_init_producer_id_requests_are_refused(broker: Harness) -> None:
    wire = await broker.wire()
    for fields, code in (
        ({"name": ""}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 4}, ErrorCode.INVALID_REQUEST),
    ):
        answer = await init(wire, **fields)
        assert (ErrorCode(answer.error_code), answer.producer_id) == (code, -1)
        assert answer.error_message, "words for clients that read them"


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
async def test_kip588_a_zombie_gets_the_fencing_error_of_its_version(
    broker: Harness, version: int, code: ErrorCode
) -> None:
    wire = await broker.wire()
    old = await init(wire)
    await init(wire)
    answer = await init(wire, version=version, producer_id=old.producer_id, producer_epoch=old.producer_epoch)
    assert answer.error_code == code
    assert "client 'wire' at 127.0.0.1" in answer.error_message


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, ErrorCode.PRODUCER_FENCED),
        (5, ErrorCode.PRODUCER_FENCED),
    ],
)
async def test_a_zombie_is_fenced_by_its_replacement(broker: Harness, version: int, code: ErrorCode) -> None:
    wire, old = await begun(broker)
    new = await init(await broker.wire())
    assert (new.error_code, new.producer_epoch) == (0, old.producer_epoch + 2)
    fenced = await end(wire, old, version=version)
    assert fenced.error_code == code
    if version >= 3:
        assert "a new producer with this transactional.id was initialised" in fenced.error_message
    assert await add(wire, old, {"out": [1]}) == {("out", 1): ErrorCode.INVALID_PRODUCER_EPOCH}
    row = await describe(wire)
    assert [(fence.reason, fence.old_epoch) for fence in row.fences] == [("new_instance", 0), ("new_instance", 1)]
    assert row.fences[0].text.startswith("epoch 0 gave way to epoch 1")


async def test_partitions_are_added_all_or_none(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("out", 2)
    mine = await init(wire)
    assert await add(wire, mine, {"out": [0, 7], "nothing": [0], "__consumer_offsets": [1]}) == {
        ("out", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("out", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("__consumer_offsets", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (await describe(wire)).transaction_state == "Empty"
    assert await add(wire, mine, {"out": [0, 1]}) == {("out", 0): 0, ("out", 1): 0}


async def test_the_brokers_own_topics_are_not_added_by_name(broker: Harness) -> None:
    wire = await broker.wire()
    mine = await init(wire)
    added = await add(wire, mine, {"__transaction_state": [0]})
    assert added == {("__transaction_state", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}


async def test_offsets_of_a_group_are_added(broker: Harness) -> None:
    wire = await broker.wire()
    mine = await init(wire)

    async def enrol(group: str) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id="t",
            producer_id=mine.producer_id,
            producer_epoch=mine.producer_epoch,
            group_id=group,
        )
        answer = await wire.call(request)
        assert isinstance(answer.error_code, int)
        return answer.error_code

    assert await enrol("") == ErrorCode.INVALID_GROUP_ID
    assert await enrol("g") == 0
    (topic,) = (await describe(wire)).topics
    assert (topic.topic, len(topic.partitions)) == ("__consumer_offsets", 1)
    assert (await end(wire, mine)).error_code == 0


async def test_an_unknown_id_owns_nothing(broker: Harness) -> None:
    wire, mine = await begun(broker)
    assert await add(wire, mine, {"out": [0]}, "other") == {("out", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert (await end(wire, mine, name="other")).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (await describe(wire, "other")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_transactions_are_listed_by_state_producer_and_age(broker: Harness) -> None:
    wire, mine = await begun(broker)
    idle = await init(wire, "idle")

    async def listed(version: int = 1, states: list[str] | None = None, **filters: Any) -> list[str]:
        request = ListTransactionsRequest(
            state_filters=states or [], producer_id_filters=filters.pop("producer_ids", []), **filters
        )
        answer = await wire.call(request, version)
        assert answer.unknown_state_filters == [name for name in states or [] if name == "Weird"]
        return [row.transactional_id for row in answer.transaction_states]

    assert await listed() == ["idle", "t"]
    assert await listed(0) == ["idle", "t"]
    assert await listed(states=["Ongoing"]) == ["t"]
    assert await listed(states=["Weird", "Empty"]) == ["idle"]
    assert await listed(states=["Weird"]) == []
    assert await listed(producer_ids=[idle.producer_id]) == ["idle"]
    assert await listed(duration_filter=60_000) == []
    for pattern, found in (("i.*", ["idle"]), ("[a-z]", ["t"]), ("", ["idle", "t"]), (None, ["idle", "t"]), ("dl", [])):
        assert await listed(2, transactional_id_pattern=pattern) == found
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="(")
    assert (await wire.call(request, 2)).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    await asyncio.sleep(0.01)
    assert await listed(duration_filter=1) == ["t"]
    assert mine.producer_id != idle.producer_id


async def test_the_operators_reason_is_in_the_ledger(broker: Harness) -> None:
    wire, _ = await begun(broker)
    await init(wire, reason="semel txn abort: stuck since Monday")
    fence = (await describe(wire)).fences[0]
    assert (fence.reason, fence.note) == ("admin", "semel txn abort: stuck since Monday")


async def test_client_names_are_bounded_in_the_ledger(broker: Harness) -> None:
    wire = await broker.wire()
    for _ in range(2):
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1, reason="y" * 30_000)
        wire.send(request, 4, client_id="x" * 30_000)
        assert (await wire.receive()).error_code == 0
    row = await describe(wire)
    assert (len(row.client_id), len(row.fences[0].client_id), len(row.fences[0].note)) == (200, 200, 200)


@pytest.mark.proves("client-writes-control-batches")
@pytest.mark.parametrize(
    ("commit", "code"), [(True, ErrorCode.CLUSTER_AUTHORIZATION_FAILED), (False, ErrorCode.INVALID_TXN_STATE)]
)
async def test_clients_may_not_write_commit_markers(broker: Harness, commit: bool, code: ErrorCode) -> None:
    wire, mine = await begun(broker)
    marker = WriteTxnMarkersRequestMarker(
        producer_id=mine.producer_id,
        producer_epoch=mine.producer_epoch,
        transaction_result=commit,
        topics=[WriteTxnMarkersRequestTopic(name="out", partition_indexes=[0])],
        coordinator_epoch=0,
    )
    answer = await wire.call(WriteTxnMarkersRequest(markers=[marker]))
    (row,) = answer.markers[0].topics[0].partitions
    assert row.error_code == code
    assert broker.log.of("marker_refused")
    assert (await describe(wire)).transaction_state == "Ongoing"


async def test_batched_add_partitions_is_not_served_to_clients(broker: Harness) -> None:
    wire = await broker.wire()
    wire.send_bytes(bytes.fromhex("0000000b 0018 0004 00000001 0001 63 00"))
    assert await wire.closed_by_peer()


@pytest.mark.proves("late-transaction-request")
@pytest.mark.parametrize("late", ["commit", "abort", "add"])
async def test_late_request_of_transaction_n_arriving_in_n_plus_1_over_the_old_connection(
    broker: Harness, late: str
) -> None:
    """Version 1: both have the same producer id and epoch; only the connection differs."""
    old, mine = await begun(broker)
    new = await broker.wire()
    assert (await end(new, mine)).error_code == 0
    assert await add(new, mine, {"out": [1]}) == {("out", 1): 0}
    if late == "add":
        with pytest.raises(asyncio.IncompleteReadError):
            await add(old, mine, {"out": [2]})
    else:
        with pytest.raises(asyncio.IncompleteReadError):
            await end(old, mine, late == "commit")
    row = await describe(new)
    assert (row.transaction_state, [topic.partitions for topic in row.topics]) == ("Ongoing", [[1]])
    assert [line["reason"] for line in broker.log.of("connection_closed")] == ["stale_connection"]
    assert (await end(new, mine)).error_code == 0


async def test_a_fenced_producer_is_answered_whatever_its_connection(broker: Harness) -> None:
    old, zombie = await begun(broker)
    new = await broker.wire()
    mine = await init(new)
    await add(new, mine, {"out": [0]})
    assert (await end(old, zombie)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await end(new, mine)).error_code == 0


async def test_a_new_epoch_may_come_over_an_older_connection(broker: Harness) -> None:
    older = await broker.wire()
    newer, _ = await begun(broker)
    mine = await init(older)
    assert await add(older, mine, {"out": [0]}) == {("out", 0): 0}
    assert (await end(older, mine)).error_code == 0
    assert (await describe(newer)).transaction_state == "CompleteCommit"


# --- restarts ---


async def test_transactions_survive_a_restart(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os")
    wire, mine = await begun(broker)
    before = await describe(wire)
    await broker.restart()
    wire = await broker.wire()
    assert await describe(wire) == before
    assert (await end(wire, mine)).error_code == 0


async def test_internal_topic_of_transactions_is_kafkas(broker: Harness) -> None:
    wire = await broker.wire()
    await init(wire)
    assert broker.node is not None
    topic = broker.node.broker.topics.get("__transaction_state")
    assert topic is not None
    assert (topic.partition_count, topic.configs["cleanup.policy"]) == (50, "compact")


async def test_an_empty_transactional_id_is_an_invalid_request_everywhere(broker: Harness) -> None:
    """As Kafka 4.3."""
    wire = await broker.wire()
    await wire.create_topic("out")
    nameless = TransactionalProducer(wire, 1, "")
    nameless.producer_id, nameless.epoch = await wire.new_producer(), 0
    assert (await describe(wire, "")).error_code == ErrorCode.INVALID_REQUEST
    init = await wire.call(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000))
    assert init.error_code == ErrorCode.INVALID_REQUEST
    assert await nameless.add("out", 0) == ErrorCode.INVALID_REQUEST
    assert await nameless.add_group() == ErrorCode.INVALID_REQUEST
    assert await nameless.commit_offsets({0: 1}, version=3, topic="out") == [ErrorCode.INVALID_REQUEST]
    assert await nameless.commit_offsets({0: 1}, version=5, topic="out") == [ErrorCode.INVALID_REQUEST]
    assert await nameless.end() == ErrorCode.INVALID_REQUEST
