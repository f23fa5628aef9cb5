"""A partition that this broker follows: its state in the fetch session, and how a response changes its log."""

from __future__ import annotations

from enum import Enum
from typing import Final

from semel_protocol.backoff import Backoff
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k01_fetch import FetchRequestPartition, FetchResponsePartition
from semel_storage.log import snapshot
from semel_storage.log.replicated import truncation_offset
from semel_storage.log.snapshot import CorruptSnapshot

from semel_broker.partitions.partition import Partition, Role
from semel_broker.replication.peers import RETRY_MS_MAX, RETRY_MS_MIN
from semel_broker.world import World


class FollowedState(Enum):
    """DUE: the next fetch names it. NAMED: it is in the leader's session. RESTING: paused after an error or by a
    throttle."""

    DUE = "due"
    NAMED = "named"
    RESTING = "resting"


class ResponseEffect(Enum):
    """The effect of a response."""

    NOTHING = "nothing"
    """The log did not change."""
    MOVED = "moved"
    """Records were appended or removed: the next fetch tells the leader, once they are durable."""
    FAILED = "failed"
    """The partition pauses."""


class ErrorReaction(Enum):
    """The reaction of a follower to an error code."""

    BEGIN_ANEW = "begin anew at the leader's start"
    ASK_AGAIN = "ask again soon: leader or follower has not applied the latest state yet"
    COMPLAIN = "ask again later, and log an error"


VERDICTS: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: ErrorReaction.BEGIN_ANEW,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorReaction.ASK_AGAIN,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorReaction.ASK_AGAIN,
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorReaction.ASK_AGAIN,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorReaction.ASK_AGAIN,
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorReaction.ASK_AGAIN,
    ErrorCode.REPLICA_NOT_AVAILABLE: ErrorReaction.ASK_AGAIN,
}
"""All others: COMPLAIN."""

UNKNOWN: Final = -1


class Followed:
    """A followed partition. `epoch` and `offset`: of its last fetch; only a response to that fetch is applied."""

    def __init__(self, partition: Partition, world: World) -> None:
        self.partition = partition
        self.state = FollowedState.DUE
        self.rests_until = 0.0
        self.epoch = UNKNOWN
        self.offset = UNKNOWN
        self._world = world
        self._backoff = Backoff(world.rng, RETRY_MS_MIN, RETRY_MS_MAX)
        self._complaint = ""

    def wanted(self, bytes_max: int) -> FetchRequestPartition:
        """The row of the next request. All records below its offset are durable here."""
        partition = self.partition
        self.state = FollowedState.NAMED
        self.epoch, self.offset = partition.leader_epoch, partition.fetch_offset
        assert self.offset == partition.end_offset, (partition.topic, partition.index, self.offset)
        return FetchRequestPartition(
            partition=partition.index,
            current_leader_epoch=self.epoch,
            fetch_offset=self.offset,
            last_fetched_epoch=partition.log.epochs.latest if partition.is_open else UNKNOWN,
            log_start_offset=partition.log_start_offset,
            partition_max_bytes=bytes_max,
        )

    def rest(self, seconds: float) -> None:
        self.state = FollowedState.RESTING
        self.rests_until = self._world.monotonic() + seconds

    @property
    def is_expecting(self) -> bool:
        """Whether role, epoch and end offset are those of the request: a response of an old epoch must not count."""
        partition = self.partition
        return (
            self.state is FollowedState.NAMED
            and partition.role is Role.FOLLOWER
            and not partition.is_retired
            and partition.leader_epoch == self.epoch
            and partition.end_offset == self.offset
        )

    def take(self, answer: FetchResponsePartition) -> ResponseEffect:
        """Apply a response. The caller has checked `is_expecting`."""
        if answer.error_code:
            return self._refused(ErrorCode(answer.error_code), answer)
        if answer.diverging_epoch.end_offset >= 0:
            return self._diverged(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
        partition = self.partition
        if not answer.records:
            partition.note_leader(answer.high_watermark, answer.log_start_offset)
            return ResponseEffect.NOTHING
        try:
            partition.check_room()
        except KafkaError:  # the event disk_nearly_full says it; the leader takes this replica out of the ISR
            partition.note_leader(partition.high_watermark, min(answer.log_start_offset, partition.end_offset))
            self.rest(self._backoff.next_ms() / 1000)
            return ResponseEffect.FAILED
        try:
            partition.append_replicated(
                answer.records,
                leader_epoch=self.epoch,
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
            )
        except KafkaError as error:
            return self._complain(error.code, error.message)
        self._backoff.reset()
        self._complaint = ""
        self.state = FollowedState.DUE
        return ResponseEffect.MOVED

    def _diverged(self, epoch: int, end_offset: int) -> ResponseEffect:
        """Truncate: the log differs from the leader's from the end of `epoch` there, or earlier."""
        partition = self.partition
        own_epoch, own_end = partition.log.epochs.end_offset_for(epoch, partition.end_offset)
        offset = truncation_offset(
            own_epoch, own_end, leader_epoch=epoch, leader_end=end_offset, end_offset=partition.end_offset
        )
        assert offset <= partition.end_offset, "a truncation does not lengthen a log"
        self._world.log.info(
            "log_truncated",
            topic=partition.topic,
            partition=partition.index,
            leader=partition.leader,
            leader_epoch=self.epoch,
            end_offset=partition.end_offset,
            high_watermark=partition.high_watermark,
            offset=offset,
        )
        partition.truncate_to(offset)
        self.state = FollowedState.DUE
        return ResponseEffect.MOVED

    def _refused(self, code: ErrorCode, answer: FetchResponsePartition) -> ResponseEffect:
        verdict = VERDICTS.get(code, ErrorReaction.COMPLAIN)
        if verdict is ErrorReaction.BEGIN_ANEW and answer.log_start_offset >= self.offset:
            return self._begin_anew(answer)
        if verdict is ErrorReaction.ASK_AGAIN:
            self.rest(self._backoff.next_ms() / 1000)
            return ResponseEffect.FAILED
        return self._complain(code, f"the leader refuses the fetch with {code.name}")

    def _begin_anew(self, answer: FetchResponsePartition) -> ResponseEffect:
        """Restart the log at the leader's start. Retention there has deleted the records that come next; or all those
        that are here, and the leader cannot tell whether they were the same.

        The leader names the producers as of there. Without them, the retry of a deleted record would be stored a second
        time when this broker leads. A log that ends there and has the same producers stays: an election asks this of
        all idle partitions whose records are deleted, and a restart costs several syncs.
        """
        partition, offset = self.partition, answer.log_start_offset
        try:
            producers = snapshot.decode(answer.producer_snapshot) if answer.producer_snapshot else []
        except CorruptSnapshot as error:
            return self._complain(ErrorCode.CORRUPT_MESSAGE, f"the producers at the leader's log start: {error}")
        self.state = FollowedState.DUE
        if offset == partition.end_offset and partition.log.has_producers(producers):
            partition.note_leader(answer.high_watermark, offset)
            partition.truncate_to(offset)  # forgets the epochs, so that the next fetch names none and is not refused
            return ResponseEffect.MOVED
        self._world.log.warning(
            "log_begun_anew",
            topic=partition.topic,
            partition=partition.index,
            leader=partition.leader,
            end_offset=partition.end_offset,
            offset=offset,
            producers=len(producers),
        )
        partition.restart_at(offset, producers)
        return ResponseEffect.MOVED

    def _complain(self, code: int, reason: str) -> ResponseEffect:
        partition = self.partition
        if reason != self._complaint:  # logged once for all retries
            self._complaint = reason
            self._world.log.error(
                "replica_not_followed",
                topic=partition.topic,
                partition=partition.index,
                leader=partition.leader,
                code=int(code),
                reason=reason,
            )
        self.rest(self._backoff.next_ms() / 1000)
        return ResponseEffect.FAILED
