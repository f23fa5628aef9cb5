"""PURE: checks batches from a leader before a follower appends them, and computes where a follower truncates.

The batches keep the leader's offsets, epochs and timestamps. Offsets may be missing between batches if the leader's log
was compacted. Every CRC is checked, because the follower may serve these bytes later.
"""

from semel_protocol.batch import BatchHeader, CorruptBatch, crc_of, iterate
from semel_protocol.control import read_marker

from semel_storage.disk.disk import Buffer


def checked_headers(data: Buffer) -> list[BatchHeader]:
    """The headers of all batches of `data`, in order.

    Raises CorruptBatch unless batches are complete, ascend and match their CRC, and for an unreadable control batch.
    """
    headers: list[BatchHeader] = []
    floor = covered = 0
    for header, batch in iterate(data):
        if not floor <= header.base_offset <= header.last_offset:
            raise CorruptBatch(
                f"a batch has offsets {header.base_offset} to {header.last_offset}, but {floor} or more is expected"
            )
        if crc_of(batch, header.size) != header.crc:
            raise CorruptBatch(f"the batch at offset {header.base_offset} fails its CRC; check the leader's log")
        if header.is_control:
            read_marker(batch, header)
        headers.append(header)
        floor = header.next_offset
        covered += header.size
    if covered != len(data):
        raise CorruptBatch(f"{len(data) - covered} bytes follow the last complete batch; check the leader's log")
    return headers


def truncation_offset(own_epoch: int, own_end: int, *, leader_epoch: int, leader_end: int, end_offset: int) -> int:
    """The offset to which a follower truncates its log when it diverges from the leader's (KIP-101, KIP-279).

    The leader does not have the follower's last epoch; `leader_epoch` is its largest epoch before that one and ends at
    `leader_end`. (`own_epoch`, `own_end`) is the follower's answer for `leader_epoch`
    (`EpochHistory.end_offset_for`). Below the result the logs may still diverge in epochs that the leader never had;
    then the next fetch reports a divergence again.
    """
    if own_epoch != leader_epoch and own_epoch >= 0:
        return min(own_end, end_offset)
    if own_epoch < 0:
        return min(leader_end, end_offset)
    return min(own_end, leader_end, end_offset)
