"""The facts about groups in the logs of `__consumer_offsets`: committed offsets, and eras.

A group without members may begin anew: it may change its protocol or be forgotten, and then counts its generations
(epochs, in the consumer protocol) from 1 again. An era of a group lasts as long as each of its memberships has a member
in common with the one before. Eras of a group follow each other, so (era, generation) never goes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from semel_broker.groups.consumer.model import ConsumerGroup
from semel_broker.groups.consumer.records import change_of
from semel_broker.node import Node
from semel_protocol.batch import iterate
from semel_protocol.records import Record, decode_batch
from semel_storage.internal_topics import (
    CONSUMER_OFFSETS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offsets_key,
    decode_versioned,
)
from semel_storage.log.log import Log

from sim.final import Commit, GroupGeneration

AMBIGUOUS = -1
"""Stands for the era of a member that had one generation in two eras."""
READ_BYTES = 1 << 20


def commits(nodes: Sequence[Node]) -> Iterator[Commit]:
    """The committed offsets in the logs of the leaders of `__consumer_offsets`, in the order of each log."""
    for partition in (each for node in nodes for each in node.broker.topics.partitions() if each.is_leading):
        if partition.topic != CONSUMER_OFFSETS:
            continue
        for segment in partition.open().segments:
            for _, header, batch in segment.scan():
                if header.is_control or header.is_transactional:
                    continue
                for record in decode_batch(batch, header):
                    key = decode_offsets_key(record.key) if record.key is not None else None
                    if isinstance(key, OffsetCommitKey) and record.value is not None:
                        value = decode_versioned(OffsetCommitValue, record.value)
                        place = (key.topic, key.partition)
                        yield Commit(key.group, place, value.offset, record.offset, value.topic_id)


class Eras:
    """Follows the committed records of groups during a run, because compaction removes some of them later."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupEras] = {}
        self._next: dict[int, int] = {}
        self._shortened: dict[int, None] = {}

    def read(self, index: int, log: Log, end: int) -> None:
        """Read on in a log of partition `index` of `__consumer_offsets`. `end`: the high watermark."""
        if index in self._shortened:
            return
        while (at := self._next.get(index, 0)) < end:
            for header, batch in iterate(log.read(at, up_to=end, bytes_max=READ_BYTES)):
                records = [] if header.is_control else decode_batch(batch, header)
                is_whole = header.is_control or len(records) == header.last_offset_delta + 1
                if header.base_offset != self._next.get(index, 0) or not is_whole:
                    break
                self._next[index] = header.next_offset
                self._take(index, records)
            if self._next.get(index, 0) == at:  # compaction came first
                self._shortened[index] = None
                return

    def _take(self, index: int, records: Sequence[Record]) -> None:
        """Take in the records of one batch, which take effect together."""
        changed: dict[str, GroupEras] = {}
        for record in records:
            key = decode_offsets_key(record.key) if record.key is not None else None
            if key is None or isinstance(key, OffsetCommitKey):
                continue
            group = changed[key.group] = self._groups.setdefault(key.group, GroupEras(key.group, index))
            if isinstance(key, GroupMetadataKey):
                group.classic = None if record.value is None else decode_versioned(GroupMetadataValue, record.value)
            else:
                group.consumer.apply(change_of(key, record.value))
        for group in changed.values():
            group.note()

    def beginnings(self, group_id: str) -> int | None:
        """How often the group has begun: after its creation, or after a change of protocol without members.

        None: not known.
        """
        group = self._groups.get(group_id)
        return None if group is None or group.index in self._shortened else group.beginnings

    def found(self) -> dict[GroupGeneration, int]:
        """The era of each member in each of its generations, from 1. Of groups all of whose records were read."""
        whole = [group for group in self._groups.values() if group.index not in self._shortened]
        return {member: era for group in whole for member, era in group.found.items()}


class GroupEras(msgspec.Struct):
    """One group. `index`: of its partition. `beginnings`, `found`: see `Eras`."""

    group: str
    index: int
    beginnings: int = 0
    protocol: str = ""
    classic: GroupMetadataValue | None = None
    consumer: ConsumerGroup = msgspec.field(default_factory=lambda: ConsumerGroup(""))
    era: int = 0
    members: set[str] = set()
    found: dict[GroupGeneration, int] = {}

    def note(self) -> None:
        """Take in the present protocol and members."""
        protocol = "classic" if self.classic is not None else "" if self.consumer.is_blank else "consumer"
        if protocol != self.protocol and not self.members:
            self.beginnings += 1
        self.protocol = protocol
        generations = {member_id: self.consumer.current(member_id).epoch for member_id in self.consumer.members}
        if self.classic is not None:
            generations |= {member.member_id: self.classic.generation for member in self.classic.members}
        members = generations.keys()
        if members and not members & self.members:
            self.era += 1
        self.members = set(members)
        for member_id, generation in generations.items():
            member = (self.group, member_id, generation)
            if self.found.setdefault(member, self.era) != self.era:
                self.found[member] = AMBIGUOUS
