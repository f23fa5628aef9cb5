"""Every public call of a client that is stopped, or not started yet, raises an error that says so."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from client.consuming import produce, tp
from client.fake_broker import FakeBroker
from semel import Admin, BatchReader, Consumer, Producer, RecordBatch, TransactionGroup
from semel.admin import ProducerState
from semel.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from semel.aiokafka.admin import AIOKafkaAdminClient
from semel.errors import ConsumerStoppedError, IllegalStateError, KafkaError, ProducerClosed, ProducerNotStarted
from semel.structs import GroupStep

STEP = GroupStep("group", 1, "", 0)
ALIVE = {"start", "stop", "close", "metrics", "name", "group_id", "client"}
"""The calls that work at any time, and those that start and stop."""
BEFORE_START = {
    "subscribe", "unsubscribe", "subscription", "assign", "assignment", "pause", "resume", "paused", "seek",
    "partitions_for_topic", "group_metadata", "highwater", "last_stable_offset", "last_poll_timestamp",
    "transaction", "create_batch", "aclose",
}  # fmt: skip
"""The calls of a consumer and a producer that need no broker."""


def filled_batch() -> RecordBatch[bytes, bytes]:
    batch = Producer(bootstrap_servers="localhost").create_batch()
    batch.append(value=b"x", key=None, timestamp=None)
    return batch


ARGUMENTS: dict[str, Any] = {
    "topic": "t", "topics": ["t"], "partition": tp(0), "partitions": [tp(0)], "offset": 0, "offsets": {tp(0): 1},
    "timestamps": {tp(0): 0}, "step": STEP, "token": "token", "prepared": [], "group_id": "g", "start": 0, "end": 1,
    "batch": filled_batch(), "name": "n", "reason": "r",
    "producer": ProducerState(producer_id=1, producer_epoch=0), "alterations": [], "config_resources": [],
    "targets": {}, "node_ids": [1], "acls": [], "topic_partitions": {}, "new_topics": [], "filters": [],
    "records_to_delete": {},
    "records": b"", "count": 1, "first_timestamp_ms": 0, "max_timestamp_ms": 0,
}  # fmt: skip

OF_ADMIN: dict[str, dict[str, Any]] = {
    "alter_client_quotas": {"alterations": {}},
    "alter_consumer_group_offsets": {"offsets": {}},
    "list_offsets": {"partitions": {}},
}
"""Arguments of the Admin whose type differs from that of other arguments with this name."""


def calls_of(kind: type) -> list[str]:
    names = [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))]
    return sorted(set(names) - ALIVE)


async def outcome_of(client: Any, name: str) -> BaseException | None:
    """The exception of a call with arguments of the right types."""
    call: Callable[..., Any] = getattr(client, name)
    given = []
    named = {}
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            given.append(tp(0))
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            value = 0 if parameter.name == "partition" and isinstance(client, Producer) else None
            if value is None:
                mine = OF_ADMIN.get(name, {}) if isinstance(client, Admin) else {}
                value = mine.get(parameter.name, ARGUMENTS.get(parameter.name, ["x"]))
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = value
            else:
                given.append(value)
    try:
        made = call(*given, **named)
        if inspect.isasyncgen(made):
            await anext(made)
        elif inspect.isawaitable(made):
            async with asyncio.timeout(1):
                await made
    except Exception as error:
        return error
    return None


CASES = [
    (Consumer, {"group_id": "g", "auto_offset_reset": "earliest"}, ConsumerStoppedError, IllegalStateError),
    (AIOKafkaConsumer, {"group_id": "g", "auto_offset_reset": "earliest"}, ConsumerStoppedError, IllegalStateError),
    (Producer, {"transactional_id": "x"}, ProducerClosed, ProducerNotStarted),
    (AIOKafkaProducer, {"transactional_id": "x"}, ProducerClosed, ProducerNotStarted),
    (Admin, {}, IllegalStateError, IllegalStateError),
    (AIOKafkaAdminClient, {}, IllegalStateError, IllegalStateError),
    (BatchReader, {}, IllegalStateError, IllegalStateError),
    (TransactionGroup, {"name": "group"}, IllegalStateError, IllegalStateError),
]


def made(kind: type, settings: dict[str, Any], address: str) -> Any:
    name = [settings["name"]] if "name" in settings else []
    return kind(*name, bootstrap_servers=address, **{key: value for key, value in settings.items() if key != "name"})


@pytest.mark.parametrize(("kind", "settings", "stopped", "new"), CASES, ids=lambda case: getattr(case, "__name__", ""))
async def test_every_call_of_a_stopped_client_says_so(
    bootstrap: str, kind: type, settings: dict[str, Any], stopped: type[KafkaError], new: type[KafkaError]
) -> None:
    await produce(bootstrap, [b"a"])
    client = made(kind, settings, bootstrap)
    await client.start()
    if isinstance(client, Consumer):
        client.assign([tp(0)])
        await client.getone()
    await (client.close() if hasattr(client, "close") else client.stop())
    for name in calls_of(kind):
        error = await outcome_of(client, name)
        assert isinstance(error, stopped), f"{name}: {error!r}"
        assert "stopped" in str(error), f"{name}: {error!r}"


@pytest.mark.parametrize(("kind", "settings", "stopped", "new"), CASES, ids=lambda case: getattr(case, "__name__", ""))
async def test_every_call_that_needs_a_broker_asks_for_the_start(
    bootstrap: str, kind: type, settings: dict[str, Any], stopped: type[KafkaError], new: type[KafkaError]
) -> None:
    client = made(kind, settings, bootstrap)
    for name in calls_of(kind):
        if name in BEFORE_START and name != "transaction":
            continue
        error = await outcome_of(client, name)
        if name == "flush" and kind is AIOKafkaProducer:
            assert error is None, "as in aiokafka"
            continue
        assert isinstance(error, new), f"{name}: {error!r}"
        assert "not started" in str(error), f"{name}: {error!r}"


async def test_a_commit_of_a_stopped_consumer_is_not_lost_in_silence(fake_broker: FakeBroker) -> None:
    consumer = Consumer("t", bootstrap_servers=fake_broker.address, group_id="g")
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError, match="the consumer is stopped"):
        await consumer.commit()
    with pytest.raises(ConsumerStoppedError):
        aiter(consumer)
