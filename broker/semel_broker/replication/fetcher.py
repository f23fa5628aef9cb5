"""Fetches from one other broker for all partitions that it leads and this broker follows, in one fetch session.

A round: name the partitions that are due, wait for the response, append the records, sync them (all partitions of a
response share the sync), and start the next round, which names the new offsets. Unchanged partitions are in neither
request nor response (KIP-227); the leader knows them from the session.
"""

from __future__ import annotations

from asyncio import Event, Task, TimerHandle, get_running_loop, timeout, wait
from base64 import urlsafe_b64decode
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from semel_protocol.api_key import ApiKey
from semel_protocol.backoff import Backoff
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestReplicaState,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from semel_protocol.messages.k23_offset_for_leader_epoch import OffsetForLeaderEpochRequest

from semel_broker.cluster.registration import Registration
from semel_broker.config.loading import BrokerConfig
from semel_broker.partitions.partition import Partition
from semel_broker.replication.followed import Followed, FollowedState, ResponseEffect
from semel_broker.replication.peers import RETRY_MS_MAX, RETRY_MS_MIN, Peers
from semel_broker.replication.sessions import SESSION_EPOCH_MAX, START_SESSION_EPOCH, Place
from semel_broker.replication.throttle import WAIT_S_MAX, FollowerThrottle
from semel_broker.world import World

FETCH_VERSION = 15
OFFSET_FOR_LEADER_EPOCH_VERSION = 4
NO_SESSION: Final = 0
REQUEST_TIMEOUT_MS: Final = 10_000
"""The time that another broker has for a response, besides the time that the request lets it wait."""
SHARE_S_MIN: Final = 0.05
"""A throttled replica pauses at least this long."""


class Fetcher:
    """Fetches from one broker, in one task from `start` to `close`. There is one fetcher per leader."""

    def __init__(
        self,
        source: int,
        *,
        world: World,
        config: BrokerConfig,
        peers: Peers,
        registration: Registration,
        throttle: FollowerThrottle,
        is_in_sync: Callable[[Partition], bool],
    ) -> None:
        self.source = source
        self._world = world
        self._config = config
        self._peers = peers
        self._registration = registration
        self._throttle = throttle
        self._is_in_sync = is_in_sync
        self._rows: dict[Place, Followed] = {}
        self._due: dict[Place, None] = {}
        self._resting: dict[Place, None] = {}
        self._in_session: dict[Place, None] = {}  # the partitions in the leader's session
        self._forgotten: dict[Place, None] = {}  # those of them to remove from it
        self._session_id = NO_SESSION
        self._session_epoch = START_SESSION_EPOCH
        self._backoff = Backoff(world.rng, RETRY_MS_MIN, RETRY_MS_MAX)
        self._has_work = Event()
        self._is_failing = False
        self._is_asking = False
        self._has_ended_wait = False
        self._ending_wait: Task[None] | None = None
        self._alarm: TimerHandle | None = None
        self._task: Task[None] | None = None

    # --- followed partitions ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = get_running_loop().create_task(self._run(), name=f"fetch from broker {self.source}")

    @property
    def partitions(self) -> list[Partition]:
        """In the order in which they were added."""
        return [row.partition for row in self._rows.values()]

    def add(self, partition: Partition) -> None:
        """Fetch this partition from the source, from its end offset on."""
        place = place_of(partition)
        self._rows[place] = Followed(partition, self._world)
        self._fall_due(place)

    def remove(self, partition: Partition) -> None:
        """Stop fetching this partition. A response that is still to come is ignored for it."""
        place = place_of(partition)
        if self._rows.pop(place, None) is not None:
            self._due.pop(place, None)
            self._resting.pop(place, None)
            self._forget(place)

    def _forget(self, place: Place) -> None:
        if place in self._in_session:
            self._forgotten[place] = None

    async def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        for task in (self._ending_wait, self._task):
            if task is not None and not task.done():
                task.cancel()
                await wait((task,))

    # --- the rounds ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            if not self._rows:
                self._has_work.clear()
                await self._has_work.wait()
            try:
                await self._settle()
                await self._round()
            except (OSError, KafkaError) as error:
                await self._failed(error)
            except Exception as error:  # a bug of semel; the other replicas must continue
                self._world.log.exception("fetcher_failed", source=self.source)
                await self._failed(error)

    async def _failed(self, error: Exception) -> None:
        """Pause after a failure. The pause ends early if a partition is added: the source probably runs again."""
        self._end_session()
        if self._rows and not self._is_failing:
            self._is_failing = True
            self._world.log.warning(
                "replication_interrupted", source=self.source, partitions=len(self._rows), error=str(error)
            )
        self._has_work.clear()
        with suppress(TimeoutError):
            async with timeout(self._backoff.next_ms() / 1000):
                await self._has_work.wait()

    async def _round(self) -> None:
        now = self._world.monotonic()
        self._hold_back(now)
        self._set_alarm(now)
        request = self._request()
        self._is_asking, self._has_ended_wait = True, False
        try:
            timeout_ms = request.max_wait_ms + REQUEST_TIMEOUT_MS
            answer: FetchResponse = await self._peers.call(
                self.source, ApiKey.FETCH, FETCH_VERSION, request, timeout_ms
            )
        finally:
            self._is_asking = False
        if answer.error_code:
            self._end_session()
            if answer.error_code not in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ):
                raise KafkaError(ErrorCode(answer.error_code), f"broker {self.source} refuses the fetch")
            return
        self._backoff.reset()
        if self._is_failing:
            self._is_failing = False
            self._world.log.info("replication_resumed", source=self.source, partitions=len(self._rows))
        self._session_id = answer.session_id
        self._session_epoch = 1 if self._session_epoch >= SESSION_EPOCH_MAX else self._session_epoch + 1
        self._take(answer)

    async def _settle(self) -> None:
        """Wait until the due partitions are durable, so that the leader may get their offsets. They share syncs."""
        for place in list(self._due):
            row = self._rows.get(place)
            if row is not None and row.partition.is_changing:
                await self._finish_change(place, row)
            if row is None or row.partition.fetch_offset == row.partition.end_offset:
                continue
            with suppress(KafkaError):  # it was deleted
                await row.partition.synced()

    async def _finish_change(self, place: Place, row: Followed) -> None:
        try:
            await row.partition.changed()
        except Exception:  # a bug of semel: only this replica must suffer
            self._world.log.exception("replica_failed", topic=row.partition.topic, partition=row.partition.index)
            row.rest(RETRY_MS_MAX / 1000)
            self._rest(place)

    def _request(self) -> FetchRequest:
        named: dict[bytes, FetchRequestTopic] = {}
        due, self._due = self._due, {}
        for place in due:
            row = self._rows[place]
            if row.partition.is_retired:
                continue
            if row.partition.is_changing or row.partition.fetch_offset != row.partition.end_offset:
                self._due[place] = None  # appended to after the sync, by this broker as its last leader
                continue
            topic = named.get(place[0])
            if topic is None:
                topic = named[place[0]] = FetchRequestTopic(topic_id=place[0], partitions=[])
            topic.partitions.append(row.wanted(self._config.replica_fetch_max_bytes))
            self._in_session[place] = None
            self._forgotten.pop(place, None)
        return FetchRequest(
            replica_state=FetchRequestReplicaState(
                replica_id=self._config.node_id, replica_epoch=self._registration.epoch
            ),
            max_wait_ms=0 if self._due else self._config.replica_fetch_wait_max_ms,
            min_bytes=1,
            max_bytes=self._config.replica_fetch_response_max_bytes,
            isolation_level=0,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(named.values()),
            forgotten_topics_data=self._no_longer(),
        )

    def _no_longer(self) -> list[FetchRequestForgottenTopic]:
        forgotten, self._forgotten = self._forgotten, {}
        topics: dict[bytes, FetchRequestForgottenTopic] = {}
        for place in forgotten:
            del self._in_session[place]
            topic = topics.get(place[0])
            if topic is None:
                topic = topics[place[0]] = FetchRequestForgottenTopic(topic_id=place[0], partitions=[])
            topic.partitions.append(place[1])
        return list(topics.values())

    def _take(self, answer: FetchResponse) -> None:
        now = self._world.monotonic()
        for topic in answer.responses:
            for answered in topic.partitions:
                place = topic.topic_id, answered.partition_index
                row = self._rows.get(place)
                if row is None or not row.is_expecting:
                    continue
                outcome = self._take_one(row, answered)
                if outcome is ResponseEffect.FAILED:
                    self._rest(place)
                elif outcome is ResponseEffect.MOVED:
                    self._due[place] = None
                    if self._throttle.is_bounded and answered.records and not self._is_in_sync(row.partition):
                        self._throttle.note(row.partition.topic, row.partition.index, len(answered.records), now)
        self._hold_back(now)
        self._set_alarm(now)

    def _take_one(self, row: Followed, answered: FetchResponsePartition) -> ResponseEffect:
        try:
            return row.take(answered)
        except Exception:  # a bug of semel: only this replica must suffer
            self._world.log.exception("replica_failed", topic=row.partition.topic, partition=row.partition.index)
            row.rest(RETRY_MS_MAX / 1000)
            return ResponseEffect.FAILED

    def _rest(self, place: Place) -> None:
        self._resting[place] = None
        self._due.pop(place, None)
        self._forget(place)

    def _hold_back(self, now: float) -> None:
        """Pause the due replicas that are throttled."""
        if not self._throttle.is_bounded:
            return
        for place in list(self._due):
            row = self._rows[place]
            rest_s = self._throttle.wait_s(row.partition.topic, row.partition.index, now)
            if rest_s > 0 and not self._is_in_sync(row.partition):
                row.rest(min(max(rest_s, SHARE_S_MIN), WAIT_S_MAX))
                self._rest(place)

    # --- time ------------------------------------------------------------------------------------------------

    def _fall_due(self, place: Place) -> None:
        self._due[place] = None
        self._has_work.set()
        if self._is_asking and not self._has_ended_wait:
            self._has_ended_wait = True
            if self._ending_wait is None or self._ending_wait.done():
                self._ending_wait = get_running_loop().create_task(
                    self._end_leader_wait(), name=f"end wait of broker {self.source}"
                )

    async def _end_leader_wait(self) -> None:
        """Make the leader answer the waiting fetch, so that the next one can name more partitions."""
        request = OffsetForLeaderEpochRequest(replica_id=self._config.node_id, topics=[])
        with suppress(OSError, KafkaError):
            await self._peers.call(
                self.source,
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
                OFFSET_FOR_LEADER_EPOCH_VERSION,
                request,
                REQUEST_TIMEOUT_MS,
            )

    def _set_alarm(self, now: float) -> None:
        """Set the timer for the first pause that ends."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        ends = [self._rows[place].rests_until for place in self._resting]
        if ends:
            self._alarm = get_running_loop().call_later(max(0.0, min(ends) - now), self._wake_up)

    def _wake_up(self) -> None:
        self._alarm = None
        now = self._world.monotonic()
        for place in list(self._resting):
            row = self._rows[place]
            if row.rests_until <= now:
                row.state = FollowedState.DUE
                del self._resting[place]
                self._fall_due(place)
        self._set_alarm(now)

    def _end_session(self) -> None:
        """Start a new session: the next request names all partitions."""
        self._session_id, self._session_epoch = NO_SESSION, START_SESSION_EPOCH
        self._in_session.clear()
        self._forgotten.clear()
        for place, row in self._rows.items():
            if place not in self._resting:
                row.state = FollowedState.DUE
                self._due[place] = None


def place_of(partition: Partition) -> Place:
    """The key of a partition in fetches: (topic id, index)."""
    return urlsafe_b64decode(f"{partition.topic_id}=="), partition.index
