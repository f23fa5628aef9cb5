"""Every argument of every public call: wrong values are refused with their names, and harm no call beside them."""

from __future__ import annotations

import asyncio
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from client.arguments.odd_values import ODD, generator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from semel import Admin, BatchReader, Consumer, Producer, TopicPartition, TransactionGroup
from semel._config.arguments import argument
from semel.admin import (
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from semel.errors import KafkaError
from semel_broker.testing.in_process import EphemeralBroker

T0 = TopicPartition("t", 0)
BESIDE = TopicPartition("beside", 0)
"""A topic that no odd value names: a valid call may delete another one."""
CLIENTS = (Producer, Consumer, Admin, TransactionGroup, BatchReader)
CHECKED_BY_HAND = {
    "Producer.send",
    "Producer.send_and_wait",
    "Producer.send_offsets_to_transaction",
    "Consumer.getone",
    "Consumer.seek",
    "Consumer.subscribe",
}
"""The calls for each record, and those that take more than their annotations can say."""


def public_calls(client: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, call in inspect.getmembers(client, inspect.isfunction):
        if not name.startswith("_") and len(inspect.signature(call).parameters) > 1:
            yield f"{client.__name__}.{name}", call


CALLS = dict(pair for client in CLIENTS for pair in public_calls(client))
ARGUMENTS = [
    (call, name)
    for call, function in CALLS.items()
    if call not in CHECKED_BY_HAND
    for name in list(inspect.signature(function).parameters)[1:]
]


def test_all_public_calls_check_their_arguments() -> None:
    assert {name for name, call in CALLS.items() if not hasattr(call, "__wrapped__")} == CHECKED_BY_HAND


@pytest.mark.parametrize(("call", "name"), ARGUMENTS)
def test_each_value_is_taken_or_refused_with_the_name_of_its_argument(call: str, name: str) -> None:
    hint = typing.get_type_hints(CALLS[call])[name]
    refused = []
    for odd in [*ODD, generator()]:
        try:
            argument(name, odd, hint)
        except (TypeError, ValueError) as error:
            refused.append(str(error))
    assert len(refused) > len(ODD) / 3
    assert [each for each in refused if name not in each] == []


# One name is no list, and a number is no text


async def refused(call: Any, error: type[Exception], names: str, /, **arguments: Any) -> None:
    """Nothing is sent: the Admin is not connected."""
    with pytest.raises(error, match=names):
        await call(Admin(), **arguments)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (Admin.delete_topics, "topics"),
        (Admin.describe_topics, "topics"),
        (Admin.fence_producers, "transactional_ids"),
        (Admin.describe_transactions, "transactional_ids"),
        (Admin.describe_consumer_groups, "group_ids"),
        (Admin.delete_consumer_groups, "group_ids"),
        (Admin.describe_user_scram_credentials, "users"),
        (Admin.describe_transaction_groups, "names"),
        (Admin.list_consumer_groups, "states_filter"),
        (Admin.list_consumer_groups, "types_filter"),
        (Admin.list_transactions, "states"),
    ],
)
@pytest.mark.parametrize("name", ["flights", b"flights"])
async def test_a_str_in_place_of_a_list_is_refused_with_the_right_form(
    call: Any, argument: str, name: str | bytes
) -> None:
    form = rf"{argument}=\['flights'\]" if isinstance(name, str) else "give a list"
    await refused(call, TypeError, rf"{argument}=b?'flights'.*{form}", **{argument: name})


@pytest.mark.parametrize("call", [Admin.describe_producers, Admin.elect_leaders, Admin.list_partition_reassignments])
async def test_a_partition_in_place_of_a_list_is_refused_with_the_right_form(call: Any) -> None:
    await refused(call, TypeError, r"partitions=TopicPartition.*partitions=\[TopicPartition", partitions=T0)


@pytest.mark.parametrize(
    ("call", "arguments", "names"),
    [
        (
            Admin.create_topics,
            {"new_topics": [NewTopic("t", topic_configs={"retention.ms": 1000})]},  # type: ignore[dict-item]
            r"new_topics\[0\]\.topic_configs\['retention\.ms'\]=1000 \(int\): give a str",
        ),
        (
            Admin.alter_configs,
            {"config_resources": [ConfigResource(ConfigResourceType.TOPIC, "t", {"preallocate": True})]},
            r"config_resources\[0\]\.configs\['preallocate'\]=True \(bool\)",
        ),
        (Admin.create_topics, {"new_topics": [NewTopic("t", 1.5)]}, r"new_topics\[0\]\.num_partitions=1\.5 \(float\)"),
        (Admin.create_topics, {"new_topics": [NewTopic(b"t", 1)]}, r"new_topics\[0\]\.name=b't' \(bytes\): give a str"),
        (Admin.create_topics, {"new_topics": ["t"]}, r"new_topics\[0\]='t' \(str\): give a NewTopic"),
        (Admin.create_topics, {"new_topics": NewTopic("t", 1)}, r"new_topics=NewTopic.*give a list"),
        (Admin.create_partitions, {"topic_partitions": {"t": 3}}, r"topic_partitions\['t'\]=3 \(int\): give a NewPart"),
        (
            Admin.create_partitions,
            {"topic_partitions": {"t": NewPartitions(3, [["1"]])}},  # type: ignore[list-item]
            r"topic_partitions\['t'\]\.new_assignments\[0\]\[0\]='1' \(str\): give an int",
        ),
        (Admin.list_offsets, {"partitions": {T0: 1.5}}, r"partitions\[TopicPartition.*\]=1\.5 \(float\)"),
        (Admin.list_offsets, {"partitions": {T0: "latest"}}, r"partitions\[.*='latest' \(str\)"),
        (Admin.delete_records, {"records_to_delete": {T0: 1.5}}, r"records_to_delete\[.*=1\.5 \(float\)"),
    ],
)
async def test_a_value_of_a_wrong_type_is_named_with_its_field(
    call: Any, arguments: dict[str, Any], names: str
) -> None:
    await refused(call, TypeError, names, **arguments)


async def test_a_reader_takes_a_list_of_topics_or_a_pattern() -> None:
    reader: Any = BatchReader()
    with pytest.raises(TypeError, match=r"topics='t'.*topics=\['t'\]"):
        await reader.partitions_of("t")
    with pytest.raises(TypeError, match=r"topics\[1\]=5 \(int\): give a str"):
        await reader.partitions_of(["t", 5])


async def test_a_password_stays_out_of_the_error() -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256)
    wrong = UserScramCredentialUpsertion("alice", info, ["geheim"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"alterations\[0\]\.password") as raised:
        await Admin().alter_user_scram_credentials([wrong])
    assert "geheim" not in str(raised.value)


async def test_a_consumer_refuses_what_its_fetcher_could_not_send() -> None:
    consumer: Any = Consumer()
    for wrong in ([("t", 1 << 40)], [(b"t", 0)], ["t"], T0, [("\ud800", 0)], 5):
        with pytest.raises((TypeError, ValueError), match="partitions"):
            consumer.assign(wrong)
    consumer.assign([("t", 0)])
    for offset in (1 << 63, 1.5, "0", None, True):
        with pytest.raises((TypeError, ValueError), match="offset="):
            consumer.seek(T0, offset)
    with pytest.raises((TypeError, ValueError), match=r"timestamps\[.*=1\.5 \(float\)"):
        await consumer.offsets_for_times({T0: 1.5})
    consumer.unsubscribe()
    for topics in (b"t", 5, ["t", b"u"], ["\ud800"]):
        with pytest.raises((TypeError, ValueError), match="topic"):
            consumer.subscribe(topics)
    with pytest.raises(TypeError, match="pattern="):
        consumer.subscribe(pattern=re.compile(b"t"))
    assert consumer.subscription() == frozenset()


# With a broker

MAKERS: dict[str, Callable[[str], Any]] = {
    "Consumer": lambda servers: Consumer(bootstrap_servers=servers, group_id="g", default_api_timeout_ms=300),
    "Admin": lambda servers: Admin(bootstrap_servers=servers, max_block_ms=300),
    "BatchReader": lambda servers: BatchReader(bootstrap_servers=servers, default_api_timeout_ms=300),
    "TransactionGroup": lambda servers: TransactionGroup("group", bootstrap_servers=servers, max_block_ms=300),
}
WITH_BROKER = [each for each in ARGUMENTS if each[0].split(".")[0] in MAKERS]
SLOW = {"Consumer.getmany", "BatchReader.read"}
"""Calls that may wait for records."""


@pytest.mark.real_time
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(st.tuples(st.sampled_from(WITH_BROKER), st.integers(0, len(ODD) - 1)), min_size=1, max_size=20))
def test_no_argument_harms_a_call_beside_it(semel_broker: EphemeralBroker, calls: list[Any]) -> None:
    async def run() -> None:
        servers = semel_broker.bootstrap_servers
        async with Admin(bootstrap_servers=servers) as admin:
            if BESIDE.topic not in await admin.list_topics():
                await admin.create_topics([NewTopic(BESIDE.topic, 1)])
        for (call, name), odd in calls:
            kind, method = call.split(".")
            if call in SLOW:
                continue
            function = CALLS[call]
            parameters = list(inspect.signature(function).parameters.values())[1:]
            arguments = {each.name: RIGHT[each.name] for each in parameters if each.name in RIGHT}
            async with MAKERS[kind](servers) as client:
                if parameters[0].kind is inspect.Parameter.VAR_POSITIONAL and name == parameters[0].name:
                    outcome = attempted(getattr(client, method), ODD[odd])
                else:
                    outcome = attempted(getattr(client, method), **{**arguments, name: ODD[odd]})
                await asyncio.gather(outcome, beside(client))

    asyncio.run(run())


RIGHT: dict[str, Any] = {"topic": "t", "topics": ["t"], "partition": T0, "partitions": [T0], "group_id": "g"}


async def attempted(method: Any, *args: Any, **kwargs: Any) -> None:
    """Call that lack other arguments are refused as well."""
    try:
        made = method(*args, **kwargs)
        if inspect.isawaitable(made):
            await made
    except (KafkaError, TypeError, ValueError):
        pass


async def beside(client: Any) -> None:
    if isinstance(client, Admin):
        assert BESIDE.topic in await client.list_topics()
    elif isinstance(client, Consumer):
        assert await client.end_offsets([BESIDE]) == {BESIDE: 0}
    elif isinstance(client, BatchReader):
        assert await client.partitions_of([BESIDE.topic]) == [BESIDE]
    else:
        assert (await client.begin()).group == "group"
