"""Off-the-shelf clients, unmodified: produce, consume, groups, restarts and kill -9."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.processes import BrokerProcess
from support.strangers import CODECS, EVERYONE, STRANGERS, StrangerMember, StrangerRecord

Client = Callable[[str], Any]
each_stranger = pytest.mark.parametrize("client", STRANGERS, ids=lambda c: c.name)
each_client = pytest.mark.parametrize("client", EVERYONE, ids=lambda c: c.name)
each_codec = pytest.mark.parametrize("codec", CODECS)


def numbered(count: int, partitions: int, start: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(i % partitions, b"key-%d" % i, b"value-%d-" % i + b"x" * (i % 50)) for i in range(start, start + count)]


def check_each_once_in_order(rows: list[StrangerRecord], sent: list[tuple[int, bytes | None, bytes | None]]) -> None:
    by_partition: dict[int, list[StrangerRecord]] = {}
    for row in rows:
        by_partition.setdefault(row.partition, []).append(row)
    expected: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for partition, key, value in sent:
        expected.setdefault(partition, []).append((key, value))
    got = {p: [(r.key, r.value) for r in sorted(found, key=lambda r: r.offset)] for p, found in by_partition.items()}
    counts = Counter(row.value for row in rows)
    assert not [value for value, n in counts.items() if n > 1][:3], "duplicates"
    assert {p: len(v) for p, v in got.items()} == {p: len(v) for p, v in expected.items()}
    assert got == expected


@each_client
@each_codec
def test_what_one_client_writes_every_client_reads(
    broker: BrokerProcess, topic: str, client: Client, codec: str
) -> None:
    writer = client(broker.address)
    STRANGERS[0](broker.address).create_topic(topic, 3)
    sent = [*numbered(300, 3), (0, None, b""), (1, b"", None), (2, b"last", b"y" * 20_000)]
    writer.produce(topic, sent, codec)
    for reader in EVERYONE:
        check_each_once_in_order(reader(broker.address).consume(topic, len(sent)), sent)


@each_stranger
def test_each_client_creates_its_topic(broker: BrokerProcess, topic: str, client: Client) -> None:
    made = client(broker.address)
    made.create_topic(topic, 4)
    made.produce(topic, numbered(40, 4))
    check_each_once_in_order(made.consume(topic, 40), numbered(40, 4))


@each_client
def test_producers_that_are_not_idempotent_are_served_too(broker: BrokerProcess, topic: str, client: Client) -> None:
    STRANGERS[0](broker.address).create_topic(topic, 2)
    client(broker.address).produce(topic, numbered(100, 2), idempotent=False)
    check_each_once_in_order(STRANGERS[0](broker.address).consume(topic, 100), numbered(100, 2))


def wait_until(condition: Callable[[], bool], members: list[StrangerMember], what: str, timeout_s: float = 45) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        for member in members:
            assert member.error is None, member.error
        state = [(sorted(m.assigned), len(m.rows)) for m in members]
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s: {state}"
        time.sleep(0.02)


def shared_out(members: list[StrangerMember], partitions: int) -> bool:
    owned = [p for member in members for p in member.assigned]
    return sorted(owned) == list(range(partitions)) and all(member.assigned for member in members)


@each_client
def test_a_group_of_three_survives_one_leaving_and_one_joining(
    broker: BrokerProcess, topic: str, client: Client
) -> None:
    face = client(broker.address)
    STRANGERS[0](broker.address).create_topic(topic, 6)
    members = [face.member(f"group-{topic}", topic) for _ in range(3)]
    for member in members:
        member.start()
    wait_until(lambda: shared_out(members, 6), members, "three members share six partitions")
    face.produce(topic, numbered(300, 6))
    members[1].leave()
    left = [members[0], members[2]]
    wait_until(lambda: shared_out(left, 6), left, "two members take over")
    face.produce(topic, numbered(300, 6, 300))
    joined = [*left, face.member(f"group-{topic}", topic)]
    joined[2].start()
    wait_until(lambda: shared_out(joined, 6), joined, "the third one gets its share")
    face.produce(topic, numbered(300, 6, 600))
    wanted = {value for _, _, value in numbered(900, 6)}
    everyone = [*joined, members[1]]
    wait_until(lambda: wanted <= {r.value for m in everyone for r in m.rows}, joined, "every value is read")
    for member in joined:
        member.leave()
    places: dict[tuple[int, int], bytes | None] = {}
    for row in (row for member in everyone for row in member.rows):
        assert places.setdefault((row.partition, row.offset), row.value) == row.value


@each_client
def test_committed_offsets_survive_a_broker_restart(own_broker: BrokerProcess, topic: str, client: Client) -> None:
    face = client(own_broker.address)
    STRANGERS[0](own_broker.address).create_topic(topic, 2)
    face.produce(topic, numbered(100, 2))
    first = face.member("readers", topic)
    first.start()
    wait_until(lambda: len(first.rows) == 100, [first], "the first hundred are read")
    first.leave()
    assert own_broker.stop() == 0
    own_broker.start()
    face.produce(topic, numbered(50, 2, 100))
    second = face.member("readers", topic)
    second.start()
    wait_until(lambda: len(second.rows) >= 50, [second], "the next fifty are read")
    second.leave()
    assert sorted(r.value for r in second.rows) == sorted(v for _, _, v in numbered(50, 2, 100))


@each_client
def test_kill_9_in_the_middle_of_producing_leaves_each_value_once_and_in_order(
    own_broker: BrokerProcess, topic: str, client: Client
) -> None:
    STRANGERS[0](own_broker.address).create_topic(topic, 3)
    sent = numbered(12_000, 3)

    def with_kills() -> Iterator[tuple[int, bytes | None, bytes | None]]:
        for i, row in enumerate(sent):
            if i in (4_000, 8_000):
                own_broker.kill_and_restart()
            yield row
            if i % 500 == 0:
                time.sleep(0.01)  # spread the load over the restarts

    client(own_broker.address).produce(topic, with_kills())
    check_each_once_in_order(STRANGERS[0](own_broker.address).consume(topic, len(sent)), sent)
