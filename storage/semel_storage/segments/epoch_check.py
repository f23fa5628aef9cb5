"""Checks the leader epoch history of a log against its batches when the log opens.

The file of the history has no checksum (Kafka's format), and followers truncate their logs by the history of the
leader. Each batch header has the epoch of its append. If a batch at a boundary of the history contradicts it, the
history is rebuilt from all batches.
"""

from semel_protocol.batch import BatchHeader

from semel_storage.disk.disk import EventCallback
from semel_storage.segments.epochs import EpochHistory
from semel_storage.segments.segment import CorruptLog, Segment


def checked(
    epochs: EpochHistory, segments: list[Segment], start_offset: int, path: str, event: EventCallback
) -> EpochHistory:
    """`epochs` if the batches of a log that begins at `start_offset` agree, otherwise the history of the batches.

    `path`: of the history file, for the log line. An unreadable batch leaves the history unchanged.
    """
    try:
        places = [start_offset, *(start for _, start in epochs.entries), segments[-1].next_offset]
        if all(_agrees(epochs, segments, place, start_offset) for place in dict.fromkeys(places)):
            return epochs
        rebuilt = EpochHistory()
        for segment in segments:
            for _, header, _ in segment.scan():
                rebuilt.assign(header.partition_leader_epoch, header.base_offset)
    except CorruptLog:
        return epochs
    rebuilt.truncate_from_start(start_offset)
    if rebuilt.entries != epochs.entries:
        event("log_damaged", file=path, position=0, reason="it contradicts the batches; rebuilt from them")
        rebuilt.is_dirty = True
    return rebuilt


def _agrees(epochs: EpochHistory, segments: list[Segment], offset: int, start_offset: int) -> bool:
    """Whether the batches on both sides of `offset` have the epochs of the history."""
    number = next((n for n in reversed(range(len(segments))) if segments[n].base_offset <= offset), 0)
    segment = segments[number]
    position = segment.position_of(offset)
    found = [_first(segment, position) or next(filter(None, (_first(s, 0) for s in segments[number + 1 :])), None)]
    for earlier in reversed(segments[: number + 1]):
        before = _last(earlier, position if earlier is segment else earlier.size, offset)
        if before is not None:
            found.append(before)
            break
    known = [header for header in found if header is not None and header.next_offset > start_offset]
    return all(
        epochs.epoch_of(max(header.base_offset, start_offset)) == header.partition_leader_epoch
        for header in known
        if header.partition_leader_epoch >= 0
    )


def _first(segment: Segment, position: int) -> BatchHeader | None:
    found = next(segment.scan(position), None)
    return None if found is None else found[1]


def _last(segment: Segment, until: int, offset: int) -> BatchHeader | None:
    """The last batch before the position `until`, which is the position of `offset`."""
    begin = segment.start_for(offset - 1)
    last = None
    for _, header, _ in segment.scan(begin if begin < until else 0, until):
        last = header
    return last
