"""`semel top`: the figures of a frame, and the command against a broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from broker.harness import Harness
from click.testing import CliRunner
from client.consuming import produce, take
from semel import Admin, Consumer, NewTopic, Producer, TopicPartition
from semel._edge import Edge
from semel.admin import ClusterDescription
from semel.cli.main import main
from semel.cli.top import sample
from semel.cli.top.frame import facts_of, notes_of, tables_of
from semel.cli.top.sample import GroupLag, Sample
from semel.errors import UnsupportedVersionError
from semel.structs import BrokerMetadata, PartitionMetadata

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def sample_of(at: float, **ends: int) -> Sample:
    return Sample(
        at=at,
        now_ms=1_700_000_000_000,
        cluster=ClusterDescription("c", 1, {1: BrokerMetadata(1, "h", 9)}),
        partitions=tuple(PartitionMetadata(topic, 0, 1 if topic != "z" else -1) for topic in ends),
        ends={TopicPartition(topic, 0): end for topic, end in ends.items()},
        stable={TopicPartition(topic, 0): end for topic, end in ends.items()},
    )


def test_topics_are_sorted_by_their_rate_and_a_topic_made_anew_has_none() -> None:
    facts = facts_of(sample_of(10.0, a=100, b=5, z=50), sample_of(12.0, a=110, b=305, z=3))
    assert [(row["topic"], row["records_per_second"]) for row in facts["topics"]] == [("b", 150), ("a", 5), ("z", 0)]
    assert [row["without_leader"] for row in facts["topics"]] == [0, 0, 1]
    assert facts["brokers"][0]["records_per_second"] == 155
    assert facts["interval_ms"] == 2_000


def test_a_topic_without_an_end_has_no_rate() -> None:
    now = msgspec.structs.replace(sample_of(2.0, a=1), ends={})
    assert facts_of(sample_of(1.0, a=1), now)["topics"][0]["records_per_second"] is None


def test_groups_are_sorted_by_lag_and_more_than_fit_are_counted() -> None:
    groups = [GroupLag(f"g{number}", "Stable", 1, number) for number in range(12)] + [GroupLag("x", "Empty", 0, None)]
    now = msgspec.structs.replace(sample_of(2.0, a=1), groups=groups, missing={"transactions": "not served"})
    facts = facts_of(sample_of(1.0, a=1), now)
    assert [row["group"] for row in facts["groups"]][:2] == ["g11", "g10"]
    assert facts["groups"][-1]["lag"] is None
    assert len(tables_of(facts, 5)[-1].added) == 5
    assert notes_of(facts) == ["Not shown: 3 more groups; --output json has all.", "No transactions: not served"]


async def test_a_frame_of_a_broker(bootstrap: str) -> None:
    edge = Edge()
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 2), NewTopic("calm", 1)])
        await produce(bootstrap, [b"1", b"2"])
        async with Consumer("t", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            await take(consumer, 1)
            await consumer.commit()
        async with Producer(bootstrap_servers=bootstrap, transactional_id="x", client_id="shop") as producer:
            before = await sample.take(admin, edge)
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"3", partition=0)
            await asyncio.sleep(0.5)  # the transaction is open meanwhile
            facts = facts_of(before, await sample.take(admin, edge))
            await producer.abort_transaction()
        after = facts_of(before, await sample.take(admin, edge))
    topic, calm = facts["topics"]
    assert (topic["topic"], topic["partitions"], topic["end_offsets"]) == ("t", 2, 3)
    assert 0 < topic["records_per_second"] <= 2
    assert (calm["topic"], calm["records_per_second"]) == ("calm", 0)
    assert [(row["broker"], row["leads"]) for row in facts["brokers"]] == [(0, 3)]
    (open_now,) = facts["transactions"]
    assert (open_now["transactional_id"], open_now["state"], open_now["partitions"]) == ("x", "Ongoing", 1)
    assert open_now["open_for_ms"] >= 450
    (held,) = facts["held_back"]
    assert (held["topic"], held["partition"], held["offsets"]) == ("t", 0, 1)
    assert (held["held_by"], held["verdict"], held["last_stable_offset"]) == ("x", "ongoing", 2)
    assert [(row["group"], row["lag"], row["state"]) for row in facts["groups"]] == [("g", 2, "Empty")]
    assert [table.title.split()[0] for table in tables_of(facts)] == ["Cluster", "Topics", "Open", "Held", "Groups"]
    assert (after["transactions"], after["held_back"], after["missing"]) == ([], [], {})


async def test_a_part_that_the_brokers_do_not_serve_is_left_out(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unserved(*_: object, **__: object) -> None:
        raise UnsupportedVersionError("ListTransactions: not served")

    async with Admin(bootstrap_servers=bootstrap) as admin:
        monkeypatch.setattr(admin, "list_transactions", unserved)
        found = await sample.take(admin, Edge())
    assert list(found.missing) == ["transactions"]
    assert "not served" in found.missing["transactions"]


@pytest.mark.real_time
async def test_the_command_prints_one_frame(tmp_path: Path) -> None:
    harness = await Harness(tmp_path / "data").start()
    bootstrap = f"127.0.0.1:{harness.port}"
    await produce(bootstrap, [b"1"])

    def command(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["top", "-b", bootstrap, "--once", "--interval", "0.1", *arguments])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    facts = json.loads(await asyncio.to_thread(command, "--output", "json"))
    assert facts["topics"][0]["topic"] == "t"
    text = await asyncio.to_thread(command)
    assert "t\t0.0\t1\t-\t1" in text
    assert "Groups" not in text  # there are none
    await harness.stop()
