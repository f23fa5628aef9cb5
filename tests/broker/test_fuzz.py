"""Whatever a peer sends, the broker answers with some error or closes that one connection, and goes on."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import msgspec
import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch
from semel_broker.handlers import HANDLERS
from semel_protocol.api import APIS
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest

WIRE_CASES = Path(__file__).parents[1] / "data" / "wire-cases.txt"


def served_requests() -> list[tuple[int, int, bytes]]:
    """(key, version, body) of the requests of the corpus, written by Kafka's own encoder, that this broker serves."""
    cases = []
    for line in WIRE_CASES.read_text().splitlines():
        if line.startswith("#"):
            continue
        key, direction, version, body = line.split()
        api = APIS[int(key)]
        high = api.advertised[1] if api.advertised else -1
        if direction == "Q" and int(key) in HANDLERS and api.low <= int(version) <= high:
            cases.append((int(key), int(version), b"" if body == "-" else bytes.fromhex(body)))
    return cases


def frame(key: int, version: int, body: bytes) -> bytes:
    tags = b"\x00" if APIS[key].is_flexible(version) else b""
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x07\x00\x04fuzz" + tags
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


async def send(broker: Harness, data: bytes) -> None:
    """Send on a connection of its own; wait for an answer, the end, or a moment."""
    wire = await Wire.connect(broker.port)
    wire.send_bytes(data)
    try:
        async with asyncio.timeout(0.05):
            await wire.reader.read(1 << 20)
    except (TimeoutError, ConnectionResetError):
        pass  # a long poll, or nothing to answer
    await wire.close()


async def assert_well(broker: Harness) -> None:
    assert broker.log.of("request_failed") == []
    wire = await broker.wire()
    assert (await wire.call(ApiVersionsRequest())).error_code == 0


@pytest.fixture
async def broker(start_broker: StartBroker) -> Harness:
    harness = await start_broker(durability="os", auto_create_topics_enable="false")
    wire = await harness.wire()
    await wire.create_topic("t", partitions=2)
    await wire.produce("t", batch(b"x" * 100))
    return harness


async def test_random_messages_of_kafkas_own_encoder_find_no_bug(broker: Harness) -> None:
    cases = served_requests()
    assert {key for key, _, _ in cases} >= set(HANDLERS) - {33}  # the corpus has no AlterConfigs
    for start in range(0, len(cases), 50):
        await asyncio.gather(*(send(broker, frame(*case)) for case in cases[start : start + 50]))
    await assert_well(broker)


AIMS: dict[str, list[object]] = {
    "name": ["t", "t", "u"],
    "topic": ["t", "t", "u"],
    "group_id": ["g", ""],
    "partition": [0, 1, 5, -1],
    "partition_index": [0, 1, 5, -1],
    "index": [0, 1, 5, -1],
    "max_wait_ms": [0, 10],
    "session_timeout_ms": [10_000, 0],
    "rebalance_timeout_ms": [10_000, 0],
    "replica_id": [-1],
    "session_id": [0],
    "records": [batch(b"fuzz"), b"", None],
}
"""Values that get a random message past the first check of its handler."""


def aim(value: Any, random: Random) -> Any:
    """Give fields that say what a request is about values that exist here; the others stay as they are."""
    if isinstance(value, list):
        return [aim(one, random) for one in value]
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            new = random.choice(AIMS[field]) if field in AIMS else aim(getattr(value, field), random)
            setattr(value, field, new)
    return value


@pytest.mark.parametrize("seed", range(3))
async def test_random_messages_about_what_exists_find_no_bug(broker: Harness, seed: int) -> None:
    random = Random(seed)
    frames = []
    for key, version, body in served_requests():
        api = APIS[key]
        message = aim(api.decode_request(body, version), random)
        frames.append(frame(key, version, api.encode_request(message, version)))
    random.shuffle(frames)
    for start in range(0, len(frames), 50):
        await asyncio.gather(*(send(broker, data) for data in frames[start : start + 50]))
    await assert_well(broker)


@pytest.mark.parametrize("seed", range(4))
async def test_mutated_messages_find_no_bug(broker: Harness, seed: int) -> None:
    random = Random(seed)
    cases = served_requests()
    for _ in range(8):
        sends = []
        for key, version, body in random.sample(cases, 50):
            data = bytearray(frame(key, version, body))
            for _ in range(random.randint(1, 4)):
                data[random.randrange(4, len(data))] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
            sends.append(send(broker, bytes(data[: random.choice([len(data), random.randrange(len(data))])])))
        await asyncio.gather(*sends)
    await assert_well(broker)


def emptied(value: Any, rows: int) -> Any:
    """The same message with nothing in it: empty names and bytes, zeros, lists of at most `rows` empty elements."""
    if isinstance(value, list):
        return [emptied(one, rows) for one in value[:rows]]
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            setattr(value, field, emptied(getattr(value, field), rows))
        return value
    if isinstance(value, memoryview):
        return b""
    if isinstance(value, UUID):
        return UUID(int=0)
    return None if value is None else type(value)()


@pytest.mark.parametrize("rows", [0, 1], ids=["empty lists", "lists of one empty element"])
async def test_zero_length_everything_is_answered_or_closes_that_one_connection(broker: Harness, rows: int) -> None:
    asked = {}
    for key, version, body in served_requests():
        api = APIS[key]
        message = emptied(api.decode_request(body, version), rows)
        if key == 0:
            message.acks = -1  # 0 is not answered
        asked[api.encode_request(message, version), key, version] = None
    for body, key, version in asked:
        wire = await Wire.connect(broker.port)
        wire.send_bytes(frame(key, version, body))
        async with asyncio.timeout(5):
            answer = await wire.reader.read(4)  # b"": closed
        assert len(answer) in (0, 4)
        await wire.close()
    assert len(asked) > 100
    await assert_well(broker)
