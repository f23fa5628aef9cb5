"""The lag of a group counts the records that a read_committed consumer gets: no markers, no aborted records."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from broker.consumers import HeartbeatingMember
from broker.harness import Harness, Wire, batch
from broker.members import WireMember
from broker.metrics.scraping import Scraper
from broker.transactional import TransactionalProducer
from semel_broker.metrics.groups import OffsetTimes
from semel_storage.producers.skipped_offsets import ENTRIES_MAX, SkippedOffsets

G = {"group": "g", "topic": "t"}


async def commit(wire: Wire, offset: int, partition: int = 0) -> None:
    assert await WireMember(wire).commit({partition: offset}) == [0]


async def test_lag_has_no_markers_and_no_aborted_records(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    producer = await TransactionalProducer(wire).init()
    await wire.produce("t", batch(b"read"))
    await producer.produce("t", b"1", b"2", b"3")
    assert await producer.end() == 0
    await producer.produce("t", b"4", b"5")
    await wire.produce("t", batch(b"outside"))
    assert await producer.end(commit=False) == 0
    await commit(wire, 1)
    scraper = await Scraper(broker).scrape()
    assert scraper.value("log_records_appended_total", topic="t") == 9
    assert scraper.value("group_lag_records", **G) == 4, "3 committed and 1 outside; not 2 aborted and 2 markers"
    await commit(wire, 9)
    await scraper.scrape()
    assert scraper.value("group_lag_records", **G) == 0


async def test_lag_ends_at_the_last_stable_offset(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", 2)
    producer = await TransactionalProducer(wire).init()
    await wire.produce("t", batch(b"a", b"b"))
    await producer.produce("t", b"open")
    await wire.produce("t", batch(b"c"))
    await commit(wire, 0)
    await commit(wire, 0, partition=1)
    scraper = await Scraper(broker).scrape()
    assert scraper.value("group_lag_records", **G) == 2
    assert await producer.end() == 0
    await scraper.scrape()
    assert scraper.value("group_lag_records", **G) == 4
    assert scraper.value("group_partitions_without_lag") == 0


async def test_lag_in_seconds_is_the_age_of_the_oldest_record_to_read(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    await wire.produce("t", batch(b"a"))
    await commit(wire, 1)
    scraper = await Scraper(broker).scrape()
    assert scraper.value("group_lag_seconds", **G) == 0
    await wire.produce("t", batch(b"b"))
    await scraper.scrape()
    await asyncio.sleep(60)
    await wire.produce("t", batch(b"c"))
    await scraper.scrape()
    assert scraper.value("group_lag_seconds", **G) == pytest.approx(60, abs=1)
    await commit(wire, 2)
    await asyncio.sleep(5)
    await scraper.scrape()
    assert scraper.value("group_lag_seconds", **G) == pytest.approx(5, abs=1)


async def test_offsets_of_a_partition_that_is_not_here_are_counted(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    await commit(wire, 0)
    assert broker.node is not None
    await broker.node.broker.topics.delete("t")
    scraper = await Scraper(broker).scrape()
    assert scraper.value("group_lag_records", **G) is None
    assert scraper.value("group_partitions_without_lag") in (0, 1), "the offsets of a deleted topic are deleted, too"


@pytest.mark.parametrize("seed", range(20))
def test_counts_of_unreadable_offsets_agree_with_a_plain_count(seed: int) -> None:
    rng, unreadable, offset = Random(seed), SkippedOffsets(), 0
    skipped: list[int] = []
    opened: dict[int, list[int]] = {}
    for _ in range(200):
        producer = rng.randrange(4)
        if rng.random() < 0.3:
            is_abort = rng.random() < 0.5
            unreadable.marker(producer, offset, is_abort=is_abort)
            skipped += [offset, *(opened.pop(producer, []) if is_abort else [])]
            opened.pop(producer, None)
            offset += 1
        elif rng.random() < 0.2:
            offset += rng.randrange(1, 4)  # outside of transactions
        else:
            unreadable.data(producer, offset, 1)
            opened.setdefault(producer, []).append(offset)
            offset += 1
    end = min((each for batches in opened.values() for each in batches), default=offset)
    for start in range(0, end, 7):
        assert unreadable.between(start, end) == sum(start <= each < end for each in skipped)


def test_memory_of_unreadable_offsets_is_bounded_and_totals_stay_right() -> None:
    unreadable = SkippedOffsets()
    for offset in range(0, 20_000, 2):
        unreadable.data(1, offset, 1)
        unreadable.marker(1, offset + 1, is_abort=offset % 4 == 0)
    assert len(unreadable) <= ENTRIES_MAX + 1
    assert unreadable.between(0, 20_000) == 15_000


def test_times_of_offsets_are_forgotten_with_the_partition() -> None:
    times = OffsetTimes()
    times.note(("t", 0), 10, 1.0)
    times.note(("t", 0), 20, 5.0)
    assert times.lag_s(("t", 0), 15, 9.0) == 4.0
    assert times.lag_s(("t", 0), 9, 9.0) == 8.0
    assert times.lag_s(("t", 0), 20, 9.0) == 0.0
    times.note(("t", 0), 3, 9.0)
    assert times.lag_s(("t", 0), 2, 10.0) == 1.0, "another topic of this name"
    times.keep({})
    assert times.lag_s(("t", 0), 2, 10.0) == 0.0


async def test_a_group_of_the_consumer_protocol_has_its_state_members_and_epoch(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    assert await HeartbeatingMember(wire, "a").beat() == 0
    scraper = await Scraper(broker).scrape()
    assert scraper.value("groups", state="Stable") == 1
    assert scraper.value("group_members", group="g") == 1
    assert scraper.value("group_generation", group="g") == 1
