"""Arguments of the Producer: a wrong one is refused before anything is reserved, and harms no other call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from client.arguments.odd_values import ODD, Raises, generator, released
from client.fake_broker import QUICK, FakeBroker
from hypothesis import given, settings
from hypothesis import strategies as st
from semel import Producer
from semel.errors import IllegalStateError, InvalidTopicError, KafkaError, KafkaTimeoutError
from semel_protocol.records import decode_batch, encode_record

PAIRS = (("a", b"1"), ("b", None))


def producer(broker: FakeBroker, **given: Any) -> Producer:
    return Producer(bootstrap_servers=broker.address, **{**QUICK, "max_block_ms": 2_000, **given})


def reserved(sender: Producer) -> int:
    return sender._memory.bytes_max - sender._memory.free_bytes


@pytest.mark.parametrize(
    "headers",
    [
        lambda: zip("ab", (b"1", None), strict=True),
        lambda: map(tuple, PAIRS),
        lambda: (pair for pair in PAIRS),
        lambda: iter(PAIRS),
        lambda: dict(PAIRS).items(),
        lambda: [list(pair) for pair in PAIRS],
        lambda: [("a", bytearray(b"1")), ("b", None)],
    ],
)
async def test_any_iterable_of_headers_is_taken(fake_broker: FakeBroker, headers: Callable[[], Any]) -> None:
    stored: list[Any] = []
    store = fake_broker.log().append

    def append(batch: bytes | memoryview) -> tuple[int, int]:
        stored.extend(record.headers for record in decode_batch(batch))
        return store(batch)

    fake_broker.log().append = append  # type: ignore[method-assign]
    async with producer(fake_broker) as sender:
        await asyncio.gather(*[await sender.send("t", b"v", headers=headers()) for _ in range(2)])
        batch = sender.create_batch()
        batch.append(value=b"v", headers=headers())
        await (await sender.send_batch(batch, "t", partition=0))
    assert stored == [PAIRS] * 3


@pytest.mark.parametrize(
    ("arguments", "error", "names"),
    [
        ({"topic": b"t"}, TypeError, r"topic=b't' \(bytes\): give a str"),
        ({"topic": 7}, TypeError, r"topic=7"),
        ({"topic": None}, TypeError, r"topic=None"),
        ({"topic": ["t"]}, TypeError, r"topic=\['t'\]"),
        ({"topic": "\ud800"}, ValueError, r"topic='\\ud800': it is not Unicode text"),
        ({"topic": "x" * 40_000}, ValueError, r"topic='xxx.*40000 bytes"),
        ({"topic": Raises()}, TypeError, r"topic=<Raises>"),
        ({"headers": "ab"}, TypeError, r"headers='ab'"),
        ({"headers": {"ab": b"1"}}, TypeError, r"headers=\{'ab'.*pairs"),
        ({"headers": ["ab"]}, TypeError, r"headers\[0\]='ab' \(str\)"),
        ({"headers": [("a", b"1"), (7, b"2")]}, TypeError, r"headers\[1\]\[0\]=7"),
        ({"headers": [("a", "1")]}, TypeError, r"headers\[0\]\[1\]='1' \(str\)"),
        ({"headers": [("\ud800", b"1")]}, ValueError, r"headers\[0\]\[0\]='\\ud800'"),
        ({"headers": generator()}, TypeError, r"headers\[0\]='t'"),
        ({"headers": Raises()}, ValueError, r"headers=<Raises>: reading it raises RuntimeError"),
        ({"headers": 5}, TypeError, r"headers=5"),
        ({"partition": "0"}, TypeError, r"partition='0'"),
        ({"partition": 0.0}, TypeError, r"partition=0.0"),
        ({"partition": True}, TypeError, r"partition=True"),
        ({"partition": 7}, IllegalStateError, r"partitions 0 to 0, not 7"),
        ({"timestamp_ms": 1.5}, TypeError, r"timestamp_ms=1.5 \(float\): give milliseconds since the epoch"),
        ({"timestamp_ms": "now"}, TypeError, r"timestamp_ms='now'"),
        ({"timestamp_ms": float("nan")}, TypeError, r"timestamp_ms=nan"),
        ({"timestamp_ms": -1}, ValueError, r"timestamp_ms=-1"),
        ({"timestamp_ms": 1 << 63}, ValueError, r"timestamp_ms=9223372036854775808"),
        ({"value": "text"}, TypeError, r"value='text' is str, not bytes: encode it, or set value_serializer"),
        ({"key": 5}, TypeError, r"key=5 is int, not bytes: encode it, or set key_serializer"),
        ({"key": released()}, ValueError, r"key=<released memory"),
    ],
)
async def test_a_wrong_argument_is_named_with_its_value(
    fake_broker: FakeBroker, arguments: dict[str, Any], error: type[Exception], names: str
) -> None:
    async with producer(fake_broker) as sender:
        with pytest.raises(error, match=names):
            await sender.send(**{"topic": "t", "value": b"wrong", **arguments})
        assert reserved(sender) == 0
        await sender.send_and_wait("t", b"right")
    assert fake_broker.log().values == [b"right"]


@pytest.mark.parametrize(
    ("chosen", "error"), [(None, TypeError), (0.0, TypeError), ("0", TypeError), (7, ValueError), (-1, ValueError)]
)
async def test_the_wrong_choice_of_a_partitioner_is_named(
    fake_broker: FakeBroker, chosen: Any, error: type[Exception]
) -> None:
    choices = [chosen, 0]
    async with producer(fake_broker, partitioner=lambda *_: choices.pop(0)) as sender:
        with pytest.raises(error, match=rf"the partitioner's choice for topic 't'={chosen!r}"):
            await sender.send("t", b"wrong")
        assert reserved(sender) == 0
        await sender.send_and_wait("t", b"right")
    assert fake_broker.log().values == [b"right"]


@pytest.mark.parametrize("result", ["text", 5, [b"a"], {"a": 1}])
async def test_the_wrong_result_of_a_serializer_is_named(fake_broker: FakeBroker, result: Any) -> None:
    results = [result, b"right"]
    async with producer(fake_broker, value_serializer=lambda _: results.pop(0)) as sender:
        with pytest.raises(TypeError, match=r"value_serializer returned .*, not bytes"):
            await sender.send("t", "wrong")
        assert reserved(sender) == 0
        await sender.send_and_wait("t", "right")
    assert fake_broker.log().values == [b"right"]


async def test_functions_of_the_application_that_raise_harm_no_other_record(fake_broker: FakeBroker) -> None:
    def refuses_odd(*given: Any) -> Any:
        if given[0] == b"odd":
            raise LookupError("odd")
        return given[0] if len(given) == 1 else 0

    functions = {"key_serializer": refuses_odd, "value_serializer": refuses_odd, "partitioner": refuses_odd}
    for name, function in functions.items():
        async with producer(fake_broker, linger_ms=5, **{name: function}) as sender:
            beside = await sender.send("t", b"beside", key=b"even")
            with pytest.raises(LookupError):
                await sender.send("t", b"odd", key=b"odd")
            await beside
            assert reserved(sender) == 0
    assert fake_broker.log().values == [b"beside"] * 3


# Batches that cannot be built


async def test_a_buffer_may_be_released_after_the_call(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker, linger_ms=5) as sender:
        view = memoryview(encode_record(0, 0, None, b"whole", ()))
        sent = await sender.send_encoded("t", 0, view, 1, 0, 0)
        view.release()
        await sent
    assert fake_broker.log().values == [b"whole"]


async def test_a_codec_without_memory_fails_the_batches_that_it_cannot_compress(
    fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
        if b"large" in data:
            raise MemoryError
        return data

    monkeypatch.setattr("semel_protocol.records.compress", compress)
    fake_broker.topics["u"] = 1
    async with producer(fake_broker, linger_ms=5) as sender:
        lost, beside = await sender.send("u", b"large"), await sender.send("t", b"beside")
        with pytest.raises(KafkaError, match="MemoryError"):
            await lost
        await beside
        await sender.send_and_wait("u", b"behind")
        assert reserved(sender) == 0
    assert (fake_broker.log().values, fake_broker.log("u").values) == ([b"beside"], [b"behind"])


async def test_a_batch_that_cannot_be_sent_may_be_sent_again(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker) as sender:
        batch = sender.create_batch()
        batch.append(value=b"v")
        for topic, partition in (("t", 7), (b"t", 0), ("a/b", 0)):
            with pytest.raises((KafkaError, TypeError)):
                await sender.send_batch(batch, topic, partition=partition)  # type: ignore[arg-type]
        await (await sender.send_batch(batch, "t", partition=0))
    assert fake_broker.log().values == [b"v"]


# Topics


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250, "ä"])
async def test_a_name_that_no_topic_can_have_is_refused_and_never_sent(fake_broker: FakeBroker, name: str) -> None:
    async with producer(fake_broker) as sender:
        with pytest.raises(InvalidTopicError):
            await sender.send(name, b"v")
        with pytest.raises(InvalidTopicError):
            await sender.partitions_for(name)
        await sender.send_and_wait("t", b"right")
    asked = {row.name for request in fake_broker.seen(3) for row in request.topics}
    assert asked == {"t"}


async def test_a_topic_that_does_not_appear_is_forgotten(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker, max_block_ms=50) as sender:
        with pytest.raises(KafkaTimeoutError, match="did not appear"):
            await sender.send("missing", b"v")
        waiting = asyncio.create_task(sender.send("cancelled", b"v"))
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.wait([waiting])
        seen = len(fake_broker.seen(3))
        await sender.send_and_wait("t", b"v")
        assert [[row.name for row in request.topics] for request in fake_broker.seen(3)[seen:]] == [["t"]]


async def test_a_topic_that_two_calls_wait_for_is_asked_for_until_the_second_ends(fake_broker: FakeBroker) -> None:
    async with producer(fake_broker) as sender:
        first = asyncio.create_task(sender.send("late", b"1"))
        second = asyncio.create_task(sender.send("late", b"2"))
        await asyncio.sleep(0.02)
        first.cancel()
        await asyncio.wait([first])
        fake_broker.topics["late"] = 1
        await (await second)
    assert fake_broker.log("late").values == [b"2"]


# All arguments


SEND = ("topic", "value", "key", "partition", "timestamp_ms", "headers")
ENCODED = ("topic", "partition", "records", "count", "first_timestamp_ms", "max_timestamp_ms")
RIGHT: dict[str, Any] = {
    "topic": "t",
    "value": b"odd",
    "partition": 0,
    "timestamp_ms": 1,
    "records": encode_record(0, 0, None, b"odd", ()),
    "count": 1,
    "first_timestamp_ms": 1,
    "max_timestamp_ms": 1,
}


def is_garbage(name: str, odd: Any) -> bool:
    """Whether the value makes records that are not encoded, which `send_encoded` does not check."""
    return (name == "records" and isinstance(odd, bytes | bytearray | memoryview)) or (
        name == "count" and isinstance(odd, int)
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "send_encoded"]), st.integers(0, 5), st.sampled_from(range(len(ODD)))),
        min_size=1,
        max_size=20,
    )
)
def test_no_argument_harms_the_calls_beside_it(calls: list[tuple[str, int, int]]) -> None:
    async def run() -> None:
        async with FakeBroker() as broker, producer(broker, linger_ms=1) as sender:
            futures, beside = [], []
            for number, (call, place, odd) in enumerate(calls):
                names = SEND if call == "send" else ENCODED
                arguments = {name: RIGHT[name] for name in names if name in RIGHT}
                if not is_garbage(names[place], ODD[odd]):
                    arguments[names[place]] = ODD[odd]
                beside.append(await sender.send("t", b"beside %d" % number))
                (outcome,) = await asyncio.gather(getattr(sender, call)(**arguments), return_exceptions=True)
                if isinstance(outcome, asyncio.Future):
                    futures.append(outcome)
                else:  # a KafkaError: a topic or a partition that does not exist
                    assert isinstance(outcome, KafkaError | TypeError | ValueError)
                    assert isinstance(outcome, KafkaError) or names[place] in str(outcome)
            await asyncio.gather(*futures, return_exceptions=True)
            await asyncio.gather(*beside)
            assert reserved(sender) == 0
            values = [value for value in broker.log().values if value is not None and value.startswith(b"beside")]
            assert values == [b"beside %d" % number for number in range(len(calls))]

    asyncio.run(run())
