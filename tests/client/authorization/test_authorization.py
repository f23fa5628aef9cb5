"""The client against a broker with ACLs: errors name the missing right, and transactions lose their rights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from semel import Consumer, Producer, TopicPartition
from semel.admin import Acl, Operation, PatternType, Permission, ResourceType
from semel.errors import (
    AbortableError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
from semel_broker.node import Node
from semel_broker.testing.in_process import EphemeralBroker

TOPIC, GROUP, TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.semel(
        settings={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:root",
        }
    ),
]


@pytest.fixture
def broker(semel_broker: EphemeralBroker) -> EphemeralBroker:
    semel_broker.create_topic("t")
    return semel_broker


def right(operation: Operation, kind: ResourceType, name: str) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, "User:ANONYMOUS", "*", operation, Permission.ALLOW)


WRITE_T, READ_T = right(Operation.WRITE, TOPIC, "t"), right(Operation.READ, TOPIC, "t")
WRITE_X, READ_G = right(Operation.WRITE, TXN, "x"), right(Operation.READ, GROUP, "g")


async def change(broker: EphemeralBroker, *acls: Acl, delete: bool = False) -> None:
    async def work(node: Node) -> None:
        assert node.broker.acls is not None
        await (node.broker.acls.delete(acls) if delete else node.broker.acls.create(acls))

    await asyncio.to_thread(broker.call, work)


async def visible(broker: EphemeralBroker) -> list[bytes | None]:
    """The values that a read_committed consumer gets up to the last stable offset, with no transaction open."""
    at = TopicPartition("t", 0)
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as reader:
        reader.assign([at])
        end = (await reader.end_offsets([at]))[at]
        found: list[bytes | None] = []
        while await reader.position(at) < end:
            for records in (await reader.getmany(timeout_ms=200)).values():
                found += [record.value for record in records]
        return found


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await holds():
            await asyncio.sleep(0.05)


async def test_a_producer_without_the_right_to_write_learns_which_topic(broker: EphemeralBroker) -> None:
    await change(broker, right(Operation.DESCRIBE, TOPIC, "t"), right(Operation.WRITE, TOPIC, "other"))
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with pytest.raises(TopicAuthorizationFailedError, match="t-0") as refused:
            await producer.send_and_wait("t", b"v")
    assert str(refused.value).endswith("semel acl add --principal User:ANONYMOUS --allow write --topic t")


@pytest.mark.semel_only("needs an authorizer")
async def test_a_producer_that_may_not_see_a_topic_does_not_wait_for_it(broker: EphemeralBroker) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False) as producer:
        with pytest.raises(TopicAuthorizationFailedError, match="'t'") as refused:
            await producer.send_and_wait("t", b"v")
    assert str(refused.value) == (
        "[29 TOPIC_AUTHORIZATION_FAILED] topic 't': User:ANONYMOUS may not WRITE TOPIC 't'. An administrator can allow "
        "it: semel acl add --principal User:ANONYMOUS --allow write --topic t"
    )


async def test_a_transactional_id_of_others_is_refused_at_the_start(broker: EphemeralBroker) -> None:
    await change(broker, WRITE_T)
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x")
    command = "semel acl add --principal User:ANONYMOUS --allow write --transactional-id x"
    with pytest.raises(TransactionalIdAuthorizationFailed, match=command):
        await producer.start()
    await producer.stop()


async def test_a_member_without_the_right_to_the_group_learns_it(broker: EphemeralBroker) -> None:
    await change(broker, READ_T)
    consumer = Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g")
    with pytest.raises(
        GroupAuthorizationFailedError,
        match=r"User:ANONYMOUS from 127\.0\.0\.1 may not READ GROUP 'g'. An administrator can allow it: "
        "semel acl add --principal User:ANONYMOUS --allow read --group g$",
    ):
        await consumer.start()
    await consumer.stop()


async def test_a_reader_without_its_right_gets_the_topic_in_the_error_and_continues_once_the_right_is_back(
    broker: EphemeralBroker,
) -> None:
    await change(broker, READ_T, WRITE_T)
    async with (
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        await producer.send_and_wait("t", b"1")
        assert (await consumer.getone()).value == b"1"
        await change(broker, READ_T, delete=True)

        async def read_on() -> None:
            """A fetch that waited when the right was removed may still return records."""
            for number in range(1_000):
                await producer.send_and_wait("t", b"%d" % number)
                await consumer.getone()

        command = "semel acl add --principal User:ANONYMOUS --allow read --topic t"
        with pytest.raises(TopicAuthorizationFailedError, match=command):
            await asyncio.wait_for(read_on(), 10)
        await change(broker, READ_T)

        async def reads_again() -> bool:
            try:
                await asyncio.wait_for(consumer.getone(), 10)
            except TopicAuthorizationFailedError:
                return False  # of a fetch before the change
            return True

        await until(reads_again)


async def test_a_right_taken_away_amid_a_transaction_leaves_nothing_half_visible(broker: EphemeralBroker) -> None:
    """The right to the topic is removed: the transaction aborts. The next one succeeds once the right is back."""
    await change(broker, READ_T, WRITE_T, WRITE_X)
    async with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"half")
        await change(broker, WRITE_T, delete=True)
        with pytest.raises((TopicAuthorizationFailedError, AbortableError)):
            await producer.send_and_wait("t", b"the other half")
        await producer.abort_transaction()
        await change(broker, WRITE_T)
        async with producer.transaction():
            await producer.send_and_wait("t", b"whole")
    assert await visible(broker) == [b"whole"]


@pytest.mark.proves("right-to-the-transactional-id")
async def test_the_right_to_the_transactional_id_taken_away_amid_a_transaction_leaves_nothing_half_visible(
    broker: EphemeralBroker,
) -> None:
    """The producer can neither commit nor abort. The coordinator aborts when the transaction times out."""
    await change(broker, READ_T, WRITE_T, WRITE_X)
    settings = {"transactional_id": "x", "transaction_timeout_ms": 1_000}
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, **settings)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"half")
    await change(broker, WRITE_X, delete=True)
    with pytest.raises(KafkaError):
        await producer.commit_transaction()
    await producer.stop()

    async def is_ended() -> bool:
        async def open_ones(node: Node) -> bool:
            return node.broker.topics.partition("t", 0).last_stable_offset == 2

        return await asyncio.to_thread(broker.call, open_ones)

    await until(is_ended)
    assert await visible(broker) == []
    await change(broker, WRITE_X)
    async with (
        Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as again,
        again.transaction(),
    ):
        await again.send_and_wait("t", b"whole")
    assert await visible(broker) == [b"whole"]


async def test_offsets_of_a_transaction_need_the_right_to_the_group(broker: EphemeralBroker) -> None:
    await change(broker, READ_T, WRITE_T, WRITE_X, READ_G)
    at = TopicPartition("t", 0)
    async with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer:
        await change(broker, READ_G, delete=True)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"half")
        with pytest.raises((GroupAuthorizationFailedError, AbortableError)):
            await producer.send_offsets_to_transaction({at: 1}, "g")
        await producer.abort_transaction()
        await change(broker, READ_G)
        async with producer.transaction():
            await producer.send_and_wait("t", b"whole")
            await producer.send_offsets_to_transaction({at: 1}, "g")
    assert await visible(broker) == [b"whole"]
