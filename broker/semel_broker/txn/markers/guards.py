"""What stands between a verification by another broker and the append that it was for (KIP-890).

A guard is taken before the coordinator is asked. If a marker for its producer comes meanwhile, or the partition begins
another leader epoch, the answer is about a transaction that may be over, and is not acted upon. That the marker was
there already (a retry, or one of a transaction that has written nothing here) makes no difference.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.partitions.partition import Partition

Key = tuple[str, int, int]
"""(topic, partition, producer id)."""


class Guard:
    """One producer's way into one partition; `Guards.release` it."""

    __slots__ = ("_epoch", "_partition", "is_broken", "key")

    def __init__(self, partition: Partition, producer_id: int) -> None:
        self.key: Key = (partition.topic, partition.index, producer_id)
        self.is_broken = False
        self._partition = partition
        self._epoch = partition.leader_epoch

    def check(self) -> None:
        """To be called in the turn of the append. Raises NOT_ENOUGH_REPLICAS, upon which the producer tries again."""
        if self.is_broken or self._partition.leader_epoch != self._epoch:
            topic, index, producer_id = self.key
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{topic}-{index}: a transaction of producer id {producer_id} ended while it was looked up: try again",
            )


class Guards:
    """The guards of all partitions of this broker."""

    def __init__(self) -> None:
        self._guards: dict[Key, list[Guard]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def __bool__(self) -> bool:
        return bool(self._guards)

    def take(self, partition: Partition, producer_id: int) -> Guard:
        """A guard from now on."""
        guard = Guard(partition, producer_id)
        self._guards.setdefault(guard.key, []).append(guard)
        return guard

    def release(self, guard: Guard) -> None:
        """It is not needed any more."""
        guards = self._guards[guard.key]
        guards.remove(guard)
        if not guards:
            del self._guards[guard.key]

    def marker(self, topic: str, index: int, producer_id: int) -> None:
        """A transaction of this producer is over in this partition."""
        for guard in self._guards.get((topic, index, producer_id), ()):
            guard.is_broken = True
