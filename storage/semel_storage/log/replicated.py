"""PURE: batches as another broker stores them, looked at before a follower's log takes them over.

Their offsets, leader epochs and timestamps stand; between batches offsets may be missing, where the leader's log was
compacted. What a follower appends it will pass on one day, so every checksum is looked at here.
"""

from semel_protocol.batch import BatchHeader, CorruptBatch, crc_of, iterate
from semel_protocol.control import read_marker

from semel_storage.disk.disk import Buffer


def checked_headers(data: Buffer) -> list[BatchHeader]:
    """The headers of the batches that make up all of `data`, in order; ascending, whole, and as checksummed.

    Raises CorruptBatch otherwise, and for a control batch that cannot be read.
    """
    headers: list[BatchHeader] = []
    floor = covered = 0
    for header, batch in iterate(data):
        if not floor <= header.base_offset <= header.last_offset:
            raise CorruptBatch(
                f"a batch of offsets {header.base_offset} to {header.last_offset} came where {floor} or more was due"
            )
        if crc_of(batch, header.size) != header.crc:
            raise CorruptBatch(f"the batch at offset {header.base_offset} fails its CRC; look at the leader's log")
        if header.is_control:
            read_marker(batch, header)
        headers.append(header)
        floor = header.next_offset
        covered += header.size
    if covered != len(data):
        raise CorruptBatch(f"{len(data) - covered} bytes behind the last whole batch; look at the leader's log")
    return headers


def truncation_offset(own_epoch: int, own_end: int, *, leader_epoch: int, leader_end: int, end_offset: int) -> int:
    """Where a follower has to cut its log, told that it diverges from its leader's (KIP-101, KIP-279).

    The leader knows nothing of the follower's last epoch; the largest one before it that the leader has is
    `leader_epoch`, and ends at `leader_end` there. (`own_epoch`, `own_end`): what the follower's history says of the
    same epoch (`EpochHistory.end_offset_for`). Below the answer both may still differ, as epochs that the leader never
    had may lie there; then the next fetch says so.
    """
    if own_epoch != leader_epoch and own_epoch >= 0:
        return min(own_end, end_offset)
    if own_epoch < 0:
        return min(leader_end, end_offset)
    return min(own_end, leader_end, end_offset)
