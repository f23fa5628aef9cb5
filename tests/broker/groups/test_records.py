"""Groups and offsets as Kafka's records, and back."""

from __future__ import annotations

import pytest
from broker.groups.group_state_driver import GroupStateDriver
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.groups.classic.group import ClassicMembership, GroupState
from semel_broker.groups.classic.records import group_row, group_tombstone
from semel_broker.groups.classic.state import Assign
from semel_broker.groups.group import Group
from semel_broker.groups.offsets.model import CommittedOffset, OffsetRecord
from semel_broker.groups.offsets.records import offset_rows
from semel_broker.groups.replay import GroupReplay
from semel_broker.groups.requests import TimePoint
from semel_protocol.batch import read_header
from semel_protocol.errors import ProtocolError
from semel_protocol.records import Record, build_batch
from semel_storage.internal_topics import GroupMetadataValue, OffsetCommitValue, decode_versioned

NOW = TimePoint(5_000, 1_700_000_000_000)


def replay(*rows: tuple[bytes | None, bytes | None]) -> dict[str, Group]:
    it = GroupReplay()
    for offset, (key, value) in enumerate(rows):
        batch = build_batch([Record(0, NOW.wall_ms, key, value)], base_offset=offset)
        it.feed(0, read_header(batch), batch)
    return it.groups(NOW)


def test_offset_is_stored_as_kafka_stores_it() -> None:
    committed = CommittedOffset(42, 7, "note", 1_700_000_000_000, topic_id=b"\7" * 16)
    ((key, value),) = offset_rows("g", [OffsetRecord("t", 3, committed)])
    assert key.hex() == "000100016700017400000003"
    assert value is not None
    assert value.hex() == "0004000000000000002a00000007056e6f74650000018bcfe5680001001007" + "07" * 15


def test_offset_with_an_expiry_of_its_own_is_stored_in_the_version_that_has_one() -> None:
    ((_, value),) = offset_rows("g", [OffsetRecord("t", 3, CommittedOffset(1, -1, "", 10, 20))])
    assert value is not None
    assert value[:2] == b"\0\1"
    assert decode_versioned(OffsetCommitValue, value).expire_timestamp == 20


def test_group_is_stored_as_kafka_stores_it() -> None:
    room = GroupStateDriver(hold=True)
    member = room.joined(room.join(instance="i")).member_id
    room.sync(member, {member: b"A"})
    key, value = group_row(room.group, room.unsettled[0], NOW)
    assert key.hex() == "0002000167"
    assert value is not None
    stored = decode_versioned(GroupMetadataValue, value)
    assert value[:2] == b"\0\3"
    assert (stored.protocol_type, stored.generation, stored.protocol) == ("consumer", 1, "range")
    assert (stored.leader, stored.current_state_timestamp) == (member, NOW.wall_ms)
    (row,) = stored.members
    assert (row.member_id, row.group_instance_id, row.client_id, row.client_host) == (member, "i", "c", "/h")
    assert (row.session_timeout, row.rebalance_timeout) == (10_000, 30_000)
    assert (row.subscription, row.assignment) == (b"range-metadata", b"A")


def test_stored_group_comes_back_stable_with_its_members() -> None:
    room = GroupStateDriver(hold=True)
    member = room.joined(room.join(instance="i")).member_id
    room.sync(member, {member: b"A"})
    group = replay(group_row(room.group, room.unsettled[0], NOW))["g"].of(ClassicMembership)
    assert group is not None
    assert (group.state, group.generation_id, group.leader) == (GroupState.STABLE, 1, member)
    assert group.static_members == {"i": member}
    assert group.members[member].assignment == b"A"
    assert group.members[member].expires_ms == NOW.monotonic_ms + 10_000
    assert group.choose_protocol() == "range"


def test_last_value_of_a_key_counts() -> None:
    rows = [
        offset_rows("g", [OffsetRecord("t", 0, CommittedOffset(offset))])[0]
        for offset in (1, 5, 3)  # the last one, not the largest
    ]
    committed = replay(*rows)["g"].offsets.get("t", 0)
    assert committed is not None
    assert committed.offset == 3


def test_tombstones_forget() -> None:
    (row,) = offset_rows("g", [OffsetRecord("t", 0, CommittedOffset(1))])
    (tombstone,) = offset_rows("g", [OffsetRecord("t", 0, None)])
    assert replay(row, tombstone) == {}
    stored = group_row(ClassicMembership(group_id="g", protocol_type="consumer"), Assign(1, {}), NOW)
    assert list(replay(stored)) == ["g"]
    assert replay(stored, group_tombstone("g")) == {}


def test_records_without_a_key_and_kinds_of_later_releases_are_skipped() -> None:
    assert replay((None, b"x"), (b"\0\11later", b"y")) == {}


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1\0\5g", b"\0\2\xff\xff"])
def test_malformed_record_is_refused(key: bytes) -> None:
    with pytest.raises(ProtocolError):
        replay((key, b"\0\3"))


OFFSETS = st.builds(
    CommittedOffset,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.text(max_size=20),
    st.integers(0, 2**62),
)


@given(st.dictionaries(st.tuples(st.text(max_size=5), st.integers(0, 3)), OFFSETS, max_size=5), st.text(max_size=5))
def test_offsets_come_back_as_they_were(offsets: dict[tuple[str, int], CommittedOffset], group: str) -> None:
    rows = offset_rows(group, [OffsetRecord(*key, committed) for key, committed in offsets.items()])
    found = replay(*rows)
    assert {(topic, index): c for topic, index, c in found[group].offsets} == offsets if offsets else found == {}
