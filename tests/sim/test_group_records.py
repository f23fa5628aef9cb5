"""Eras of groups are read from the records of `__consumer_offsets`."""

from __future__ import annotations

import pytest
from semel_broker.groups.consumer.model import Current, Member, SetCurrent, SetMember
from semel_broker.groups.consumer.records import rows
from semel_protocol.batch import read_header
from semel_protocol.records import Record, build_batch
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.internal_topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupMetadataValueMember,
    Row,
    encode_versioned,
)
from semel_storage.log.log import Log
from semel_storage.segments.log_config import LogConfig

from sim.group_records import AMBIGUOUS, Eras

KEY = encode_versioned(GroupMetadataKey(group="g"), 2)


def classic(generation: int, *members: str) -> list[Row]:
    """The record of a generation; without members the group is empty."""
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        members=[GroupMetadataValueMember(member_id=member) for member in members],
    )
    return [(KEY, encode_versioned(value, 3))]


def joined(member: str, epoch: int) -> list[Row]:
    """The records of a member of the consumer protocol at an epoch."""
    return rows("g", [SetMember(member, Member(member_id=member)), SetCurrent(member, Current(epoch=epoch))])


def left(member: str) -> list[Row]:
    return rows("g", [SetMember(member, None), SetCurrent(member, None)])


class OffsetsLog:
    """A log of `__consumer_offsets`, and the eras read from it after each batch."""

    def __init__(self) -> None:
        self.log = Log.open(MemoryDisk(), "__consumer_offsets-0", LogConfig(), now_ms=0)
        self.eras = Eras()

    def batch(self, *parts: list[Row], read: bool = True) -> None:
        records = [Record(at, 0, key, value) for at, (key, value) in enumerate(row for part in parts for row in part)]
        data = build_batch(records)
        self.log.append(data, header=read_header(data), leader_epoch=1, now_ms=0)
        if read:
            self.read()

    def read(self) -> None:
        self.eras.read(0, self.log, self.log.end_offset)

    def found(self) -> dict[tuple[str, int], int]:
        return {(member, generation): era for (_, member, generation), era in self.eras.found().items()}


def test_an_era_lasts_while_some_member_stays() -> None:
    log = OffsetsLog()
    log.batch(classic(1, "a"))
    log.batch(classic(2, "a", "b"))
    log.batch(classic(3, "b"))
    assert log.found() == {("a", 1): 1, ("a", 2): 1, ("b", 2): 1, ("b", 3): 1}


def test_a_change_of_protocol_in_one_batch_continues_the_era() -> None:
    log = OffsetsLog()
    log.batch(classic(4, "a"))
    log.batch([(KEY, None)], joined("a", 4), joined("b", 5))
    log.batch(left("b"), left("a"), classic(6, "a"))
    assert log.found() == {("a", 4): 1, ("b", 5): 1, ("a", 6): 1}


def test_a_group_that_was_empty_begins_an_era() -> None:
    log = OffsetsLog()
    log.batch(joined("a", 1))
    log.batch(left("a"))
    log.batch(classic(1, "b"))
    log.batch(classic(2))
    log.batch(classic(3, "b"))
    assert log.found() == {("a", 1): 1, ("b", 1): 2, ("b", 3): 3}


def test_one_generation_of_a_member_in_two_eras_is_ambiguous() -> None:
    log = OffsetsLog()
    for _ in range(2):
        log.batch(joined("a", 1))
        log.batch(left("a"))
    assert log.found() == {("a", 1): AMBIGUOUS}


def test_several_batches_may_be_read_at_once() -> None:
    log = OffsetsLog()
    log.batch(classic(1, "a"), read=False)
    log.batch(classic(2), read=False)
    log.batch(classic(3, "a"), read=False)
    log.read()
    assert log.found() == {("a", 1): 1, ("a", 3): 2}


@pytest.mark.parametrize("missing", [0, 1])
def test_a_log_without_all_its_records_tells_nothing(missing: int) -> None:
    whole = OffsetsLog()
    for generation in (1, 2, 3):
        whole.batch(classic(generation, "a"))
    batches = [whole.log.read(at, up_to=at + 1, bytes_max=1) for at in range(3)]
    rest = OffsetsLog()
    rest.log.append_replicated(b"".join(batches[:missing] + batches[missing + 1 :]), now_ms=0)
    rest.read()
    assert rest.found() == {}
    rest.batch(classic(4, "a"))
    assert rest.found() == {}


def test_a_group_begins_where_it_was_not_there_or_changes_its_protocol_without_members() -> None:
    log = OffsetsLog()
    found = [log.eras.beginnings("g")]
    for rows_of_batch in (
        joined("a", 1),
        [*left("a"), *classic(2, "a")],
        classic(3),
        [(KEY, None), *joined("b", 1)],
        left("b"),
        classic(1, "c"),
    ):
        log.batch(rows_of_batch)
        found.append(log.eras.beginnings("g"))
    assert found == [None, 1, 1, 1, 2, 2, 3]
