"""aiokafka's `consumer.consumer`: the Consumer, with the arguments and attributes of aiokafka's that libraries use."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from semel._config.client import describe_settings
from semel._config.consumer import ConsumerConfig
from semel._subscription.fetch_buffer import Record
from semel._subscription.listener import ConsumerRebalanceListener, checked_listener, notify_listener
from semel._type_variables import K_co, V_co
from semel.aiokafka.client import AIOKafkaClient
from semel.aiokafka.coordinator.strategy import DEFAULT_STRATEGIES, strategies_of
from semel.aiokafka.given_loop import GivenLoop
from semel.aiokafka.setting_attributes import SettingAttributes
from semel.consumer import Consumer
from semel.errors import ConsumerStoppedError, KafkaError
from semel.structs import TopicPartition

__all__ = ["AIOKafkaConsumer"]

START_WAIT_MS = 5_000
"""The longest time that `start` waits for topics that are being created, and for positions."""


class Coordinator(msgspec.Struct, frozen=True):
    """The attributes of aiokafka's coordinator that libraries read. `member_id`: "" before the first join."""

    group_id: str | None
    member_id: str
    generation: int


class SetListener(ConsumerRebalanceListener):
    """Calls an application's listener with sets, as aiokafka does."""

    def __init__(self, listener: ConsumerRebalanceListener) -> None:
        self._listener = listener

    @classmethod
    def of(cls, listener: ConsumerRebalanceListener | None) -> SetListener | None:
        return None if listener is None else cls(listener)

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        await notify_listener(self._listener, "on_partitions_revoked", revoked, set)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        await notify_listener(self._listener, "on_partitions_assigned", assigned, set)

    async def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        await notify_listener(self._listener, "on_partitions_lost", lost, set)


if TYPE_CHECKING:
    AIOKafkaConsumer = Consumer
else:

    class AIOKafkaConsumer(SettingAttributes, Consumer[K_co, V_co]):
        """`semel.Consumer` as aiokafka's behaves where programs notice it: see docs/moving-from-aiokafka.md."""

        def __init__(self, *topics: str, **settings: Any) -> None:
            self._given_loop = GivenLoop(settings.pop("loop", None))
            if settings.get("group_protocol") != "consumer":
                strategies = settings.get("partition_assignment_strategy", DEFAULT_STRATEGIES)
                settings["partition_assignment_strategy"] = strategies_of(strategies)
            super().__init__(*topics, **settings)

        describe_settings(__init__, ConsumerConfig, inspect.Parameter("topics", inspect.Parameter.VAR_POSITIONAL))

        async def start(self) -> None:
            """As `Consumer.start`. Then waits until the positions of the assigned partitions are known.

            So with auto_offset_reset="latest" a record that is sent after `start` is read. Waits for at most
            START_WAIT_MS; the next call for records raises the reason why a position cannot be found.
            """
            self._given_loop.check("AIOKafkaConsumer")
            await super().start()

        async def _open(self) -> None:
            await super()._open()
            with suppress(TimeoutError, KafkaError):
                async with asyncio.timeout(START_WAIT_MS / 1000):
                    for state in list(self._subscription.states.values()):
                        await self._positions.position(state)

        async def _before_assignment(self) -> None:
            """Wait for subscribed topics that the broker is creating. Continues without those that do not appear."""
            waits = [self._cluster.wait_for_topic(topic, START_WAIT_MS) for topic in self._subscription.topics]
            for outcome in await asyncio.gather(*waits, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(outcome, KafkaError):
                    raise outcome

        def subscribe(
            self,
            topics: Iterable[str] = (),
            pattern: str | re.Pattern[str] | None = None,
            listener: ConsumerRebalanceListener | None = None,
        ) -> None:
            """As `Consumer.subscribe`. The listener gets sets."""
            super().subscribe(topics, pattern, SetListener.of(checked_listener(listener)))

        async def getmany(
            self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
        ) -> dict[TopicPartition, list[Record]]:
            """As `Consumer.getmany`. A call that waits while the consumer is stopped returns no records."""
            is_running = not self._closed
            try:
                return await super().getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
            except ConsumerStoppedError:
                if is_running:
                    return {}
                raise

        @property
        def _closed(self) -> bool:
            return self._life.is_stopped

        @property
        def _loop(self) -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        @property
        def _client(self) -> AIOKafkaClient:
            return AIOKafkaClient.of(self._cluster)

        @property
        def _coordinator(self) -> Coordinator:
            if self.group_id is None:
                return Coordinator(None, "", -1)
            metadata = self._require_group().group_metadata()
            return Coordinator(self.group_id, metadata.member_id, metadata.generation_id)
