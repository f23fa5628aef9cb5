"""Sends an admin's requests to the right brokers, and collects the outcome of each part of a call.

A call that names several things attempts all of them; refused ones do not delay the others. Only codes that another
broker or a later moment may answer differently are retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from semel_protocol.schema import Message

from semel._net.cluster import GROUP, Cluster
from semel._net.connection import Connection
from semel._net.metadata import merged
from semel._net.pool import ConnectionPurpose
from semel._net.retry import Deadline, is_lost_coordinator
from semel.errors import BrokerResponseError, KafkaError, KafkaProtocolError, error_for
from semel.errors.rights import NeededRight
from semel.structs import Metadata, TopicPartition

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

RETRIED_CODES = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""The broker is not, or not yet, the right one to answer. UNKNOWN_TOPIC_OR_PARTITION is not among them: an admin
gets it.
"""


class Refusal(NamedTuple):
    """A broker's final error for one part of a call."""

    code: int
    message: str | None


class CallOutcomes(Generic[K, V]):
    """The outcomes of several things of one call; `open` are those without a final one.

    keys: None for all that exist; the answer names them (`add`).
    what: describes a key in error messages. right: the right that a key needs.
    """

    def __init__(
        self, keys: Iterable[K] | None, what: Callable[[K], str], right: Callable[[K], NeededRight] | None = None
    ) -> None:
        self.of_all = keys is None
        self.keys = list(dict.fromkeys(keys or ()))
        self.open = dict.fromkeys(self.keys)
        self.uncertain = False
        self._what, self._right = what, right
        self._values: dict[K, V] = {}
        self._failures: dict[K, KafkaError] = {}
        self._refusals: dict[K, Refusal] = {}
        self._again: KafkaError | None = None

    def add(self, key: K) -> None:
        """Add a key that the answer to a request for all names."""
        if self.of_all and key not in self._values and key not in self._failures and key not in self.open:
            self.keys.append(key)
            self.open[key] = None

    def succeeded(self, key: K, value: V) -> None:
        self._values[key] = value
        self.open.pop(key, None)

    def refused(self, key: K, code: int, message: str | None = None) -> None:
        """A broker refused the key: a final failure, or a reason to retry."""
        right = None if self._right is None else self._right(key)
        error = error_for(code, ": ".join(part for part in (self._what(key), message) if part), right)
        if code in RETRIED_CODES:
            self._again = error
        else:
            self._refusals[key] = Refusal(code, message)
            self.failed(key, error)

    def failed(self, key: K, error: KafkaError) -> None:
        self._failures[key] = error
        self.open.pop(key, None)

    def check(self) -> None:
        """After an answer: raises the error that makes the call retry."""
        if self._again is not None:
            error, self._again = self._again, None
            raise error

    def results_and_refusals(self) -> dict[K, V | Refusal]:
        """The values, and the refusals of brokers, in the order of the keys. Raises the first other failure."""
        for key, refusal in self._refusals.items():
            if self._failures.pop(key, None) is not None:
                self._values[key] = refusal  # type: ignore[assignment]
        return dict(self.results())

    def results(self) -> dict[K, V]:
        """The values in the order of the keys. Raises the first failure, with the others as notes."""
        for key in list(self.open):
            self.failed(key, KafkaProtocolError(f"{self._what(key)}: the broker's answer does not contain it"))
        failures = [self._failures[key] for key in self.keys if key in self._failures]
        if failures:
            for other in failures[1:]:
                failures[0].add_other(other)
            if self.uncertain:
                failures[0].add_note("An earlier try lost its connection before the answer and may have taken effect")
            raise failures[0]
        return {key: self._values[key] for key in self.keys}


class Calls:
    """Requests of an admin to the controller, to a coordinator, to leaders, or to any broker."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._config = cluster.config

    def results(self, outcomes: CallOutcomes[K, V]) -> dict[K, V]:
        """The values of a call that is done. Raises the first failure, with the others as notes."""
        return outcomes.results()

    def timeout_ms(self, given: float | None) -> float:
        return self._config.max_block_ms if given is None else given

    async def request(self, connection: Connection, message: Message, deadline: Deadline) -> Any:
        """Send one request, within the deadline and request_timeout_ms."""
        timeout_ms = min(self._config.request_timeout_ms, max(deadline.remaining_ms, 1))
        return await connection.request(message, timeout_ms=timeout_ms)

    async def retrying(
        self,
        attempt: Callable[[Deadline], Awaitable[T]],
        *,
        what: str,
        timeout_ms: float | None = None,
        outcomes: CallOutcomes[K, V] | None = None,
        coordinated: tuple[str, int] | None = None,
    ) -> T:
        """Run `attempt` until its answer is final. Raises as `Cluster.retrying`."""

        def on_error(error: KafkaError) -> None:
            answered = isinstance(error, BrokerResponseError)
            if outcomes is not None and not answered:
                outcomes.uncertain = True
            if coordinated is not None and (is_lost_coordinator(error) or not answered):
                self.cluster.forget_coordinator(*coordinated)
            self.cluster.request_refresh()

        return await self.cluster.retrying(attempt, what=what, timeout_ms=timeout_ms, on_error=on_error)

    async def on_controller(
        self,
        attempt: Callable[[Connection, Deadline], Awaitable[None]],
        outcomes: CallOutcomes[K, V],
        *,
        what: str,
        timeout_ms: float | None,
    ) -> dict[K, V]:
        """Send requests to the controller until every part has its outcome."""

        async def ask(deadline: Deadline) -> None:
            await attempt(await self.cluster.controller_connection(), deadline)
            outcomes.check()

        if outcomes.open or outcomes.of_all:
            await self.retrying(ask, what=what, timeout_ms=timeout_ms, outcomes=outcomes)
        return self.results(outcomes)

    async def on_coordinator(
        self,
        key: str,
        attempt: Callable[[Connection, Deadline], Awaitable[T]],
        *,
        what: str,
        key_type: int = GROUP,
    ) -> T:
        """Send requests to the coordinator of a group or transactional id, and follow it when it moves."""

        async def ask(deadline: Deadline) -> T:
            left_ms = max(deadline.remaining_ms, 1)
            return await attempt(await self.cluster.coordinator_connection(key, key_type, timeout_ms=left_ms), deadline)

        return await self.retrying(ask, what=what, coordinated=(key, key_type))

    async def on_leaders(
        self,
        attempt: Callable[[Connection, list[TopicPartition], Deadline], Awaitable[None]],
        outcomes: CallOutcomes[TopicPartition, V],
        *,
        what: str,
        timeout_ms: float | None,
    ) -> dict[TopicPartition, V]:
        """Send requests to the leader of every partition, to all leaders at the same time."""

        async def of_leader(node_id: int, partitions: list[TopicPartition], deadline: Deadline) -> None:
            await attempt(await self.cluster.connection(node_id, ConnectionPurpose.CONTROL), partitions, deadline)

        async def ask(deadline: Deadline) -> None:
            metadata = await self.metadata([partition.topic for partition in outcomes.open], deadline)
            leaders = _by_leader(metadata, outcomes)
            # A broker that cannot be reached does not delay the requests to the others.
            answers = await asyncio.gather(
                *(of_leader(node_id, partitions, deadline) for node_id, partitions in leaders.items()),
                return_exceptions=True,
            )
            failures = [answer for answer in answers if isinstance(answer, BaseException)]
            for failure in failures:
                if not isinstance(failure, KafkaError) or not failure.retriable:
                    raise failure
            if failures:
                raise failures[0]
            outcomes.check()

        if outcomes.open:
            await self.retrying(ask, what=what, timeout_ms=timeout_ms, outcomes=outcomes)
        return outcomes.results()

    async def metadata(self, topics: Iterable[str] | None, deadline: Deadline) -> Metadata:
        """Fresh metadata of these topics (None: all), for this call alone. Creates no topic."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in dict.fromkeys(topics)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer: MetadataResponse = await self.request(await self.cluster.any_connection(), request, deadline)
        for broker in answer.brokers:
            self.cluster.pool.set_address(broker.node_id, broker.host, broker.port)
        return merged(Metadata(brokers={}, topics={}), answer)


def _by_leader(metadata: Metadata, outcomes: CallOutcomes[TopicPartition, V]) -> dict[int, list[TopicPartition]]:
    """The open partitions by leader. Partitions without a leader are refused."""
    leaders: dict[int, list[TopicPartition]] = {}
    for partition in list(outcomes.open):
        topic = metadata.topics.get(partition.topic)
        if topic is None:
            code = metadata.errors.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            outcomes.refused(partition, code)
        elif not 0 <= partition.partition < len(topic.partitions):
            outcomes.refused(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif (leader := topic.partitions[partition.partition].leader) not in metadata.brokers:
            outcomes.refused(partition, ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            leaders.setdefault(leader, []).append(partition)
    return leaders


def settled(outcomes: Mapping[K, V | BaseException]) -> dict[K, V]:
    """The results of parallel calls. Raises the first failure, with the others as notes."""
    failures = [outcome for outcome in outcomes.values() if isinstance(outcome, BaseException)]
    if failures:
        for other in failures[1:]:
            if isinstance(failures[0], KafkaError) and isinstance(other, KafkaError):
                failures[0].add_other(other)
            else:
                failures[0].add_note(f"and {other}")
        raise failures[0]
    return {key: outcome for key, outcome in outcomes.items() if not isinstance(outcome, BaseException)}


def wire_ms(deadline: Deadline) -> int:
    """The remaining time in ms, as requests carry it: at least 1."""
    return max(1, int(min(deadline.remaining_ms, 2**31 - 1)))


def grouped(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topic -> partition indexes, both in the order given."""
    result: dict[str, list[int]] = {}
    for topic, index in partitions:
        result.setdefault(topic, []).append(index)
    return result
