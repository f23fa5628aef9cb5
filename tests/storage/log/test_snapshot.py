"""Producer snapshots: the bytes of Kafka, the trailer of semel, and damaged files."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.snapshot import CorruptSnapshot, Snapshots, decode, encode
from semel_storage.producers.producers import BatchPlace, ProducerState

PLACES = st.builds(
    BatchPlace,
    last_sequence=st.integers(0, 2**31 - 1),
    last_offset=st.integers(0, 2**62),
    offset_delta=st.integers(0, 2**31 - 1),
    timestamp=st.integers(-1, 2**62),
)
STATES = st.builds(
    ProducerState,
    producer_id=st.integers(0, 2**62),
    epoch=st.integers(0, 2**15 - 1),
    batches=st.lists(PLACES, max_size=5).map(tuple),
    accepted=st.integers(0, 2**30),
    last_timestamp=st.integers(-1, 2**62),
    last_append_ms=st.integers(-1, 2**62),
    coordinator_epoch=st.integers(-1, 2**31 - 1),
    txn_first_offset=st.integers(-1, 2**62),
)


@given(st.lists(STATES, max_size=6, unique_by=lambda state: state.producer_id))
def test_states_survive_encode_and_decode(states: list[ProducerState]) -> None:
    expected = sorted(states, key=lambda state: state.producer_id)
    assert decode(encode(states)) == expected


@given(st.lists(STATES, max_size=3, unique_by=lambda state: state.producer_id), st.data())
def test_any_changed_or_missing_byte_is_detected(states: list[ProducerState], data: st.DataObject) -> None:
    encoded = bytearray(encode(states))
    at = data.draw(st.integers(0, len(encoded) - 1))
    for wrong in (encoded[:at], encoded[:at] + bytes([encoded[at] ^ 1]) + encoded[at + 1 :]):
        with pytest.raises(CorruptSnapshot):
            decode(wrong)


STATE = ProducerState(
    producer_id=1234,
    epoch=2,
    batches=(BatchPlace(4, 7, 1, 99), BatchPlace(9, 15, 2, 100)),
    accepted=10,
    last_timestamp=100,
    last_append_ms=5,
    coordinator_epoch=3,
    txn_first_offset=13,
)


def test_the_part_of_kafka_has_kafkas_bytes() -> None:
    encoded = encode([STATE])
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 1234, 2, 9, 15, 2, 100, 3, 13)
    assert encoded[:2] == b"\x00\x01"
    assert encoded[6 : 6 + len(body)] == body
    assert struct.unpack_from(">I", encoded, 2)[0] == crc32c(encoded[6:])


def test_snapshot_of_kafkas_own_is_read() -> None:
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 1234, 2, 9, 15, 2, 100, -1, -1)
    (state,) = decode(struct.pack(">hI", 1, crc32c(body)) + body, now_ms=77)
    assert state.batches == (BatchPlace(9, 15, 2, 100),)
    assert (state.accepted, state.last_append_ms, state.txn_first_offset) == (3, 77, -1)


def test_the_newest_valid_snapshot_is_loaded_and_invalid_ones_removed(disk: MemoryDisk) -> None:
    disk.mkdir("d")
    snapshots = Snapshots(disk, "d")
    snapshots.write(10, [STATE], keep=())
    snapshots.write(20, [], keep=(10,))
    snapshots.write(30, [], keep=(10, 20))
    disk.overwrite(f"d/{20:020d}.snapshot", b"\x00\x01garbage")
    seen: list[str] = []
    found = Snapshots(disk, "d").load_newest(29, now_ms=0, event=lambda event, **_: seen.append(event))
    assert found == (10, {1234: STATE})
    assert seen == ["producer_snapshot_unusable"]
    assert Snapshots(disk, "d").offsets == [10, 30]


def test_the_number_of_snapshots_is_bounded(disk: MemoryDisk) -> None:
    disk.mkdir("d")
    snapshots = Snapshots(disk, "d")
    for offset in range(0, 100, 10):
        snapshots.write(offset, [], keep=(0, 40))
    assert disk.listdir("d") == [f"{offset:020d}.snapshot" for offset in (0, 40, 80, 90)]
