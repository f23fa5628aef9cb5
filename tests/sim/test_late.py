"""Requests that arrive after their client has gone on, and moments of the broker that faults wait for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_protocol.records import Record, build_batch
from semel_storage.internal_topics import (
    GroupMetadataKey,
    OffsetCommitKey,
    TransactionLogKey,
    TransactionLogValue,
    encode_versioned,
)

from sim.holds import Hold
from sim.host import Host
from sim.moments import GENERATION, MARKER, MOMENTS, OFFSETS, SNAPSHOT, SWAP, MomentTrigger, MomentWatch, moments_in
from sim.plan import draw
from sim.test_network import PORT, HostPair, RecordingPeer, frame


class TwoConnections(HostPair):
    """A pair of hosts with a second connection from the same host: `near` and `other`."""

    def __init__(self) -> None:
        super().__init__()
        self.other = RecordingPeer()
        self.world.network.watching = True

    async def dial(self, host: Host) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self.near, "b", PORT)
        await loop.create_connection(lambda: self.other, "b", PORT)
        await asyncio.sleep(10_000)

    def arrived(self) -> list[int]:
        """The number of bytes received on each connection."""
        return [len(peer.got) for peer in self.accepted]


@pytest.mark.parametrize("breaks", [False, True])
def test_a_late_request_waits_until_its_client_has_gone_on(breaks: bool) -> None:
    pair = TwoConnections()
    pair.connect()
    pair.world.network.hold(Hold(api_key=0, delay_ms=300, source="a", until=26, past=2, breaks=breaks))
    size = len(frame(0, 1))
    pair.near.transport.write(frame(0, 1))
    pair.go(5)
    assert pair.near.is_lost == breaks
    pair.other.transport.write(frame(26, 1))
    pair.go(5)
    assert pair.arrived() == [0, size]
    pair.other.transport.write(frame(0, 2) + frame(26, 3))
    pair.go(0.25)
    assert pair.arrived() == [0, 3 * size]
    pair.go(0.2)
    assert pair.arrived() == [size, 3 * size]
    pair.close()


def test_requests_on_the_held_connection_do_not_release_it() -> None:
    pair = TwoConnections()
    pair.connect()
    pair.world.network.hold(Hold(api_key=0, delay_ms=0, source="a", until=26))
    pair.near.transport.write(frame(0, 1) + frame(26, 2))
    pair.go(5)
    assert pair.arrived() == [0, 0]
    pair.world.network.heal()
    pair.go(1)
    assert pair.far.got == frame(0, 1) + frame(26, 2)
    pair.close()


def test_a_request_whose_client_never_continues_arrives_after_a_minute() -> None:
    pair = TwoConnections()
    pair.connect()
    pair.world.network.hold(Hold(api_key=0, delay_ms=0, source="a", until=26))
    pair.near.transport.write(frame(0, 1))
    pair.go(59)
    assert pair.arrived() == [0, 0]
    pair.go(2)
    assert pair.far.got == frame(0, 1)
    pair.close()


def transaction(status: int) -> bytes:
    value = TransactionLogValue(
        producer_id=1, producer_epoch=2, transaction_timeout_ms=3, transaction_status=status
    )  # fmt: skip
    key = encode_versioned(TransactionLogKey(transactional_id="t"), 0)
    return build_batch([Record(0, 0, key, encode_versioned(value, 1))])


def offsets(*keys: Any) -> bytes:
    versions: dict[type[Any], int] = {OffsetCommitKey: 1, GroupMetadataKey: 2}
    rows = [encode_versioned(key, versions[type(key)]) for key in keys]
    return build_batch([Record(at, 0, row, b"") for at, row in enumerate(rows)])


MARKED = build_marker(EndTxnMarker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp_ms=0)


@pytest.mark.parametrize(
    ("directory", "data", "moments"),
    [
        ("__transaction_state-0", transaction(2), ["PrepareCommit"]),
        ("__transaction_state-0", transaction(0) + transaction(1), ["Empty", "Ongoing"]),
        ("__consumer_offsets-0", offsets(GroupMetadataKey(group="g")), [GENERATION]),
        ("__consumer_offsets-0", offsets(OffsetCommitKey(group="g", topic="t", partition=0)), [OFFSETS]),
        ("t-0", MARKED, [MARKER]),
        ("t-0", build_batch([Record(0, 0, None, b"x")]), []),
    ],
)
def test_moments_are_read_from_appended_bytes(directory: str, data: bytes, moments: list[str]) -> None:
    assert list(moments_in(f"data/{directory}/0.log", data)) == moments


def test_moments_are_read_from_file_names() -> None:
    assert list(moments_in("data/t-0/00000000000000000007.snapshot", b"")) == [SNAPSHOT]
    assert list(moments_in("data/t-0/00000000000000000007.log.swap", b"")) == [SWAP]
    assert list(moments_in("data/t-0/00000000000000000007.index.swap", b"")) == []


def test_a_trigger_is_called_once() -> None:
    watch, struck = MomentWatch(), list[str]()
    for name in ("one", "two"):
        watch.wait(MomentTrigger("PrepareCommit", lambda name=name: struck.append(name)))  # type: ignore[misc]
    watch.has_changed("data/__transaction_state-0/0.log", [transaction(3)])
    assert struck == []
    watch.has_changed("data/__transaction_state-0/0.index", [transaction(2)])
    assert struck == []
    watch.has_changed("data/__transaction_state-0/0.log", [transaction(2)])
    assert struck == ["one"]
    watch.clear()
    watch.has_changed("data/__transaction_state-0/0.log", [transaction(2)])
    assert struck == ["one"]


def test_plans_wait_for_every_moment_that_a_run_has() -> None:
    drawn = {fault.moment for seed in range(400) for fault in draw(seed).faults}
    assert drawn == {"", *MOMENTS} - {"Dead", "PrepareEpochFence"}
