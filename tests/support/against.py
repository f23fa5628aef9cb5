"""A broker that is not started by the tests: `pytest --against HOST:PORT` runs tests of client and commands on it.

The broker of a test is then an `OutsideBroker`. Before each test its topics and groups are deleted, and its open
transactions aborted. A test that stops the broker, or that reads its inner state, is skipped with the reason.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import pytest
from broker.wire import Wire, produce_request
from semel import Admin, NewTopic, TopicPartition
from semel.admin import LATEST, AclFilter, ConfigResource, ConfigResourceType
from semel.errors import KafkaError, SecurityDisabled, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from semel_protocol.errors import ErrorCode

T = TypeVar("T")

OPEN_STATES = ("Ongoing",)
VERIFICATION = "transaction.partition.verification.enable"
SETTING_TIMEOUT_S = 10
CLEANING_TIMEOUT_S = 50
FIXTURES = ("broker", "bootstrap", "semel_broker", "semel")
"""The names of the fixtures that tests take their broker from, or a shell that runs commands on it."""
NOT_YET = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE)
"""The errors of a broker that still verifies: the transactional id is unknown, or the transaction has ended."""
FAKES = ("fake_broker", "cluster")
"""The names of fixtures with scripted brokers."""


class OutsideBroker:
    """A broker at an address. It stands for `Harness`, `BrokerProcess` and `EphemeralBroker` in tests."""

    host = "127.0.0.1"

    def __init__(self, address: str) -> None:
        self.address = self.bootstrap_servers = address
        self.settings: dict[str, object] = {}
        self.log: list[str] = []
        self._wires: list[Wire] = []

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    async def wire(self) -> Wire:
        """A new connection of raw requests, closed with the broker."""
        self._wires.append(await Wire.connect(self.port))
        return self._wires[-1]

    async def close(self) -> None:
        for wire in self._wires:
            await wire.close()

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Create a topic, as `EphemeralBroker.create_topic`."""
        settings = {key.replace("_", "."): str(value) for key, value in configs.items()}

        async def creating(admin: Admin) -> None:
            try:
                await admin.create_topics([NewTopic(name, partitions, topic_configs=settings)])
            except TopicAlreadyExistsError:  # a client of an earlier test has asked for it, which creates it
                await _clean(admin)
                await admin.create_topics([NewTopic(name, partitions, topic_configs=settings)])
            await wait_for_leaders(admin, *(TopicPartition(name, number) for number in range(partitions)))

        self.do(creating)

    def hang(self, topic: str, batch: bytes) -> None:
        """Store a transactional batch that no coordinator knows in partition 0, without the broker's verification.

        An old client could do so with an old broker (KIP-890). Produce v9 is of transaction version 1.
        """
        request = produce_request(topic, batch)
        request.transactional_id = "hanging"

        async def verify(admin: Admin, value: str) -> None:
            await admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "", {VERIFICATION: value})])

        async def hanging(admin: Admin) -> None:
            await verify(admin, "false")
            wire = await Wire.connect(self.port)
            async with asyncio.timeout(SETTING_TIMEOUT_S):
                while True:
                    answer = await wire.call(request, 9)
                    code = answer.responses[0].partition_responses[0].error_code
                    if code not in NOT_YET:
                        break
                    await asyncio.sleep(0.05)  # the setting has not arrived yet
            await wire.close()
            await verify(admin, "true")
            assert code == ErrorCode.NONE, answer

        self.do(hanging)

    def do(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run `work` with an Admin in an event loop of its own."""

        async def doing() -> T:
            async with Admin(bootstrap_servers=self.address) as admin:
                return await work(admin)

        return in_thread(doing())

    def clean(self) -> None:
        """Abort open transactions, then delete access control entries, quotas, groups and topics."""
        self.do(_clean)

    def __getattr__(self, name: str) -> NoReturn:
        pytest.skip(f"needs a broker of the test's own (.{name})")


async def _clean(admin: Admin) -> None:
    open_ones = [row.transactional_id for row in await admin.list_transactions(states=OPEN_STATES)]
    await admin.fence_producers(open_ones)
    with suppress(SecurityDisabled):  # a broker without an authorizer has no access control entries
        await admin.delete_acls([AclFilter()])
    if quotas := await admin.describe_client_quotas():
        await admin.alter_client_quotas({entity: dict.fromkeys(values) for entity, values in quotas.items()})
        async with asyncio.timeout(SETTING_TIMEOUT_S):
            while await admin.describe_client_quotas():  # Kafka's broker follows its controller
                await asyncio.sleep(0.1)
    async with asyncio.timeout(CLEANING_TIMEOUT_S):
        while groups := [row.group_id for row in await admin.list_consumer_groups()]:
            with suppress(KafkaError):  # a member may be there until its session ends
                await admin.delete_consumer_groups(groups)
                break
            await asyncio.sleep(0.1)
        if topics := [each.name for each in await admin.describe_topics() if not each.is_internal]:
            with suppress(UnknownTopicOrPartitionError):  # it is gone meanwhile
                await admin.delete_topics(topics)
        while any(not each.is_internal for each in await admin.describe_topics()):
            await asyncio.sleep(0.02)


async def wait_for_leaders(admin: Admin, *partitions: TopicPartition) -> None:
    """Return when the partitions have leaders. Kafka answers CreateTopics before its brokers know the topic."""
    async with asyncio.timeout(SETTING_TIMEOUT_S):
        while True:
            with suppress(UnknownTopicOrPartitionError):
                await admin.list_offsets(dict.fromkeys(partitions, LATEST))
                return
            await asyncio.sleep(0.02)


def in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a thread of its own, because the caller's thread may have a running loop."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(work))
        except BaseException as error:  # raised again by the caller
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def address_of(config: pytest.Config) -> str:
    """The address of the outside broker; "" for brokers that the tests start."""
    return str(config.getoption("--against"))


def outside(request: pytest.FixtureRequest) -> OutsideBroker | None:
    """The outside broker of the run, cleaned; None when the test has to start its own."""
    address = address_of(request.config)
    if not address:
        return None
    found = OutsideBroker(address)
    found.clean()
    return found


def _is_for_a_broker(fixtures: set[str]) -> bool:
    return bool(fixtures & set(FIXTURES)) and not fixtures & set(FAKES)


class AgainstPlugin:
    """Registered with `--against`: gives tests the outside broker, and skips those that are for semel's alone."""

    @pytest.fixture
    def semel_broker(self, request: pytest.FixtureRequest) -> OutsideBroker:
        found = outside(request)
        assert found is not None
        return found

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if _is_for_a_broker(set(getattr(item, "fixturenames", ())))]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        # Names of transactional ids stay on the broker: hostile ones come last.
        items[:] = sorted(chosen, key=lambda item: "hostile" in item.nodeid)
        for item in items:
            if mark := item.get_closest_marker("semel_only"):
                item.add_marker(pytest.mark.skip(reason=mark.args[0]))
