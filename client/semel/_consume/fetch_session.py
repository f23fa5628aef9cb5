"""PURE. One broker's fetch session (KIP-227), as the client keeps it: requests name changes, answers name news.

A request with epoch 0 is full and begins a session; it ends the session that it names. The next ones name only what is
new, changed or not wanted any more. The answers leave out partitions without news. A request without an answer leaves
open which changes the broker has, so the next one is full. A broker that has no room for a session answers with id 0;
brokers below Fetch v7 send no id, which is the same: each fetch is then full.

All partitions of a session are named in the same way: by topic id from Fetch v13 on (KIP-516), else by topic name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from semel_protocol.errors import ErrorCode
from semel_protocol.fields import first_version
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)

from semel._subscription.subscription import TopicIdPartition

BY_ID_FROM = first_version(FetchRequestTopic, "topic_id")
"""The version of Fetch that names topics by id."""
NO_SESSION = 0
BEGIN_EPOCH = 0
EPOCH_MAX = 2**31 - 1
SESSION_IS_GONE = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""The broker does not have the session as the client has it."""

Wanted = dict[TopicIdPartition, FetchRequestPartition]
"""The partitions to fetch, in this order. All have topic ids, or none has: the session names topics by name."""


class Ends(msgspec.Struct, frozen=True, gc=False):
    """The offsets of a partition that the broker has sent, and does not send again while they stay the same."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class FetchSession:
    """The session with one broker. For each fetch: `fill` the request, then `answered` or `refused`.

    A request that gets neither was lost; the next one begins a new session.
    """

    def __init__(self) -> None:
        self._session_id, self._epoch = NO_SESSION, BEGIN_EPOCH
        self._at_broker: Wanted = {}
        self._ends: dict[TopicIdPartition, Ends] = {}
        self._names: dict[bytes, str] = {}
        self._is_in_flight = self._is_by_id = False
        self._connection: object = None

    def fill(self, request: FetchRequest, wanted: Wanted, connection: object, *, is_by_id: bool = False) -> None:
        """Put the session and its changes into `request`. Sessions do not outlive their connection.

        `wanted` belongs to the session from now on. is_by_id: whether it has topic ids.
        """
        if self._is_in_flight or connection is not self._connection or is_by_id is not self._is_by_id:
            self._begin_again()
        self._connection, self._is_in_flight, self._is_by_id = connection, True, is_by_id
        if self._epoch == BEGIN_EPOCH:
            self._at_broker, self._ends, self._names = {}, {}, {}
        before, self._at_broker = self._at_broker, wanted
        request.session_id, request.session_epoch = self._session_id, self._epoch
        request.topics = [
            FetchRequestTopic(
                topic=topic, topic_id=topic_id, partitions=[wanted[partition] for partition in partitions]
            )
            for (topic, topic_id), partitions in _by_topic(
                each for each, row in wanted.items() if before.get(each) != row
            )
        ]
        self._names |= {row.topic_id: row.topic for row in request.topics}
        forgotten = [partition for partition in before if partition not in wanted]
        for partition in forgotten:
            self._ends.pop(partition, None)
        request.forgotten_topics_data = [
            FetchRequestForgottenTopic(
                topic=topic, topic_id=topic_id, partitions=[partition.partition for partition in partitions]
            )
            for (topic, topic_id), partitions in _by_topic(forgotten)
        ]

    def rows(self, response: FetchResponse) -> Iterator[tuple[TopicIdPartition, FetchResponsePartition]]:
        """The rows of an answer. Rows of topic ids that were not asked for are left out."""
        for topic in response.responses:
            name = self._names.get(topic.topic_id, "") if self._is_by_id else topic.topic
            for row in topic.partitions if name else ():
                yield TopicIdPartition(name, row.partition_index, topic.topic_id), row

    def answered(self, response: FetchResponse) -> None:
        """Note an answer without an error of its own. `ends` has its offsets from now on."""
        self._is_in_flight = False
        for partition, row in self.rows(response):
            if row.error_code or row.high_watermark < 0:
                self._ends.pop(partition, None)  # the broker sends the offsets again after an error
            elif partition in self._at_broker:
                self._ends[partition] = Ends(row.high_watermark, row.last_stable_offset, row.log_start_offset)
        self._session_id = response.session_id
        if self._session_id == NO_SESSION:
            self._epoch = BEGIN_EPOCH
        else:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def refused(self, code: int) -> bool:
        """Note an answer with this error of its own. True: only the session is gone; fetch again at once."""
        had_begun = self._epoch != BEGIN_EPOCH
        self._begin_again()
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION
        return had_begun and code in SESSION_IS_GONE

    def ends(self, partition: TopicIdPartition) -> Ends | None:
        """The offsets of a partition that the last fetch has asked for; None: the broker has answered with an error."""
        return self._ends.get(partition)

    def _begin_again(self) -> None:
        """The next fetch is full. It names the old session, so that the broker ends that one."""
        self._epoch, self._is_in_flight = BEGIN_EPOCH, False


def _by_topic(
    partitions: Iterable[TopicIdPartition],
) -> Iterator[tuple[tuple[str, bytes], list[TopicIdPartition]]]:
    topics: dict[tuple[str, bytes], list[TopicIdPartition]] = {}
    for partition in partitions:
        topics.setdefault((partition.topic, partition.topic_id), []).append(partition)
    return iter(topics.items())
