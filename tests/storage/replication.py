"""Replicates one log to another as brokers do, without brokers."""

from msgspec.structs import replace
from semel_storage.log.log import Log
from semel_storage.log.replicated import truncation_offset
from semel_storage.log.snapshot import decode, encode
from semel_storage.producers.transactions import AbortedTransaction
from semel_storage.segments.epochs import EpochHistory
from storage.batches import NOW_MS

ROUNDS_MAX = 200


def divergence(leader: Log, epoch: int, offset: int) -> tuple[int, int] | None:
    """The leader's diverging epoch (epoch, end) for a follower that ends at `offset` with this epoch; None if equal."""
    found, end = leader.epochs.end_offset_for(epoch, leader.end_offset)
    return (found, end) if epoch >= 0 and (found < epoch or end < offset) else None


def step(leader: Log, follower: Log, *, bytes_max: int = 1 << 20, now_ms: int = NOW_MS) -> bool:
    """One fetch of the follower; False if the follower has everything."""
    offset = follower.end_offset
    if offset < leader.start_offset:
        follower.restart_at(leader.start_offset, decode(leader.producer_snapshot()))
        return True
    found = divergence(leader, follower.epochs.latest, offset)
    if found is not None:
        epoch, end = found
        own_epoch, own_end = follower.epochs.end_offset_for(epoch, offset)
        follower.truncate_to(
            truncation_offset(own_epoch, own_end, leader_epoch=epoch, leader_end=end, end_offset=offset)
        )
        return True
    data = leader.read(offset, up_to=leader.end_offset, bytes_max=bytes_max)
    if (begins_at := follower.begins_inside(data)) is not None:
        follower.restart_at(begins_at, follower.producers.all())
    follower.append_replicated(data, now_ms=now_ms)
    if follower.start_offset < leader.start_offset:
        follower.delete_records_before(leader.start_offset)
    return bool(data)


def replicate(leader: Log, follower: Log, *, bytes_max: int = 1 << 20) -> None:
    """Fetch until the follower has everything."""
    for _ in range(ROUNDS_MAX):
        if not step(leader, follower, bytes_max=bytes_max):
            return
    raise AssertionError(f"no end to it: leader {leader.epochs.entries}, follower {follower.epochs.entries}")


def content(
    log: Log, start: int | None = None
) -> tuple[bytes, list[tuple[int, int]], bytes, list[int], list[AbortedTransaction]]:
    """The state from `start` on that must be equal in two replicas, whose start offsets may differ.

    Stored bytes, epochs, producers (without the last append time of the broker's clock), open and aborted
    transactions. An epoch without records, which a new leader has, is left out.
    """
    start = log.start_offset if start is None else start
    epochs = EpochHistory(log.epochs.entries)
    epochs.truncate_from_start(start)
    data, offset = b"", start
    while offset < log.end_offset:
        chunk, offset = log.segments.read(offset, up_to=log.end_offset, bytes_max=1 << 20, at_least_one=True)
        data += chunk
    log.producers.transactions.first_unstable_offset(log.end_offset)  # all is committed: only what is open stays
    return (
        data,
        [(epoch, since) for epoch, since in epochs.entries if since < log.end_offset],
        encode([replace(state, last_append_ms=0) for state in log.producers.all()], offset=log.end_offset),
        log.producers.transactions.unstable_offsets,
        log.aborted_transactions(start, log.end_offset),
    )
