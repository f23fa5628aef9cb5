"""PURE: the fetch sessions of a broker (KIP-227): what a client fetches is known here, and only changes are sent.

A session belongs to a principal. Its epoch counts the fetches, so that a lost answer is noticed: the client then begins
anew. Sessions are bounded by their number and by the number of their partitions. A session that was not used for two
minutes makes room for a new one; if there is none, the client gets no session and goes on with full fetches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from random import Random

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k01_fetch import (
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
    FetchResponseTopic,
)

NO_SESSION = 0
FIRST_EPOCH = 1
EPOCH_MAX = 2**31 - 1
EVICTED_AFTER_S = 120.0


class SessionPartition(msgspec.Struct, gc=False):
    """A partition of a session: what is fetched from it, and what the client knows of it."""

    wanted: FetchRequestPartition
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1

    def is_news(self, row: FetchResponsePartition) -> bool:
        """Whether the client must get this row; then it knows it."""
        known = (row.high_watermark, row.last_stable_offset, row.log_start_offset)
        has_changed = known != (self.high_watermark, self.last_stable_offset, self.log_start_offset)
        self.high_watermark, self.last_stable_offset, self.log_start_offset = known
        is_decided = row.error_code or row.preferred_read_replica >= 0 or row.diverging_epoch.end_offset >= 0
        return bool(has_changed or is_decided or row.records)


class FetchSession:
    """One session. `epoch`: that of the next fetch. `has_ids`: its topics are named by id (KIP-516, Fetch v13)."""

    def __init__(self, session_id: int, owner: str, used_at: float, *, has_ids: bool = False) -> None:
        self.session_id, self.owner, self.used_at, self.has_ids = session_id, owner, used_at, has_ids
        self.epoch = FIRST_EPOCH
        self.count = 0
        self._partitions: dict[str | bytes, dict[int, SessionPartition]] = {}
        self._topics: list[FetchRequestTopic] | None = None

    def update(self, topics: Iterable[FetchRequestTopic], forgotten: Iterable[FetchRequestForgottenTopic] = ()) -> None:
        """Add or change partitions, and remove forgotten ones."""
        for topic in topics:
            known = self._partitions.setdefault(self._key(topic), {})
            for row in topic.partitions:
                self._topics = None
                if (there := known.get(row.partition)) is not None:
                    there.wanted = row
                else:
                    known[row.partition] = SessionPartition(row)
                    self.count += 1
        for gone in forgotten:
            known = self._partitions.get(key := self._key(gone), {})
            for index in gone.partitions:
                if known.pop(index, None) is not None:
                    self._topics = None
                    self.count -= 1
            if not known:
                self._partitions.pop(key, None)

    def topics(self) -> list[FetchRequestTopic]:
        """All partitions, as a full fetch asks for them."""
        if self._topics is None:
            self._topics = [
                self._topic(key, [each.wanted for each in known.values()])
                for key, known in self._partitions.items()
                if known
            ]
        return list(self._topics)

    def news(self, topic: FetchResponseTopic) -> FetchResponseTopic | None:
        """The rows of a topic that the client does not know yet; None: there are none."""
        known = self._partitions.get(self._key(topic), {})
        rows = [
            row for row in topic.partitions if (there := known.get(row.partition_index)) is None or there.is_news(row)
        ]
        if not rows:
            return None
        return FetchResponseTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=rows)

    def _key(self, topic: FetchRequestTopic | FetchRequestForgottenTopic | FetchResponseTopic) -> str | bytes:
        return topic.topic_id if self.has_ids else topic.topic

    def _topic(self, key: str | bytes, rows: list[FetchRequestPartition]) -> FetchRequestTopic:
        if isinstance(key, bytes):
            return FetchRequestTopic(topic_id=key, partitions=rows)
        return FetchRequestTopic(topic=key, partitions=rows)


class FetchSessions:
    """The sessions of a broker. `clock`: seconds of the event loop."""

    def __init__(self, slots_max: int, partitions_max: int, rng: Random, clock: Callable[[], float]) -> None:
        self._slots_max, self._partitions_max = slots_max, partitions_max
        self._rng, self._clock = rng, clock
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the least recently used one first
        self.partition_count = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, owner: str, topics: Iterable[FetchRequestTopic], *, has_ids: bool = False) -> FetchSession | None:
        """A session with these partitions; None: there is no room."""
        now = self._clock()
        session = FetchSession(NO_SESSION, owner, now, has_ids=has_ids)
        session.update(topics)
        while len(self._sessions) >= self._slots_max or self.partition_count + session.count > self._partitions_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used_at < EVICTED_AFTER_S:
                return None
            self.remove(oldest.session_id, oldest.owner)
            self.evicted += 1
        while session.session_id == NO_SESSION or session.session_id in self._sessions:
            session.session_id = self._rng.randrange(1, EPOCH_MAX)
        self._sessions[session.session_id] = session
        self.partition_count += session.count
        return session

    def used(
        self,
        session_id: int,
        epoch: int,
        owner: str,
        topics: Iterable[FetchRequestTopic],
        forgotten: Iterable[FetchRequestForgottenTopic],
        *,
        has_ids: bool = False,
    ) -> FetchSession:
        """The session of an incremental fetch, with the changes that it brings.

        Raises FETCH_SESSION_ID_NOT_FOUND, also for a session of another principal, INVALID_FETCH_SESSION_EPOCH, and
        FETCH_SESSION_TOPIC_ID_ERROR if the client has changed between names and ids of topics.
        """
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id} expects epoch {session.epoch}, and the fetch has {epoch}",
            )
        if has_ids != session.has_ids:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session_id} was begun with {'ids' if session.has_ids else 'names'} of topics: "
                "begin a new one",
            )
        before = session.count
        session.update(topics, forgotten)
        self.partition_count += session.count - before
        session.epoch = FIRST_EPOCH if epoch == EPOCH_MAX else epoch + 1
        session.used_at = self._clock()
        self._sessions.move_to_end(session_id)
        return session

    def remove(self, session_id: int, owner: str) -> None:
        """End a session, if it is this principal's."""
        session = self._sessions.get(session_id)
        if session is not None and session.owner == owner:
            del self._sessions[session_id]
            self.partition_count -= session.count
