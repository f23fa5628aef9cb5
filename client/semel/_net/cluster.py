"""The client's view of the cluster: brokers, topics, leaders, coordinators; kept fresh by one task.

The metadata is replaced as a whole. Only one Metadata request is in progress at a time. After an answer the next one
waits for a moment, because a listener that misses a leader in the answer asks again at once. A partition keeps its
known leader when an answer has a lower leader epoch (KIP-320). Stale metadata may come from a broker that is cut off
from the others, so the next request goes to another broker.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter
from typing import Any, TypeVar

from semel_protocol.acls import Operation
from semel_protocol.backoff import Backoff
from semel_protocol.errors import ErrorCode, error_code
from semel_protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

from semel._config.client import ClientConfig
from semel._edge import Edge
from semel._net.connection import ASKING_METADATA, Connection
from semel._net.metadata import is_topic_name, merged, with_leader
from semel._net.missing_topics import MissingTopics
from semel._net.outage import Outage
from semel._net.pool import ConnectionPurpose, Pool
from semel._net.retry import LOGIN_REFUSED, CallInProgress, Deadline, retrying
from semel.errors import (
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    error_for,
)
from semel.errors.rights import NeededRight
from semel.structs import Metadata, TopicMetadata

log = logging.getLogger(__name__)
T = TypeVar("T")

GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""
ANSWER_TIMEOUT_MS = 6_000
"""After this time a request that any broker can answer goes to another broker. A broker says after 5 s that it cannot
reach the store of the cluster: that answer should arrive."""
REFRESH_PAUSE_MS = 100
"""The longest pause between an answer and the next Metadata request, if retry_backoff_ms is not shorter."""
STAGGER_MS = 300
"""While a connection takes longer than this to open, the next broker is tried as well."""


class Cluster:
    """The cluster as one client sees it. `start` before use, `stop` at the end."""

    def __init__(self, config: ClientConfig, *, auto_create_topics: bool = True) -> None:
        self.config = config
        self.edge = config.edge or Edge()
        self.pool = Pool(config, self.edge)
        self.metadata = Metadata(brokers={}, topics={})
        self.calls_in_progress: dict[CallInProgress, None] = {}
        """The calls of `retrying`, in the order in which they began."""
        self._principal = config.principal
        self._auto_create_topics = auto_create_topics
        self._wanted: dict[str, None] = {}
        self._awaited: Counter[str] = Counter()
        """Topics that are wanted only until they appear, with the number of calls that wait for each."""
        self._wants_all = False
        self._listeners: list[Callable[[], None]] = []
        self._coordinators: dict[tuple[int, str], int] = {}
        self._stale = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._fetched_at = 0.0
        self._asked: int | None = None
        self._distrusted: int | None = None
        self._missing = MissingTopics(self.edge, config.client_id)
        self.warns_of_missing_topics = True
        """False: the owner says it itself."""
        self.describes_all = False
        """Whether `metadata` has every topic that this client may see."""
        self._waiters: list[asyncio.Future[Metadata]] = []
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._ending: list[asyncio.Task[Any]] = []
        self._bootstrap_ids = []
        for number, (host, port) in enumerate(config.servers(), start=1):
            self.pool.set_address(-number, host, port)
            self._bootstrap_ids.append(-number)

    async def start(self) -> None:
        """Connect to any bootstrap server within bootstrap_timeout_ms.

        Raises KafkaConnectionError, or at once KafkaProtocolError when no server speaks Kafka's protocol.
        """
        if self._task is not None:
            raise IllegalStateError("the client is already started")
        self._check_not_stopped()
        try:
            await self._connect()
        except BaseException:
            self.cut()
            raise
        self._task = asyncio.create_task(self._keep_fresh(), name=f"metadata of {self.config.client_id}")
        self._task.add_done_callback(self._ended)

    async def _connect(self) -> None:
        backoff = Backoff(self.edge.rng, self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        deadline = Deadline(self.edge, self.config.bootstrap_timeout_ms)
        reason, cause = "no answer", None
        while True:
            try:
                async with asyncio.timeout(max(deadline.remaining_ms, 1) / 1000):
                    await self._fetch()
                break
            except TimeoutError:
                pass  # the reason of an earlier try says more
            except KafkaError as error:
                if not error.retriable:
                    raise
                reason, cause = error.message, error
            pause_ms = backoff.next_ms()
            if pause_ms >= deadline.remaining_ms:
                waited_ms = self.config.bootstrap_timeout_ms
                text = f"none of bootstrap_servers answered within {waited_ms} ms: {reason}"
                raise KafkaConnectionError(self.explained(text, waited_ms)) from cause
            await asyncio.sleep(pause_ms / 1000)
        self._check_not_stopped()

    async def stop(self) -> None:
        """As `cut`. Waits until the tasks have ended."""
        if tasks := self.cut():
            await asyncio.wait(tasks)

    def cut(self) -> list[asyncio.Task[Any]]:
        """Close every connection at once. Calls that wait for metadata get IllegalStateError. May be called before
        `start`, and again. Returns the tasks, which are cancelled and end soon.
        """
        self._stopped = True
        self._ending = [task for task in self._ending if not task.done()] + self.pool.cut()
        if self._task is not None:
            self._task.cancel()
            self._ending.append(self._task)
        self._resolve(IllegalStateError("the client is stopped"))
        return self._ending

    # Metadata

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every refresh, when `metadata` is replaced already."""
        self._listeners.append(listener)

    def off_change(self, listener: Callable[[], None]) -> None:
        """Remove a listener, if it is there."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def want(self, topics: Iterable[str]) -> None:
        """Add topics to the metadata. Requests a refresh when one is new."""
        for topic in topics:
            if topic not in self._wanted:
                self._wanted[topic] = None
                if topic not in self.metadata.topics:
                    self._refresh_at_once()

    def want_only(self, topics: Iterable[str]) -> None:
        """Keep metadata of these topics and no others from now on."""
        self._wanted, self._wants_all = dict.fromkeys(topics), False
        self._refresh_at_once()

    def want_all(self) -> None:
        """Keep metadata of every topic, for pattern subscriptions and listings."""
        self._wants_all = True
        self._refresh_at_once()

    def request_refresh(self) -> None:
        """Requests a refresh soon, because the metadata may be stale. Never waits."""
        self._distrusted = self._asked
        self._stale.set()

    def _refresh_at_once(self) -> None:
        """As `request_refresh`, for something that was not asked for before: without the pause."""
        self._is_urgent.set()
        self.request_refresh()

    def update_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        """Apply the leader that a refusing broker named (KIP-951), if it is newer and its address is known."""
        picture = with_leader(self.metadata, topic, partition, leader, leader_epoch)
        if picture is not None and self.pool.knows(leader):
            self.metadata = picture
            self._notify_listeners()

    async def refresh(self, timeout_ms: float | None = None) -> Metadata:
        """Metadata requested after this call. Raises KafkaTimeoutError after timeout_ms (default: max_block_ms)."""
        timeout_ms = self.config.max_block_ms if timeout_ms is None else timeout_ms
        self._check_not_stopped()
        if self._task is None or self._task.done():
            raise IllegalStateError("the client is not running: await start() first")
        waiter: asyncio.Future[Metadata] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._refresh_at_once()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await waiter
        except TimeoutError:
            raise self.timed_out(f"no broker gave metadata within {timeout_ms:.0f} ms", timeout_ms) from None

    async def wait_for_topic(
        self, topic: str, timeout_ms: float | None = None, operation: Operation = Operation.READ
    ) -> TopicMetadata:
        """The topic, once it has partitions. operation: the purpose, for the error if the right to it is missing.

        A topic that does not appear, or is refused, is forgotten: later requests do not name it.

        Raises KafkaTimeoutError (default: max_block_ms), InvalidTopicError, TopicAuthorizationFailedError.
        """
        timeout_ms = self.config.max_block_ms if timeout_ms is None else timeout_ms
        deadline = Deadline(self.edge, timeout_ms)
        was_asked = topic in self._wanted or topic in self._awaited
        self._awaited[topic] += 1
        try:
            found = await self._until_known(topic, deadline, timeout_ms, operation, is_error_new=was_asked)
        finally:
            self._awaited[topic] -= 1
            if not self._awaited[topic]:
                del self._awaited[topic]
        self._wanted[topic] = None
        return found

    async def _until_known(
        self, topic: str, deadline: Deadline, timeout_ms: float, operation: Operation, *, is_error_new: bool
    ) -> TopicMetadata:
        """is_error_new: the metadata's error of this topic is not left from an earlier call that waited for it."""
        backoff = Backoff(self.edge.rng, self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        while True:
            found = self.metadata.topics.get(topic)
            if found is not None and found.partitions:
                return found
            code = self.metadata.errors.get(topic) if is_error_new else None
            is_error_new = True
            if code is not None and not error_code(code).retriable:
                raise error_for(code, f"topic {topic!r}", self.right(operation, topic=topic))
            if deadline.expired:
                why = f" ({error_for(code).message})" if code else ""
                raise self.timed_out(
                    f"topic {topic!r} did not appear within {timeout_ms:.0f} ms{why}: create it, or check its name."
                    f"{self._missing.suggestions.get(topic, '')}",
                    timeout_ms,
                )
            if code is not None:
                await asyncio.sleep(min(backoff.next_ms(), deadline.remaining_ms) / 1000)
            try:
                await self.refresh(max(deadline.remaining_ms, 1))
            except KafkaTimeoutError:
                if code is None:
                    raise  # otherwise the earlier answer says more

    # Calls

    async def retrying(
        self,
        attempt: Callable[[Deadline], Awaitable[T]],
        *,
        what: str,
        timeout_ms: float | None = None,
        is_retriable: Callable[[KafkaError], bool] = attrgetter("retriable"),
        on_error: Callable[[KafkaError], None] | None = None,
        pause_ms_max: Callable[[KafkaError], float] | None = None,
    ) -> T:
        """`retry.retrying` with the client's pauses and clock; timeout_ms: max_block_ms by default.

        `calls_in_progress` has the call meanwhile.
        """
        call = CallInProgress(what, self.edge.monotonic())
        self.calls_in_progress[call] = None
        try:
            return await retrying(
                attempt,
                call,
                edge=self.edge,
                explain=self.explained,
                backoff=Backoff(self.edge.rng, self.config.retry_backoff_ms, self.config.retry_backoff_max_ms),
                timeout_ms=self.config.max_block_ms if timeout_ms is None else timeout_ms,
                is_retriable=is_retriable,
                on_error=on_error,
                pause_ms_max=pause_ms_max,
            )
        finally:
            del self.calls_in_progress[call]

    # Connections

    def explained(self, text: str, waited_ms: float) -> str:
        """The text of a timeout after `waited_ms`, with the errors of brokers that were not reached meanwhile."""
        return self.pool.reachability.explained(text, waited_ms)

    def timed_out(self, text: str, waited_ms: float) -> KafkaTimeoutError:
        """The exception for a wait of `waited_ms` that has ended, with the errors of brokers."""
        return KafkaTimeoutError(self.explained(text, waited_ms))

    async def connection(self, node_id: int, role: ConnectionPurpose) -> Connection:
        """As Pool.connection. A node that cannot be reached also causes a refresh."""
        try:
            return await self.pool.connection(node_id, role)
        except KafkaConnectionError:
            self.request_refresh()
            raise

    async def any_connection(self) -> Connection:
        """A control connection to the first broker that answers. Raises KafkaConnectionError when none does."""
        return (await self._any_node())[1]

    async def controller_connection(self) -> Connection:
        """A control connection to the controller. Raises KafkaConnectionError."""
        if self.metadata.controller_id not in self.metadata.brokers:
            await self.refresh()
        if self.metadata.controller_id not in self.metadata.brokers:
            raise KafkaConnectionError("the cluster has no controller at the moment")
        return await self.connection(self.metadata.controller_id, ConnectionPurpose.CONTROL)

    async def coordinator_connection(
        self, key: str, key_type: int = GROUP, *, timeout_ms: float | None = None
    ) -> Connection:
        """A connection to the coordinator of a group or transactional id.

        Raises as `coordinator`, and KafkaConnectionError.
        """
        node_id = await self.coordinator(key, key_type, timeout_ms=timeout_ms)
        try:
            return await self.pool.connection(node_id, ConnectionPurpose.COORDINATOR)
        except KafkaConnectionError:
            self.forget_coordinator(key, key_type)
            raise

    async def coordinator(self, key: str, key_type: int = GROUP, *, timeout_ms: float | None = None) -> int:
        """Node id of the coordinator, cached until `forget_coordinator`.

        Raises KafkaTimeoutError (default: max_block_ms) and final errors of the broker, such as
        GroupAuthorizationFailedError.
        """
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known

        async def ask(deadline: Deadline) -> int:
            connection = await self.any_connection()
            answer: FindCoordinatorResponse = await connection.request(
                FindCoordinatorRequest(key=key, key_type=key_type),
                timeout_ms=min(self._answer_timeout_ms, max(deadline.remaining_ms, 1)),
            )
            if answer.error_code:
                what = f"coordinator of {key!r}: {answer.error_message or 'none'}"
                raise error_for(answer.error_code, what, self._right_to_coordinator(key, key_type))
            self.pool.set_address(answer.node_id, answer.host, answer.port)
            self._coordinators[key_type, key] = answer.node_id
            return answer.node_id

        return await self.retrying(ask, what=f"finding the coordinator of {key!r}", timeout_ms=timeout_ms)

    def right(
        self,
        operation: Operation,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> NeededRight:
        """The right of this client that a request needs, for the error if it is missing."""
        return NeededRight(
            principal=self._principal, operation=operation, topic=topic, group=group, transactional_id=transactional_id
        )

    def _right_to_coordinator(self, key: str, key_type: int) -> NeededRight:
        """A member reads in its group and a producer writes with its id; an administrator describes them."""
        group_id, transactional_id = (getattr(self.config, name, None) for name in ("group_id", "transactional_id"))
        if key_type == GROUP:
            return self.right(Operation.READ if key == group_id else Operation.DESCRIBE, group=key)
        operation = Operation.WRITE if key == transactional_id else Operation.DESCRIBE
        return self.right(operation, transactional_id=key)

    def forget_coordinator(self, key: str, key_type: int = GROUP) -> None:
        """Drop the cached coordinator: the next call finds it again."""
        self._distrusted = self._asked
        self._coordinators.pop((key_type, key), None)

    # Inside

    def _check_not_stopped(self) -> None:
        if self._stopped:
            raise IllegalStateError("the client is stopped")

    @property
    def _answer_timeout_ms(self) -> float:
        return min(self.config.request_timeout_ms, ANSWER_TIMEOUT_MS)

    async def _any_node(self) -> tuple[int, Connection]:
        """A connected broker, else the first that connects. The broker with the last stale answer comes last."""
        known = list(self.metadata.brokers)
        self.edge.rng.shuffle(known)
        known.sort(
            key=lambda node_id: (
                node_id == self._distrusted,
                self.pool.live(node_id, ConnectionPurpose.CONTROL) is None,
            )
        )
        self._asked, connection = await self._first_of([*known, *self._bootstrap_ids])
        return self._asked, connection

    async def _first_of(self, node_ids: list[int]) -> tuple[int, Connection]:
        """The first node to be connected. The next one is tried when those before it have failed or are slow. Raises
        KafkaError.
        """
        attempts: dict[asyncio.Task[Connection], int] = {}
        failures: list[KafkaError] = []
        for at, node_id in enumerate(node_ids):
            live = self.pool.live(node_id, ConnectionPurpose.CONTROL)
            if live is not None:
                return node_id, live
            attempts[self.pool.connecting(node_id, ConnectionPurpose.CONTROL, is_needed=False)] = node_id
            is_last = at == len(node_ids) - 1
            while attempts:
                done, _ = await asyncio.wait(
                    list(attempts),
                    timeout=None if is_last else STAGGER_MS / 1000,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for attempt in [attempt for attempt in attempts if attempt in done]:
                    found = attempts.pop(attempt)
                    if attempt.cancelled():
                        raise IllegalStateError("the client is stopped")
                    if attempt.exception() is None:
                        return found, attempt.result()
                    failures.append(_failure_of(attempt))
                if not is_last:
                    break
        if not any(error.retriable for error in failures):
            raise failures[0]
        for error in failures:
            if isinstance(error, LOGIN_REFUSED):
                raise error  # the other brokers have the same users
        # A bootstrap server and the broker that it is have the same address.
        raise KafkaConnectionError("; ".join(dict.fromkeys(error.message for error in failures)))

    async def _keep_fresh(self) -> None:
        config = self.config
        backoff = Backoff(self.edge.rng, config.retry_backoff_ms, config.retry_backoff_max_ms)
        outage = Outage(self.edge)
        while True:
            await self._until_stale()
            await self._pause()
            try:
                await self._fetch()
            except KafkaError as error:
                if outage.is_due():
                    log.warning("client %r: cannot refresh the metadata, trying again: %s", config.client_id, error)
                if isinstance(error, LOGIN_REFUSED):
                    self._resolve(error)
                self.request_refresh()
                await asyncio.sleep(backoff.next_ms() / 1000)
            except Exception as bug:
                # Without this task no leader would be learnt any more. So it tries again after a failure of any kind.
                if outage.is_due():
                    log.exception("client %r: the refresh of the metadata has failed, trying again", config.client_id)
                self._resolve(IllegalStateError(f"the client has failed: {type(bug).__name__}: {bug}"))
                self.request_refresh()
                await asyncio.sleep(backoff.next_ms() / 1000)
            else:
                backoff.reset()
                outage.end()
                await self._warn_of_missing_topics()

    async def _warn_of_missing_topics(self) -> None:
        if not self.warns_of_missing_topics:
            return
        due = self._missing.due(self.metadata, [*self._wanted, *self._awaited])
        known: Iterable[str] = ()
        if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in due.values():
            try:
                known = await self.all_topics(self._answer_timeout_ms)
            except KafkaError as error:
                log.debug("client %r: cannot list the topics: %s", self.config.client_id, error)
        for name, code in due.items():
            log.warning(self._missing.warning(name, code, known, may_be_created=self._auto_create_topics))

    async def all_topics(self, timeout_ms: float) -> set[str]:
        """The names of all topics that this client may see, from a new request. Raises KafkaConnectionError,
        KafkaTimeoutError.
        """
        connection = await self.any_connection()
        answer: MetadataResponse = await connection.request(
            MetadataRequest(topics=None, allow_auto_topic_creation=False), timeout_ms=timeout_ms
        )
        return {topic.name for topic in answer.topics if topic.name and not topic.error_code}

    async def _until_stale(self) -> None:
        config = self.config
        while not self._stale.is_set():
            age_ms = (self.edge.monotonic() - self._fetched_at) * 1000
            if age_ms >= config.metadata_max_age_ms:
                break
            pause_ms = config.metadata_max_age_ms - age_ms
            if config.connections_max_idle_ms is not None:
                pause_ms = min(pause_ms, max(config.connections_max_idle_ms / 2, 1))
            try:
                async with asyncio.timeout(pause_ms / 1000):
                    await self._stale.wait()
            except TimeoutError:
                self.pool.close_idle()

    async def _pause(self) -> None:
        """Wait for a pause after the last answer, or until a refresh is urgent."""
        pause_ms = min(self.config.retry_backoff_ms, REFRESH_PAUSE_MS)
        pause_s = self._fetched_at + pause_ms / 1000 - self.edge.monotonic()
        if pause_s > 0:
            try:
                async with asyncio.timeout(pause_s):
                    await self._is_urgent.wait()
            except TimeoutError:
                pass  # the pause is over

    async def _answer_of(self, node_id: int, connection: Connection, request: MetadataRequest) -> MetadataResponse:
        """The answer, with at least one broker. Raises KafkaError.

        Before the first answer, a broker that is connected and does not answer counts as not reached.
        """
        reachability, address = self.pool.reachability, self.pool.address(node_id)
        is_first = not reachability.has_metadata
        if is_first:
            reachability.attempting(node_id, address, is_needed=False)
            reachability.waits_for(address, ASKING_METADATA)
        try:
            answer: MetadataResponse = await connection.request(request, timeout_ms=self._answer_timeout_ms)
            if not answer.brokers:
                raise KafkaConnectionError(f"the metadata of {connection.name} has no broker yet")
        except KafkaError as error:
            if is_first:
                reachability.failed(node_id, address, error)
            raise
        except BaseException:
            reachability.given_up(address)
            raise
        if is_first:
            reachability.reached(address)
        return answer

    async def _fetch(self) -> None:
        node_id, connection = await self._any_node()
        # A caller of `refresh` from here on needs a newer answer than the one to this request.
        self._stale.clear()
        self._is_urgent.clear()
        served = len(self._waiters)
        wanted = {**self._wanted, **dict.fromkeys(self._awaited)}
        # A name that no topic can have is not sent: some brokers answer it by closing the connection.
        legal = [name for name in wanted if is_topic_name(name)]
        topics = None if self._wants_all else [MetadataRequestTopic(name=name) for name in legal]
        request = MetadataRequest(
            topics=topics, allow_auto_topic_creation=self._auto_create_topics and topics is not None
        )
        answer = await self._answer_of(node_id, connection, request)
        self._principal = answer.principal or self._principal
        for broker in answer.brokers:
            self.pool.set_address(broker.node_id, broker.host, broker.port)
        self.pool.reachability.metadata_answered(self.pool.address(broker.node_id) for broker in answer.brokers)
        self.metadata = merged(self.metadata, answer, illegal=wanted.keys() - set(legal))
        self.describes_all = topics is None
        self._fetched_at = self.edge.monotonic()
        if node_id < 0:
            for broker in answer.brokers:
                self.pool.adopt(node_id, broker.node_id)
        try:
            self._notify_listeners()
        finally:
            waiters, self._waiters = self._waiters[:served], self._waiters[served:]
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(self.metadata)

    def _notify_listeners(self) -> None:
        """Call all listeners, also when one of them fails."""
        failures = []
        for listener in list(self._listeners):
            try:
                listener()
            except Exception as bug:
                failures.append(bug)
        if failures:
            raise failures[0]

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("the metadata task of %s has failed", self.config.client_id, exc_info=bug)
            self._resolve(IllegalStateError(f"the client has failed: {type(bug).__name__}: {bug}"))

    def _resolve(self, error: KafkaError) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._waiters = []


def _failure_of(attempt: asyncio.Task[Connection]) -> KafkaError:
    error = attempt.exception()
    if not isinstance(error, KafkaError):
        assert error is not None
        raise error
    return error
