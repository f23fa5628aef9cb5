"""A member of the consumer protocol (KIP-848) that speaks the raw wire, with its own state: it joins, heartbeats,
revokes after a while, acknowledges, reads committed records, and commits with its member epoch.

It owns a partition from the answer that assigns it. It no longer owns it when it says so in a heartbeat, when the group
fences it, or when its session has ended by its own clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf
from typing import Any
from uuid import UUID

import msgspec
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from semel_protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from semel_protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponseGroup,
)

from sim.events import Place
from sim.workloads.base import ClientContext
from sim.workloads.committed_records import CommittedFetcher
from sim.workloads.recording_consumer import text
from sim.workloads.wires import NoAnswerError, Wires, addresses_of

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
HEARTBEAT_VERSION, COMMIT_VERSION, FETCH_OFFSETS_VERSION, DESCRIBE_VERSION = 1, 9, 9, 1
NONE_COMMITTED = -1
RETRY_S = 0.1
MARGIN_MS = 5
"""The member's session ends so much earlier by its own clock: brokers count whole milliseconds."""

FENCED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
"""Answers to a heartbeat after which a member owns nothing."""
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
PASSING = (
    *MOVED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""Answers to a heartbeat that faults explain, and after which the member tries again."""
REFUSED = (*FENCED, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_AUTHORIZATION_FAILED)
"""Answers to a commit that was not carried out, and never will be."""


class EpochMemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one member in a plan. `revoke_ms`: its slowest revocation. `watches_clock`: it gives up all
    partitions when its session ends by its own clock; else when the group says so."""

    session_timeout_ms: int
    heartbeat_ms: int
    rebalance_timeout_ms: int
    request_timeout_ms: int
    revoke_ms: int = 0
    commits_on_revocation: bool = True
    instance_id: str | None = None
    regex: str | None = None
    assignor: str | None = None
    partition_max_bytes: int = 1_048_576
    max_poll_records: int = 500
    watches_clock: bool = True
    keeps_beating: bool = True
    leaves: bool = True


class Former(msgspec.Struct, frozen=True):
    """The epoch and positions of a member before the group gave it another epoch or fenced it."""

    member_id: str
    epoch: int
    positions: dict[Place, int]


class EpochMember:
    """One member id at a time.

    `topics`: its subscription by name, changed by `subscribe`; it commits offsets of `all_topics`, and never of topics
    that are created during the run. `owned`: its partitions, with a number that is new in each ownership period.
    `revoking`: those of them to revoke, and the time at which it will have done so. `ends`: the last stable offset that
    it saw of each partition.
    """

    def __init__(
        self,
        context: ClientContext,
        name: str,
        group: str,
        all_topics: list[str],
        topics: list[str],
        given: EpochMemberSettings,
    ) -> None:
        self.group, self.topics, self.given = group, topics, given
        self.recorder = context.history.recorder(name)
        self._now_ms, self._rng = context.history.now_ms, context.edge.rng
        self._fault_free = context.fault_free
        addresses = addresses_of(context.bootstrap_servers)
        timeout_s = given.request_timeout_ms / 1000
        self._beats, self._commits, data = (Wires(addresses, timeout_s) for _ in range(3))
        self._data = data
        self.all_topics = all_topics
        self.fetcher = CommittedFetcher(data, given.partition_max_bytes)
        self._committing = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self.member_id, self.epoch = self._new_id(), JOIN
        self.owned: dict[Place, int] = {}
        self.revoking: dict[Place, float] = {}
        self.positions: dict[Place, int] = {}
        self.committed: dict[Place, int] = {}
        self.ends: dict[Place, int] = {}
        self.former: Former | None = None
        self.until_ms = inf
        self._tenures = 0
        self._said: frozenset[Place] | None = None
        """The partitions that the coordinator knows from this member; None: the next heartbeat has to be full."""
        self._unanswered_ms: float | None = None
        self._revoke_by_ms = inf

    # --- life ---

    async def start(self) -> None:
        """Learn the ids of topics, then heartbeat until `stop`."""
        self.recorder.consuming(self.group, read_committed=True, protocol="consumer")
        while not self.fetcher.counts.keys() >= {*self.all_topics}:
            try:
                await self.fetcher.look()
            except NoAnswerError:
                pass
            await asyncio.sleep(RETRY_S)
        self._beating = asyncio.get_running_loop().create_task(self._beat_on(), name="heartbeats")
        self._beating.add_done_callback(_raise_error)

    async def stop(self, epoch: int | None) -> None:
        """Give up all partitions, and report this with this epoch; None: without a report."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait((self._beating,))
        self._lose(lost=False)
        if epoch is not None and self.epoch != JOIN:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.given.instance_id
            )
            try:
                await self._beats.coordinate(self.group, request, HEARTBEAT_VERSION)
            except NoAnswerError:
                pass
        for wires in (self._beats, self._commits, self._data):
            wires.close()

    def subscribe(self, topics: list[str]) -> None:
        self.topics, self._said = topics, None

    # --- heartbeats ---

    async def _beat_on(self) -> None:
        while True:
            try:
                is_answered = await self._beat()
            except NoAnswerError:
                is_answered = False
                self._said = None
            due_s = min((at - self._now_ms() for at in self.revoking.values()), default=inf) / 1000
            pause_s = self.given.heartbeat_ms / 1000 if is_answered else RETRY_S
            await asyncio.sleep(max(0.001, min(pause_s, due_s)))

    async def _beat(self) -> bool:
        """One heartbeat. Whether it was answered without an error. Raises NoAnswerError."""
        self._check_clock()
        await self._let_go()
        self._check_clock()
        said, sent_ms, sent_epoch, asked_of = frozenset(self.owned), self._now_ms(), self.epoch, self.member_id
        had_revoked = not self.revoking
        if self._unanswered_ms is None:
            self._unanswered_ms = sent_ms
        says_all = self._said is None or sent_epoch == JOIN
        request = self._request(says_all=says_all, said=said)
        answer = await self._beats.coordinate(self.group, request, HEARTBEAT_VERSION)
        if answer.assignment is not None and not self._names_all(answer):
            await self.fetcher.look()
        if asked_of != self.member_id or sent_epoch != self.epoch:
            return False  # another member by now: its session ended by its own clock meanwhile
        code = ErrorCode(answer.error_code)
        self.recorder.beaten(
            self.group,
            asked_of,
            since_ms=sent_ms,
            sent_epoch=sent_epoch,
            epoch=answer.member_epoch,
            until_ms=self._taken(answer, sent_ms, said, had_revoked) if code is ErrorCode.NONE else -inf,
            error="" if code is ErrorCode.NONE else code.name,
        )
        if code is not ErrorCode.NONE:
            self._not_taken(code)
            return False
        if answer.assignment is not None or answer.member_epoch != sent_epoch:
            self._assign(answer)
        if answer.assignment is not None and not self._names_all(answer):
            self._said = None  # a topic that no broker names yet, or that is deleted: ask for the assignment again
        return True

    def _request(self, *, says_all: bool, said: frozenset[Place]) -> ConsumerGroupHeartbeatRequest:
        given = self.given
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, instance_id=given.instance_id
        )
        if says_all:
            request.rebalance_timeout_ms = given.rebalance_timeout_ms
            request.subscribed_topic_names = [] if given.regex else list(self.topics)
            request.subscribed_topic_regex = given.regex
            request.server_assignor = given.assignor
        if says_all or said != self._said:
            rows: dict[bytes, list[int]] = {}
            ids = {name: topic_id for topic_id, name in self.fetcher.ids.items()}
            for topic, index in sorted(said):
                rows.setdefault(ids[topic], []).append(index)
            row = ConsumerGroupHeartbeatRequestTopicPartitions
            request.topic_partitions = [row(topic_id=each, partitions=found) for each, found in rows.items()]
        return request

    def _taken(
        self, answer: ConsumerGroupHeartbeatResponse, sent_ms: float, said: frozenset[Place], had_revoked: bool
    ) -> float:
        """The member is in the group: the time until which that is certain by its own clock."""
        since_ms = sent_ms if self._unanswered_ms is None else self._unanswered_ms
        self._unanswered_ms, self._said = None, said
        if had_revoked:
            self._revoke_by_ms = inf
        if answer.assignment is not None and self.owned.keys() - self._places(answer):
            self._revoke_by_ms = min(self._revoke_by_ms, since_ms + self.given.rebalance_timeout_ms - MARGIN_MS)
        self.until_ms = min(sent_ms + self.given.session_timeout_ms - MARGIN_MS, self._revoke_by_ms)
        return self.until_ms

    def _not_taken(self, code: ErrorCode) -> None:
        self._said = None
        if code in FENCED:
            self._remember()
            self._lose(lost=True)
            self.epoch, self.until_ms = JOIN, inf
        else:
            assert code in PASSING, f"a heartbeat was answered with {code.name}"
            if code in MOVED:
                self._beats.look_again()

    def _names_all(self, answer: ConsumerGroupHeartbeatResponse) -> bool:
        """Whether the names of all assigned topics are known."""
        return answer.assignment is None or all(
            row.topic_id in self.fetcher.ids for row in answer.assignment.topic_partitions
        )

    def _places(self, answer: ConsumerGroupHeartbeatResponse) -> set[Place]:
        """The assigned partitions, as far as the names of their topics are known."""
        assert answer.assignment is not None
        return {
            (self.fetcher.ids[row.topic_id], index)
            for row in answer.assignment.topic_partitions
            for index in row.partitions
            if row.topic_id in self.fetcher.ids
        }

    def _assign(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.member_epoch != self.epoch:
            self._remember()
        self.epoch = answer.member_epoch
        new: list[Place] = []
        if answer.assignment is not None:
            assigned = self._places(answer)
            for place in sorted(assigned - self.owned.keys()):
                self._tenures += 1
                self.owned[place] = self._tenures
                new.append(place)
            for place in assigned & self.revoking.keys():
                del self.revoking[place]
            for place in sorted(self.owned.keys() - assigned - self.revoking.keys()):
                self.revoking[place] = self._now_ms() + self._rng.random() ** 2 * self._slowest_revocation_ms()
        self.recorder.assigned(new, self.epoch, member_id=self.member_id)

    def _slowest_revocation_ms(self) -> float:
        """After the faults no member may be so slow that the group removes it: the group has to settle."""
        slowest_ms = self.given.revoke_ms
        return min(slowest_ms, self.given.rebalance_timeout_ms / 2) if self._fault_free.has_begun else slowest_ms

    async def _let_go(self) -> None:
        """Revoke the partitions that are due. The next heartbeat reports this."""
        due = [place for place, at_ms in self.revoking.items() if at_ms <= self._now_ms()]
        if not due:
            return
        if self.given.commits_on_revocation:
            try:
                await self.commit(due)
            except NoAnswerError:
                pass
        await self._committing.acquire()  # a commit under way is over: the group refuses it from now on
        self._committing.release()
        due = [place for place in due if place in self.revoking]
        self.recorder.revoked(due)
        for place in due:
            self._forget(place)

    def _check_clock(self) -> None:
        """The session may have ended by the member's own clock: then it is another member from now on."""
        if self.given.watches_clock and self._now_ms() >= self.until_ms:
            self._remember()
            self._lose(lost=True)
            self.member_id, self.epoch, self.until_ms, self._said = self._new_id(), JOIN, inf, None

    def _remember(self) -> None:
        positions = {place: at for place, at in self.positions.items() if place[0] in self.all_topics}
        if self.epoch > JOIN and positions:
            self.former = Former(self.member_id, self.epoch, positions)

    def _lose(self, *, lost: bool) -> None:
        if self.owned:
            self.recorder.revoked(list(self.owned), lost=lost)
        for place in list(self.owned):
            self._forget(place)
        self._unanswered_ms, self._revoke_by_ms = None, inf

    def _forget(self, place: Place) -> None:
        for table in (self.owned, self.revoking, self.positions, self.committed, self.ends):
            table.pop(place, None)

    def _new_id(self) -> str:
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    # --- records and offsets ---

    async def drain(self) -> None:
        """Poll until nothing more comes. Raises NoAnswerError."""
        before: dict[Place, int] | None = None
        while before != self.positions:
            before = dict(self.positions)
            await self.poll()

    async def poll(self) -> None:
        """Read more of all partitions that are not being revoked. Raises NoAnswerError."""
        self._check_clock()
        await self._find_positions()
        tenures = {place: self.owned[place] for place in self.owned if place in self.positions}
        asked = {place: self.positions[place] for place in tenures if place not in self.revoking}
        if not asked:
            return
        for place, fetched in (await self.fetcher.fetch(asked)).items():
            self._check_clock()
            if self.owned.get(place) != tenures[place] or place in self.revoking:
                continue
            self.ends[place] = fetched.last_stable_offset
            records = fetched.records[: self.given.max_poll_records]
            is_all = len(records) == len(fetched.records)
            self.positions[place] = fetched.next_offset if is_all else records[-1].offset + 1
            if records:
                self.recorder.polled(
                    place,
                    [record.offset for record in records],
                    [text(record.value) for record in records],
                    [text(record.key) for record in records],
                )

    async def _find_positions(self) -> None:
        places = [place for place in self.owned if place not in self.positions and place not in self.revoking]
        tenures = dict(self.owned)
        found = await self._fetch_offsets(places)
        for place, offset in found.items():
            if self.owned.get(place) == tenures[place] and place not in self.positions:
                self.positions[place] = max(offset, 0)
                self.committed[place] = offset

    async def look(self) -> None:
        """Record the group's committed offsets of all partitions of the member. Raises NoAnswerError."""
        since_ms = self._now_ms()
        found = await self._fetch_offsets(list(self.owned))
        if found:
            offsets = {place: None if offset == NONE_COMMITTED else offset for place, offset in found.items()}
            self.recorder.offsets_seen(self.group, offsets, since_ms=since_ms)

    async def _fetch_offsets(self, places: list[Place]) -> dict[Place, int]:
        if not places or self.epoch <= JOIN:
            return {}
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in _by_topic(places).items()
        ]
        row = OffsetFetchRequestGroup(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, topics=topics
        )
        request = OffsetFetchRequest(groups=[row], require_stable=True)
        async with self._committing:
            answer = (await self._commits.coordinate(self.group, request, FETCH_OFFSETS_VERSION)).groups[0]
        if answer.error_code:
            if answer.error_code in MOVED:
                self._commits.look_again()
            return {}
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in answer.topics
            for each in topic.partitions
            if not each.error_code
        }

    async def commit(self, places: Iterable[Place] | None = None) -> None:
        """Commit the positions of these partitions, or of all. Raises NoAnswerError."""
        self._check_clock()
        async with self._committing:
            wanted = list(self.owned) if places is None else list(places)
            offsets = {
                place: self.positions[place]
                for place in wanted
                if place in self.positions and place[0] in self.all_topics
            }
            tenures = {place: self.owned[place] for place in offsets}
            if offsets and self.epoch > JOIN and await self._commit(self.member_id, self.epoch, offsets):
                for place, tenure in tenures.items():
                    if self.owned.get(place) == tenure:
                        self.committed[place] = offsets[place]

    async def commit_as_before(self) -> None:
        """Commit again with the former identity of this member. The group must refuse it. Raises NoAnswerError."""
        if self.former is not None:
            former, self.former = self.former, None
            async with self._committing:
                await self._commit(former.member_id, former.epoch, former.positions)

    async def _commit(self, member_id: str, epoch: int, offsets: dict[Place, int]) -> bool:
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), offset in offsets.items():
            row = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            by_topic.setdefault(topic, []).append(row)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=self.given.instance_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=rows) for topic, rows in by_topic.items()],
        )
        op = self.recorder.committing_offsets(self.group, offsets, member_id=member_id, epoch=epoch)
        answer = await self._commits.coordinate(self.group, request, COMMIT_VERSION)
        codes = {row.error_code for topic in answer.topics for row in topic.partitions}
        if codes == {0}:
            self.recorder.offsets_committed(op)
            return True
        if all(code in REFUSED for code in codes):
            self.recorder.offsets_refused(op)
        if codes & {*MOVED}:
            self._commits.look_again()
        return False

    # --- the group ---

    async def describe(self) -> ConsumerGroupDescribeResponseGroup:
        """Raise NoAnswerError."""
        request = ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=False)
        answer: Any = await self._commits.coordinate(self.group, request, DESCRIBE_VERSION)
        if answer.groups[0].error_code in MOVED:
            self._commits.look_again()
        found: ConsumerGroupDescribeResponseGroup = answer.groups[0]
        return found


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        found.setdefault(topic, []).append(index)
    return found


def _raise_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error  # fails the run
