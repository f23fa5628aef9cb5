"""A broker with an image behind the store relies on the answers of other brokers, not on its old image.

A late change in the store, after its sender has given up, reverts nothing that another broker has answered since.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from random import Random
from time import monotonic
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
import pytest
from broker.cluster.brokers import ControllerBroker, ControllerCluster, SharedLocalStore
from semel_broker.cluster import records
from semel_broker.cluster.operations import Operations
from semel_broker.cluster.records import UNKNOWN_USERS, Reassignment, user_of
from semel_broker.cluster.store import Change, Expect, Put, StoreUnavailableError, shared_secret
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.config.loading import load
from semel_broker.context import Broker, RequestContext
from semel_broker.handlers import (
    k20_delete_topics,
    k31_delete_acls,
    k46_list_partition_reassignments,
    k51_alter_user_scram_credentials,
)
from semel_broker.scheduling.turns import Turns
from semel_broker.security.acl_store import AclStore
from semel_broker.security.authorizer import Authorizer
from semel_broker.security.quota_store import QuotaStore
from semel_broker.security.quotas.client_quotas import ClientQuotas
from semel_broker.security.user_store import UserStore, delete, put
from semel_broker.topics import dynamic_configs
from semel_broker.topics.topics import Topics
from semel_broker.world import World
from semel_protocol.acls import Acl, Operation, PatternType, Permission, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest
from semel_protocol.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter
from semel_protocol.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from semel_protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
)
from semel_protocol.quotas import PRODUCER_BYTE_RATE, QuotaEntity, QuotaFilter
from semel_protocol.scram import ScramMechanism
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log_directory import LogDirectory

pytestmark = pytest.mark.proves(
    "lagging-broker-answers", "late-change-of-a-right", "late-change-of-a-topic", "created-after-a-deletion"
)

T = TypeVar("T")
TURNS = 50
SHA_256 = ScramMechanism.SCRAM_SHA_256
DENIAL = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:*", "*", Operation.WRITE, Permission.DENY)
EVERYTHING = DeleteAclsRequestFilter(
    resource_type_filter=ResourceType.ANY,
    resource_name_filter=None,
    pattern_type_filter=PatternType.ANY,
    principal_filter=None,
    host_filter=None,
    operation=Operation.ANY,
    permission_type=Permission.ANY,
)
ALICE = QuotaEntity(user="alice")


class ProcessDiedError(Exception):
    pass


class BrokerView:
    """The shared state as one broker has it besides its image."""

    def __init__(self, member: ControllerBroker, topics: Topics, users: UserStore) -> None:
        self.member, self.topics, self.users = member, topics, users
        store, feed, log = member.store, member.feed, member.log
        self.acls = AclStore(store, feed, Authorizer(allow_if_none=True), log)
        self.quotas = QuotaStore(store, feed, ClientQuotas(), log)
        loop = asyncio.get_running_loop()
        self.broker = SimpleNamespace(
            acls=self.acls,
            users=users,
            quotas=self.quotas,
            topics=topics,
            config=topics._config,
            feed=feed,
            store=store,
            log=log,
            turns=Turns(loop, monotonic),
        )

    def context(self, version: int = 1) -> RequestContext:
        return RequestContext(cast(Broker, self.broker), version, "", "", "")


async def side(member: ControllerBroker) -> BrokerView:
    disk = MemoryDisk()
    disk.mkdir("data")
    world = World(now_ms=lambda: 0, monotonic=lambda: 0.0, rng=Random(member.node_id), disk=disk, log=member.log)
    logs = LogDirectory.open(disk, "data", node_id=member.node_id, cluster_id="", directory_id="d")
    config = load(overrides=[f"node.id={member.node_id}"])
    topics = await Topics.open(world=world, config=config, store=member.store, logs=logs, feed=member.feed)
    users = UserStore(member.store, member.feed, await shared_secret(member.store, UNKNOWN_USERS, world), member.log)
    return BrokerView(member, topics, users)


@pytest.fixture
async def sides() -> AsyncIterator[list[BrokerView]]:
    """Two brokers; the image of the second one stands still until `when_late`."""
    cluster = ControllerCluster(SharedLocalStore())
    members = await cluster.start(1, 2)
    yield [await side(member) for member in members]
    await cluster.close()


def stop_following(late: BrokerView) -> None:
    late.member.store.watch_gate.clear()


async def when_late(late: BrokerView, asked: Coroutine[Any, Any, T]) -> T:
    """The outcome of a request to a broker that follows the store again only later."""
    task = asyncio.get_running_loop().create_task(asked)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    is_early = task.done()
    late.member.store.watch_gate.set()
    outcome = await task
    assert not is_early, "it was decided on the old image"
    return outcome


async def test_acls_that_another_broker_has_answered_are_deleted(sides: list[BrokerView]) -> None:
    one, late = sides
    stop_following(late)
    await one.acls.create([DENIAL])
    request = DeleteAclsRequest(filters=[EVERYTHING, EVERYTHING])
    answer = await when_late(late, k31_delete_acls.handle(request, late.context()))
    assert [[row.resource_name for row in result.matching_acls] for result in answer.filter_results] == [["t"], ["t"]]
    assert (await one.member.store.list("acls/")).entries == ()


async def dies_while_writing(side: BrokerView, asked: Coroutine[Any, Any, Any]) -> Callable[[], Awaitable[int | None]]:
    """End the broker's process when it has sent its first transaction.

    The store applies it when the result is called.
    """
    sent: list[tuple[Sequence[Expect], Sequence[Change]]] = []

    async def transact(expects: Sequence[Expect], changes: Sequence[Change]) -> int | None:
        sent.append((expects, changes))
        raise ProcessDiedError

    side.member.store.transact = transact  # type: ignore[method-assign]
    with pytest.raises(ProcessDiedError):
        await asked
    return lambda: side.member.store.store.transact(*sent[0])


async def test_an_acl_that_was_created_again_and_deleted_does_not_come_back(sides: list[BrokerView]) -> None:
    one, two = sides
    late = await dies_while_writing(one, one.acls.create([DENIAL]))
    await two.acls.create([DENIAL])
    await two.acls.delete([DENIAL])
    assert await late() is None
    assert (await two.member.store.list("acls/")).entries == ()


async def test_an_acl_that_was_deleted_again_and_created_stays(sides: list[BrokerView]) -> None:
    one, two = sides
    await two.acls.create([DENIAL])
    await one.member.feed.barrier()
    late = await dies_while_writing(one, one.acls.delete([DENIAL]))
    await two.acls.delete([DENIAL])
    await two.acls.create([DENIAL])
    assert await late() is None
    assert len((await two.member.store.list("acls/")).entries) == 1


async def test_an_acl_is_not_created_late_once_a_deletion_has_found_nothing(sides: list[BrokerView]) -> None:
    one, two = sides
    late = await dies_while_writing(one, one.acls.create([DENIAL]))
    answer = await k31_delete_acls.handle(DeleteAclsRequest(filters=[EVERYTHING]), two.context())
    assert [(result.error_code, result.matching_acls) for result in answer.filter_results] == [(ErrorCode.NONE, [])]
    assert await late() is None
    assert (await two.member.store.list("acls/")).entries == ()


async def test_a_credential_is_not_created_late_once_its_deletion_was_refused(sides: list[BrokerView]) -> None:
    one, two = sides
    late = await dies_while_writing(one, one.users.alter([put("alice", SHA_256, 4096, b"s", bytes(32))]))
    deletion = AlterUserScramCredentialsRequestDeletion(name="alice", mechanism=SHA_256)
    request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
    answer = await k51_alter_user_scram_credentials.handle(request, two.context())
    assert [row.error_code for row in answer.results] == [ErrorCode.RESOURCE_NOT_FOUND]
    assert await late() is None
    assert two.users.names == []


async def test_an_old_password_does_not_come_back(sides: list[BrokerView]) -> None:
    one, two = sides
    late = await dies_while_writing(one, one.users.alter([put("alice", SHA_256, 4096, b"old", bytes(32))]))
    await two.users.alter([put("alice", SHA_256, 4096, b"new", bytes(32))])
    assert await late() is None
    assert two.users.credentials("alice")[SHA_256].salt == b"new"
    await two.users.alter([delete("alice", SHA_256)])
    assert await late() is None
    assert two.users.names == []


async def test_a_topic_is_not_created_late_once_its_deletion_has_found_none(sides: list[BrokerView]) -> None:
    one, two = sides
    late = await dies_while_writing(one, one.topics.create(NewTopic(name="t")))
    with pytest.raises(KafkaError, match="there is no topic 't'"):
        await two.topics.delete("t")
    assert await late() is None
    assert two.topics.names() == []


async def test_a_topic_that_was_created_again_and_deleted_does_not_come_back(sides: list[BrokerView]) -> None:
    one, two = sides
    late = await dies_while_writing(one, one.topics.create(NewTopic(name="t")))
    await two.topics.create(NewTopic(name="t"))
    await two.topics.delete("t")
    assert await late() is None
    assert two.topics.names() == []


async def test_a_topic_that_was_answered_to_exist_is_not_deleted_late(sides: list[BrokerView]) -> None:
    one, two = sides
    await two.topics.create(NewTopic(name="t"))
    await one.member.feed.barrier()
    late = await dies_while_writing(one, one.topics.delete("t"))
    with pytest.raises(KafkaError) as refusal:
        await two.topics.create(NewTopic(name="t"))
    assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert await late() is None
    assert two.topics.names() == ["t"]


async def test_a_topic_does_not_grow_late_once_its_growth_was_refused(sides: list[BrokerView]) -> None:
    one, two = sides
    await two.topics.create(NewTopic(name="t", partitions=4))
    await one.member.feed.barrier()
    late = await dies_while_writing(one, one.topics.add_partitions("t", 8))
    with pytest.raises(KafkaError) as refusal:
        await two.topics.add_partitions("t", 4)
    assert refusal.value.code is ErrorCode.INVALID_PARTITIONS
    assert await late() is None
    assert two.topics.required("t").partition_count == 4


async def test_a_reassignment_does_not_begin_late_once_there_was_none_to_cancel(sides: list[BrokerView]) -> None:
    one, two = sides
    await two.topics.create(NewTopic(name="t", assignments={0: [1]}))
    await one.member.feed.barrier()
    late = await dies_while_writing(one, operations(one).reassign("t", {0: [2]}))
    refused = await operations(two).reassign("t", {0: None})
    assert refused[0].code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert await late() is None
    assert two.topics.view("t", 0).reassignment is None


async def test_a_reassignment_does_not_begin_late_once_another_one_had_nothing_to_move(sides: list[BrokerView]) -> None:
    one, two = sides
    await two.topics.create(NewTopic(name="t", assignments={0: [1]}))
    await one.member.feed.barrier()
    late = await dies_while_writing(one, operations(one).reassign("t", {0: [2]}))
    assert await operations(two).reassign("t", {0: [1]}) == {}
    assert await late() is None
    assert two.topics.view("t", 0).reassignment is None


SLOW = [(PRODUCER_BYTE_RATE, 1024.0, False)]
UNLIMITED = [(PRODUCER_BYTE_RATE, 0.0, True)]


async def test_a_quota_is_not_set_late_once_there_was_none_to_remove(sides: list[BrokerView]) -> None:
    one, two = sides
    late = await dies_while_writing(one, one.quotas.alter(ALICE, SLOW))
    await two.quotas.alter(ALICE, UNLIMITED)
    assert await late() is None
    assert two.quotas.find(QuotaFilter()) == []


async def test_a_quota_that_was_set_again_and_removed_does_not_come_back(sides: list[BrokerView]) -> None:
    one, two = sides
    late = await dies_while_writing(one, one.quotas.alter(ALICE, SLOW))
    await two.quotas.alter(ALICE, SLOW)
    await two.quotas.alter(ALICE, UNLIMITED)
    assert await late() is None
    assert two.quotas.find(QuotaFilter()) == []


async def test_a_quota_is_not_removed_late_once_it_was_set_to_what_it_is(sides: list[BrokerView]) -> None:
    one, two = sides
    await two.quotas.alter(ALICE, SLOW)
    await one.member.feed.barrier()
    late = await dies_while_writing(one, one.quotas.alter(ALICE, UNLIMITED))
    await two.quotas.alter(ALICE, SLOW)
    assert await late() is None
    assert two.quotas.find(QuotaFilter()) == [(ALICE, {PRODUCER_BYTE_RATE: 1024.0})]


async def test_settings_are_not_given_late_once_there_were_none_to_remove(sides: list[BrokerView]) -> None:
    one, two = sides
    late = await dies_while_writing(one, alter_group(one, {"consumer.session.timeout.ms": "46000"}))
    await alter_group(two, {})
    assert await late() is None
    assert dynamic_configs.groups_with_settings(two.member.feed.image) == []


async def test_settings_that_were_given_again_and_removed_do_not_come_back(sides: list[BrokerView]) -> None:
    one, two = sides
    late = await dies_while_writing(one, alter_group(one, {"consumer.session.timeout.ms": "46000"}))
    await alter_group(two, {"consumer.session.timeout.ms": "47000"})
    await alter_group(two, {})
    assert await late() is None
    assert dynamic_configs.groups_with_settings(two.member.feed.image) == []


async def test_brokers_that_delete_and_create_topics_at_once_all_succeed(sides: list[BrokerView]) -> None:
    names = [f"t{number}" for number in range(60)]
    await asyncio.gather(*(sides[0].topics.create(NewTopic(name=name)) for name in names))
    await asyncio.gather(*(side.member.feed.barrier() for side in sides))
    others = [sides[number % 2].topics.create(NewTopic(name=f"other{number}")) for number in range(60)]
    await asyncio.gather(*(sides[number % 2].topics.delete(name) for number, name in enumerate(names)), *others)
    await asyncio.gather(*(side.member.feed.barrier() for side in sides))
    assert [len(side.topics.names()) for side in sides] == [60, 60]
    assert all(name.startswith("other") for name in sides[0].topics.names())


def operations(side: BrokerView) -> Operations:
    turns = Turns(asyncio.get_running_loop(), monotonic)
    return Operations(side.member.store, side.member.feed, side.member.log, turns.slices())


async def alter_group(side: BrokerView, configs: dict[str, str]) -> None:
    """Replace all settings of the group g."""
    store, feed = side.member.store, side.member.feed
    await dynamic_configs.alter_group(store, feed, side.topics._config, "g", lambda _: configs)


async def test_brokers_that_change_acls_at_once_all_succeed(sides: list[BrokerView]) -> None:
    acls = [msgspec.structs.replace(DENIAL, name=str(index)) for index in range(300)]
    await asyncio.gather(*(sides[index % 2].acls.create(acls[index::20]) for index in range(20)))
    await asyncio.gather(*(side.member.feed.barrier() for side in sides))
    assert [len(side.acls.authorizer.acls) for side in sides] == [300, 300]
    await asyncio.gather(*(side.acls.delete(acls) for side in sides))
    assert (await sides[0].member.store.list("acls/")).entries == ()


async def test_the_credentials_of_a_user_are_written_together(sides: list[BrokerView]) -> None:
    one, _ = sides
    first = [put("a", SHA_256, 4096, b"s", bytes(32))]
    await one.users.alter(
        first + [put(f"u{n}", mechanism, 4096, b"s", bytes(64)) for n in range(99) for mechanism in ScramMechanism]
    )
    written = [[user_of(change.key)[0] for change in changes[:-1]] for _, changes, _ in one.member.store.transactions]
    assert next(names for names in written if names)[-1] == "u62"
    assert sum(len(names) for names in written) == 199
    assert all(names.count(name) == len(ScramMechanism) for names in written for name in names if name != "a")


async def test_no_acl_is_deleted_while_the_store_is_out_of_reach(sides: list[BrokerView]) -> None:
    _, late = sides
    late.member.store.failing.append(StoreUnavailableError("nobody answers"))
    unknown = msgspec.structs.replace(EVERYTHING, operation=0)
    answer = await k31_delete_acls.handle(DeleteAclsRequest(filters=[EVERYTHING, unknown]), late.context())
    assert [result.error_code for result in answer.filter_results] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert all("nobody answers" in (result.error_message or "") for result in answer.filter_results)


async def test_a_credential_that_another_broker_has_answered_is_deleted(sides: list[BrokerView]) -> None:
    one, late = sides
    stop_following(late)
    await one.users.alter([put("alice", ScramMechanism.SCRAM_SHA_256, 4096, b"s", bytes(32))])
    deletion = AlterUserScramCredentialsRequestDeletion(name="alice", mechanism=ScramMechanism.SCRAM_SHA_256)
    request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
    answer = await when_late(late, k51_alter_user_scram_credentials.handle(request, late.context()))
    assert [(row.user, row.error_code) for row in answer.results] == [("alice", ErrorCode.NONE)]
    assert late.users.names == []
    again = await k51_alter_user_scram_credentials.handle(request, late.context())
    assert [row.error_code for row in again.results] == [ErrorCode.RESOURCE_NOT_FOUND]


async def test_a_quota_that_another_broker_has_removed_is_set_again(sides: list[BrokerView]) -> None:
    one, late = sides
    await late.quotas.alter(ALICE, [(PRODUCER_BYTE_RATE, 5.0, False)])
    await one.member.feed.barrier()
    stop_following(late)
    await one.quotas.alter(ALICE, [(PRODUCER_BYTE_RATE, 0.0, True)])
    await when_late(late, late.quotas.alter(ALICE, [(PRODUCER_BYTE_RATE, 5.0, False)]))
    assert late.quotas.find(QuotaFilter()) == [(ALICE, {PRODUCER_BYTE_RATE: 5.0})]


async def test_a_topic_that_another_broker_has_created_is_deleted(sides: list[BrokerView]) -> None:
    one, late = sides
    stop_following(late)
    await one.topics.create(NewTopic(name="t"))
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000)
    answer = await when_late(late, k20_delete_topics.handle(request, late.context(version=4)))
    assert [(row.name, row.error_code) for row in answer.responses] == [("t", ErrorCode.NONE)]
    assert late.topics.names() == []


async def test_a_topic_that_another_broker_has_created_is_changed(sides: list[BrokerView]) -> None:
    one, late = sides
    stop_following(late)
    await one.topics.create(NewTopic(name="t", partitions=1))
    grown = await when_late(late, late.topics.add_partitions("t", 3))
    assert grown.partition_count == 3
    stop_following(late)
    await one.topics.create(NewTopic(name="u"))
    changed = await when_late(late, late.topics.alter_configs("u", lambda _: {"retention.ms": "7"}))
    assert changed.configs == {"retention.ms": "7"}


async def test_a_topic_that_another_broker_has_made_anew_with_fewer_partitions_grows(sides: list[BrokerView]) -> None:
    one, late = sides
    await late.topics.create(NewTopic(name="t", partitions=5))
    await one.member.feed.barrier()
    stop_following(late)
    await one.topics.delete("t")
    await one.topics.create(NewTopic(name="t", partitions=1))
    grown = await when_late(late, late.topics.add_partitions("t", 3))
    assert grown.partition_count == 3


async def test_a_topic_that_another_broker_has_deleted_is_created_anew(sides: list[BrokerView]) -> None:
    one, late = sides
    first = await late.topics.create(NewTopic(name="t"))
    await one.member.feed.barrier()
    stop_following(late)
    await one.topics.delete("t")
    created = await when_late(late, late.topics.create(NewTopic(name="t")))
    assert created.topic_id != first.topic_id


async def test_what_is_refused_on_the_old_image_is_refused_on_the_current_one(sides: list[BrokerView]) -> None:
    one, late = sides
    stop_following(late)
    await one.topics.create(NewTopic(name="t"))
    with pytest.raises(KafkaError) as refused:
        await when_late(late, late.topics.create(NewTopic(name="t")))
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaError) as refused:
        await late.topics.find("missing")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    before = len(late.member.store.transactions)
    for name in ("a b", ""):
        with pytest.raises(KafkaError) as refused:
            await late.topics.create(NewTopic(name=name))
        assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(late.member.store.transactions) == before  # an illegal name costs no write to the store


async def test_a_reassignment_that_another_broker_has_answered_is_listed(sides: list[BrokerView]) -> None:
    one, late = sides
    topic = await one.topics.create(NewTopic(name="t", partitions=1))
    await late.member.feed.barrier()
    stop_following(late)
    key = records.reassignment_key(topic.record.topic_id, 0)
    await one.member.store.transact([], [Put(key, msgspec.json.encode(Reassignment(target=[2], original=[1])))])
    request = ListPartitionReassignmentsRequest(topics=None)
    answer = await when_late(late, k46_list_partition_reassignments.handle(request, late.context()))
    assert [topic.name for topic in answer.topics] == ["t"]


async def test_of_two_brokers_that_start_at_once_one_makes_the_first_user(sides: list[BrokerView]) -> None:
    one, late = sides
    stop_following(late)
    world = World(now_ms=lambda: 0, monotonic=lambda: 0.0, rng=Random(1), disk=MemoryDisk())
    await one.users.make_first("admin", "secret", world)
    made = dict(one.users.credentials("admin"))
    await when_late(late, late.users.make_first("admin", "secret", world))
    assert late.users.credentials("admin") == made
    assert "bootstrap_user_not_made" in late.member.log.events()


async def test_settings_are_in_force_here_when_they_are_answered(sides: list[BrokerView]) -> None:
    _, late = sides
    stop_following(late)
    store, feed, config = late.member.store, late.member.feed, late.topics._config
    given = {"consumer.session.timeout.ms": "50000"}
    await when_late(late, dynamic_configs.alter_group(store, feed, config, "g", lambda _: given))
    assert dynamic_configs.given_for_group(feed.image, "g") == given
    stop_following(late)
    await when_late(late, dynamic_configs.alter(store, feed, config, "", lambda _: {"log.retention.ms": "77"}))
    assert config.dynamic_default["log.retention.ms"] == "77"


async def test_settings_do_not_change_while_the_store_is_out_of_reach(sides: list[BrokerView]) -> None:
    _, late = sides
    store, feed, config = late.member.store, late.member.feed, late.topics._config
    store.failing.append(StoreUnavailableError("nobody answers"))
    with pytest.raises(KafkaError) as refused:
        await dynamic_configs.alter(store, feed, config, "", lambda _: {"log.retention.ms": "77"})
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
