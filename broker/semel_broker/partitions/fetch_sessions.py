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
        return bool(has_changed or row.error_code or row.records or row.preferred_read_replica >= 0)


class FetchSession:
    """One session. `epoch`: that of the next fetch."""

    def __init__(self, session_id: int, owner: str, used_at: float) -> None:
        self.session_id, self.owner, self.used_at = session_id, owner, used_at
        self.epoch = FIRST_EPOCH
        self.count = 0
        self._partitions: dict[str, dict[int, SessionPartition]] = {}
        self._topics: list[FetchRequestTopic] | None = None

    def update(self, topics: Iterable[FetchRequestTopic], forgotten: Iterable[FetchRequestForgottenTopic] = ()) -> None:
        """Add or change partitions, and remove forgotten ones."""
        for topic in topics:
            known = self._partitions.setdefault(topic.topic, {})
            for row in topic.partitions:
                self._topics = None
                if (there := known.get(row.partition)) is not None:
                    there.wanted = row
                else:
                    known[row.partition] = SessionPartition(row)
                    self.count += 1
        for gone in forgotten:
            known = self._partitions.get(gone.topic, {})
            for index in gone.partitions:
                if known.pop(index, None) is not None:
                    self._topics = None
                    self.count -= 1
            if not known:
                self._partitions.pop(gone.topic, None)

    def topics(self) -> list[FetchRequestTopic]:
        """All partitions, as a full fetch asks for them."""
        if self._topics is None:
            self._topics = [
                FetchRequestTopic(topic=name, partitions=[each.wanted for each in known.values()])
                for name, known in self._partitions.items()
                if known
            ]
        return list(self._topics)

    def news(self, topic: FetchResponseTopic) -> FetchResponseTopic | None:
        """The rows of a topic that the client does not know yet; None: there are none."""
        known = self._partitions.get(topic.topic, {})
        rows = [
            row for row in topic.partitions if (there := known.get(row.partition_index)) is None or there.is_news(row)
        ]
        return FetchResponseTopic(topic=topic.topic, partitions=rows) if rows else None


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

    def create(self, owner: str, topics: Iterable[FetchRequestTopic]) -> FetchSession | None:
        """A session with these partitions; None: there is no room."""
        now = self._clock()
        session = FetchSession(NO_SESSION, owner, now)
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
    ) -> FetchSession:
        """The session of an incremental fetch, with the changes that it brings.

        Raises FETCH_SESSION_ID_NOT_FOUND, also for a session of another principal, and INVALID_FETCH_SESSION_EPOCH.
        """
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id} expects epoch {session.epoch}, and the fetch has {epoch}",
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
