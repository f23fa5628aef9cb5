"""Asks the coordinator whether a producer may write into a partition as part of a transaction (KIP-890).

Where this broker coordinates the id, no await stands between the answer and the append. Where another broker does, this
one asks it, and a `Guard` notices if the transaction ends before the append.

With transaction version 1 the newest connection of a producer wins (`TransactionSlot.arrived_over`), among the requests
that come to one broker: another broker numbers its connections independently. So this recognises a late Produce or
TxnOffsetCommit only where partition and coordinator are on one broker. It always recognises a late EndTxn or enrolment,
because those all go to the coordinator. Version 2 needs none of this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.internal_topics import TRANSACTION_STATE

from semel_broker.coordination.shards import Shards
from semel_broker.partitions.partition import Partition
from semel_broker.txn.markers.channel import Leaders
from semel_broker.txn.markers.local_destination import Guard, Guards
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.metadata import TopicPartition
from semel_broker.txn.shard import TransactionShard
from semel_broker.txn.verification import Verification

TRY_AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""Errors about the coordinator. A producer that writes to a partition gets NOT_ENOUGH_REPLICAS instead, and retries."""


class Admission:
    """A coordinator's answer about one producer. `check` it without an await before the append, `close` it after."""

    def __init__(self, guards: Guards, verify: Callable[[TopicPartition], None]) -> None:
        self._guards = guards
        self._verify = verify
        self._refusals: dict[TopicPartition, KafkaError] = {}
        self._held: dict[TopicPartition, Guard] = {}

    def check(self, partition: TopicPartition) -> None:
        """Raise NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING,
        CONCURRENT_TRANSACTIONS, PRODUCER_FENCED unless the producer may write there now."""
        if (refusal := self._refusals.get(partition)) is not None:
            raise refusal
        if (guard := self._held.get(partition)) is not None:
            guard.check()
        else:
            self._verify(partition)

    def close(self) -> None:
        """Release the guards."""
        for guard in self._held.values():
            self._guards.release(guard)
        self._held.clear()

    def hold(self, partition: Partition, producer_id: int) -> None:
        """Take a guard: it notices if the producer's transaction ends in the partition."""
        self._held[partition.topic, partition.index] = self._guards.take(partition, producer_id)

    def refuse(self, partition: TopicPartition, error: KafkaError) -> None:
        """Note that the producer may not write to the partition."""
        code = ErrorCode.NOT_ENOUGH_REPLICAS if error.code in TRY_AGAIN else error.code
        self._refusals[partition] = KafkaError(code, error.message)


class Admissions:
    """Asks the coordinator of an id, which is this broker (`node_id`) or another one."""

    def __init__(
        self,
        shards: Shards[TransactionShard],
        leaders: Leaders,
        guards: Guards,
        verification: Verification,
        node_id: int,
    ) -> None:
        self._shards = shards
        self._leaders = leaders
        self._guards = guards
        self._verification = verification
        self._node_id = node_id

    async def admit(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[Partition],
        *,
        joins: bool,
        enrol: Callable[[Sequence[TopicPartition]], Awaitable[None]],
        verify: Callable[[TopicPartition], None],
    ) -> Admission:
        """Ask the coordinator. With `joins` it enrols the partitions, because the producer enrols them by writing.

        `enrol`, `verify`: how this broker does it where it is the coordinator.
        """
        admission = Admission(self._guards, verify)
        places = [(partition.topic, partition.index) for partition in partitions]
        try:
            node = self._node_id if self._shards.of(transactional_id) else await self._node_of(transactional_id)
            if node == self._node_id:
                await (enrol(places) if joins else self._shards.ready(transactional_id))
            else:
                for partition in partitions:
                    admission.hold(partition, producer.producer_id)
                codes = await self._verification.ask(node, transactional_id, producer, places, verify_only=not joins)
                for place in places:
                    if code := codes[place]:
                        admission.refuse(place, _refusal(code, transactional_id, producer, place, node))
        except (KafkaError, OSError) as error:
            refusal = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error))
            for place in places:
                admission.refuse(place, refusal)
        except BaseException:
            admission.close()
            raise
        return admission

    async def _node_of(self, transactional_id: str) -> int:
        """The broker that coordinates the id. Raises COORDINATOR_NOT_AVAILABLE."""
        index = await self._shards.index_of(transactional_id)
        if self._shards.at(index) is not None:
            return self._node_id
        node = self._leaders.of((TRANSACTION_STATE, index))
        if node is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{transactional_id} has no coordinator now: try again"
            )
        return node


def _refusal(
    code: ErrorCode, transactional_id: str, producer: ProducerIdentity, place: TopicPartition, node: int
) -> KafkaError:
    advice = "abort, begin a new transaction and send again" if code is ErrorCode.INVALID_TXN_STATE else "see its log"
    return KafkaError(
        code,
        f"{place[0]}-{place[1]}: the coordinator of {transactional_id}, broker {node}, answers {code.name} "
        f"to {producer}: {advice}",
    )
